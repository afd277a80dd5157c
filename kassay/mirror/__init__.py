"""Mirrors: copies of a run in Weights & Biases or trackio, sent by a process of their own that nobody waits for.

    driver ── start() ──► launch.py ── exec ──► program.py            (own process group, own environment)
      │                   makes the            reads events.jsonl and outcomes, sends rows, keeps the cursor
      └── Mirror.finish() environment          and writes its health into mirror.jsonl
          closes a pipe, waits FINISH_S, ends what is left

The run's own JSONL is the record; a mirror only adds to it. It takes from the driver nothing but a pipe through which
nothing is ever written: the pipe's end says that the run is over, or that its driver died. docs/mirrors.md says what is
sent, what stays here, and why nothing arrives twice.
"""
