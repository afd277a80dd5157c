"""The in-tree server as a process of its own: one model under one recipe on one port, until TERM.

`python stages/serving_server.py <directory>`, a directory as of any stage. It appends a record for every request that
it is done with. Its receipt is written when it is ready, so that a server that is killed has one too, and at its end.
"""

import signal
from typing import Any

from kassay import digest, paths
from kassay.backend import checkpoint, inputs, reference, server
from kassay.backend.cohort import Decoder, Served
from kassay.kv.recipe import recipe_named
from kassay.stage import Metrics, Stage, main


def run(stage: Stage) -> Metrics:
    """Load, listen, decode."""
    params = stage.params
    served = Served(
        name=params["model"],
        checkpoint=checkpoint.of_stage(stage),
        recipe=recipe_named(params["recipe"], params["sixteen"]),
        scales=inputs.scales_of(stage),
        largest_cohort=params["largest_cohort"],
        most_waiting=params["most_waiting"],
        most_tokens=params["output_tokens"],
    )
    reference.made(served.checkpoint.model, served.recipe, served.scales, 1)  # what does not fit is refused here
    decoder = Decoder(served, stage.append)

    def stop(number: int, frame: Any) -> None:
        decoder.stopping.set()

    signal.signal(signal.SIGTERM, stop)

    def ready(port: int) -> None:
        digest.write_json(stage.directory / paths.RECEIPT, stage.receipt())
        print(f"ready on port {port}", flush=True)

    server.serve(params["port"], decoder, ready)
    return {"cohorts": decoder.cohorts}


if __name__ == "__main__":
    main(run)
