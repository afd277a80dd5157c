"""Prefill from pages, mixed batches and shared prefixes on a GPU: are they right against float64, twice the same bits?

    python scripts/kernel-prefill-check.py [--small] [--workers 14] [--out FILE.json]

Needs torch, triton, numpy, scipy and ml_dtypes beside this checkout. Every recipe and four geometries, ragged lengths,
into memory full of NaN: prompts gathered from pages whole and in an eighth of the workspace, mixed batches against
their requests alone, prefixes with three planted faults. `--small` is what a memory checker is put over; under Triton's
interpreter it runs on a CPU. Exit 1 if anything is wrong.
"""

import argparse
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import triton

from kassay.kernels.cartridge import Cartridge, Shared
from kassay.kernels.fill import Asked
from kassay.kernels.gather import Gathered
from kassay.kernels.launch import host_of
from kassay.kernels.mixed import Mixed
from kassay.kernels.route import Limits, Request, counted
from kassay.kernels.workload import Calls, Heads, Pool
from kassay.kv.paged import PagedLayer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
QWEN3_8B = Heads(query_heads=32, kv_heads=8, head_dim=128, page_tokens=16)
OTHERS = (
    Heads(query_heads=6, kv_heads=6, head_dim=64, page_tokens=1),
    Heads(query_heads=71, kv_heads=1, head_dim=64, page_tokens=32),
    Heads(query_heads=14, kv_heads=2, head_dim=64, page_tokens=16, sixteen="bf16"),
)
SMALL = Heads(query_heads=14, kv_heads=2, head_dim=64, page_tokens=16)
RECIPES = ("native", "k16v8-f", "k16v8-d", "k8v16-d", "k8v8-f", "k8v8-d", "ki8vi8-d", "k16v4-d", "k4v4-d")
PAIRS = (
    ("native", "k16v8-d"),
    ("native", "k16v8-f"),
    ("k16v8-d", "k16v8-d"),
    ("k8v8-d", "k16v8-d"),
    ("k4v4-d", "k4v4-d"),
)
LENGTHS, QUERIES = [2048, 1, 700, 1999, 333, 64], [2048, 1, 100, 1, 3, 64]
WORST = {"fp16": 1e-3, "bf16": 1e-2}  # of an output: stored elements, weights and outputs are rounded, a part each once
WORST_LSE = 2e-2  # of logits of elements that were rounded to 16 bits
Results = dict[str, Any]


def same(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    """Equal bits, NaN never."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def fresh(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Poisoned memory for an output and its log-normalizer."""
    return torch.full_like(q, float("nan")), torch.full(q.shape[:2], float("nan"), device=q.device)


def errors(q_THD: torch.Tensor, k_GSD: torch.Tensor, v_GSD: torch.Tensor, got: tuple[torch.Tensor, torch.Tensor]
           ) -> tuple[float, float]:  # fmt: skip
    """Relative error of an output and largest of a log-normalizer, causal, in float64."""
    (t, h, d), (g, s, _) = q_THD.shape, k_GSD.shape
    q = q_THD.double().transpose(0, 1).reshape(g, h // g, t, d)
    hidden = torch.arange(s, device=q.device)[None] > torch.arange(s - t, s, device=q.device)[:, None]
    logits = (q @ k_GSD.double()[:, None].transpose(-1, -2) * d**-0.5).masked_fill(hidden, -torch.inf)
    out = (logits.softmax(-1) @ v_GSD.double()[:, None]).reshape(h, t, d).transpose(0, 1)
    lse = logits.logsumexp(-1).reshape(h, t).T
    return float((got[0].double() - out).norm() / out.norm()), float((got[1].double() - lse).abs().max())


class Batch:
    """Sequences of LENGTHS that ask their last QUERIES, stored by every recipe."""

    def __init__(self, heads: Heads, names: tuple[str, ...], shrink: int) -> None:
        self.lengths, self.queries = ([max(1, x // shrink) for x in each] for each in (LENGTHS, QUERIES))
        slots = (sum(self.lengths) + 2 * max(self.lengths) * len(self.lengths)) // heads.page_tokens * heads.page_tokens
        self.heads, self.pool = heads, Pool(heads, names, slots + 32 * heads.page_tokens, host_of(DEVICE), DEVICE)
        self.calls = Calls(self.pool, self.lengths)
        self.table = self.calls.tables[0]
        size, kind = (sum(self.queries),), self.calls.q.dtype
        counts = (heads.query_heads, heads.kv_heads, heads.kv_heads)
        self.q, self.k, self.v = (torch.randn(*size, n, heads.head_dim, device=DEVICE).to(kind) for n in counts)
        self.requests = [Request(queries=n, context=c, prompt=c if n in (c, 100, 3) else c - 1, reused=0)
                         for n, c in zip(self.queries, self.lengths, strict=True)]  # fmt: skip

    def firsts(self) -> list[int]:
        """Where each request's queries begin."""
        return [sum(self.queries[:at]) for at in range(len(self.queries))]

    def worst(self, layer: PagedLayer, got: tuple[torch.Tensor, torch.Tensor], rows: list[int]) -> tuple[float, float]:
        """Largest errors of these requests against float64 on what their pages hold."""
        found = []
        for at in rows:
            part = slice(self.firsts()[at], self.firsts()[at] + self.queries[at])
            k, v = layer.gather(self.table[at : at + 1], self.calls.lengths[at : at + 1], torch.float64)
            found.append(errors(self.q[part], k[0], v[0], (got[0][part], got[1][part])))
        return max(e for e, _ in found), max(lse for _, lse in found)


def checked_prefill(batch: Batch, name: str, workspace: int) -> Results:
    """The gather alone: every request read back from its pages, twice."""
    layer, shape = batch.pool.layers[name], batch.heads.shape(name)
    made = Gathered(shape, batch.pool.host, DEVICE, workspace)
    asked = [Asked(row=at, first=first, queries=batch.queries[at], context=batch.lengths[at])
             for at, first in enumerate(batch.firsts())]  # fmt: skip
    plan, runs = made.plan(asked), []
    for _ in range(2):
        made.k_SGD.fill_(float("nan"))
        made.v_SGD.fill_(float("nan"))
        runs.append(fresh(batch.q))
        made(plan, batch.q, layer, batch.table, *runs[-1])
    error, lse = batch.worst(layer, runs[0], list(range(len(batch.lengths))))
    return row_of(batch.heads, "gather", name, error, lse, same(*runs), fills=len(plan))


def checked_mixed(batch: Batch, name: str) -> Results:
    """All routes in one batch, and each request alone: the same bits."""
    layer, host = batch.pool.layers[name], batch.pool.host
    limits = Limits(fresh_tokens=8192, gather_pages=4096, workspace_tokens=max(batch.lengths))
    mixed = Mixed(batch.heads.shape(name), host, DEVICE, len(batch.lengths), max(batch.lengths), limits)
    step, (out, lse) = mixed.step(batch.requests, batch.table), fresh(batch.q)
    mixed(step, batch.q, batch.k, batch.v, layer, out, lse)
    alike = True
    for at, request in enumerate(batch.requests):
        part = slice(batch.firsts()[at], batch.firsts()[at] + batch.queries[at])
        one = mixed.step([request], batch.table[at : at + 1])
        alike &= same(mixed(one, batch.q[part], batch.k[part], batch.v[part], layer), (out[part], lse[part]))
    paged = [at for at, decision in enumerate(step.decisions) if decision.route != "fresh"]
    found = [batch.worst(layer, (out, lse), paged)]
    for at in set(range(len(batch.lengths))) - set(paged):
        part = slice(batch.firsts()[at], batch.firsts()[at] + batch.queries[at])
        k, v = batch.k[part].transpose(0, 1), batch.v[part].transpose(0, 1)
        found.append(errors(batch.q[part], k, v, (out[part], lse[part])))
    return row_of(batch.heads, "mixed", name, max(e for e, _ in found), max(x for _, x in found), alike,
                  routes=counted(step.decisions))  # fmt: skip


def checked_shared(batch: Batch, own: str, prefix: str, positions: int) -> Results:
    """A prefix in one softmax with each sequence's own tokens, one of them with none; twice, and three faults."""
    pool, heads, b = batch.pool, batch.heads, len(batch.lengths)
    pages = pool.order[-(positions // heads.page_tokens) :]
    cartridge, layer = Cartridge(pool.layers[prefix], pages.tolist(), positions), pool.layers[own]
    lengths = batch.calls.lengths.clone()
    lengths[1] = 0
    q = torch.randn(b, heads.query_heads, heads.head_dim, device=DEVICE).to(batch.q.dtype)
    made = Shared(heads.shape(own), heads.shape(prefix), pool.host, DEVICE, b, max(batch.lengths), positions)
    runs = []
    for _ in range(2):
        made.own.part.fill_(float("nan"))
        made.own.part_lse.fill_(float("nan"))
        runs.append(made(q, cartridge, layer, batch.table, lengths, *fresh(q)))
    before = cartridge.layer.gather(pages[None], torch.tensor([positions], device=DEVICE), torch.float64)
    after = layer.gather(batch.table, lengths, torch.float64)

    def worst(got: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
        found = []
        for at, length in enumerate(lengths.tolist()):
            k, v = (torch.cat([x[0], y[at, :, :length]], 1) for x, y in zip(before, after, strict=True))
            found.append(errors(q[at : at + 1], k, v, (got[0][at : at + 1], got[1][at : at + 1])))
        return max(e for e, _ in found), max(x for _, x in found)

    swapped, left_out = fresh(q), fresh(q)
    parts = made.own.part_lse.view(b, -1, made.own.parts)
    kept = parts.clone()
    parts.copy_(kept.flip(2))
    made.own.merge(*swapped)
    parts.copy_(kept)
    parts[:, :, made.own.cut.splits :] = -torch.inf
    made.own.merge(*left_out)
    moved = made(q, Cartridge(cartridge.layer, [*pages.tolist()[1:], int(batch.table[0, 0])], positions), layer,
                 batch.table, lengths, *fresh(q))  # fmt: skip
    limit = WORST[heads.sixteen]
    caught = all(not (worst(each)[0] < limit and worst(each)[1] < WORST_LSE) for each in (swapped, left_out, moved))
    return row_of(heads, "shared", f"{own} + {prefix}", *worst(runs[0]), same(*runs) and caught, parts=made.own.parts)


def row_of(heads: Heads, what: str, name: str, error: float, lse: float, fine: bool, **more: Any) -> Results:
    """One case; NaN is wrong."""
    right = fine and error < WORST[heads.sixteen] and lse < WORST_LSE
    return {"what": what, "recipe": name, "query_heads": heads.query_heads, "kv_heads": heads.kv_heads,
            "head_dim": heads.head_dim, "page": heads.page_tokens, "sixteen": heads.sixteen, "error": error, "lse": lse,
            "same_bits_and_faults_caught": fine, "wrong": not right, **more}  # fmt: skip


def cases(job: tuple[Heads, tuple[str, ...], int]) -> list[Results]:
    """The cases of one recipe, or of one pair of a prefix and own pages; lengths are divided by the last number."""
    heads, names, shrink = job
    torch.manual_seed(1)
    with torch.no_grad():
        batch = Batch(heads, tuple(dict.fromkeys(("native", *names))), shrink)
        if len(names) == 2:
            return [checked_shared(batch, *names, 1024 // shrink)]
        most = sum(batch.lengths)
        gathered = [checked_prefill(batch, *names, space) for space in (most, most // 8)]
        return [*gathered, checked_mixed(batch, *names)]


def main() -> int:
    """All cases and the verdict."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--small", action="store_true")
    asked.add_argument("--workers", type=int, default=0, help="processes: most of the time is compilation")
    asked.add_argument("--out", type=Path, default=Path("kernel-prefill-check.json"))
    args, began = asked.parse_args(), time.monotonic()
    geometries, shrink = ((SMALL,), 16) if args.small else ((QWEN3_8B, *OTHERS), 1)
    recipes = ("native", "k16v8-d", "k4v4-d") if args.small else RECIPES
    jobs = [(heads, names, shrink) for heads in geometries for names in (*((name,) for name in recipes), *PAIRS)]
    if args.workers:
        with multiprocessing.get_context("spawn").Pool(args.workers) as workers:
            rows = [row for found in workers.imap(cases, jobs) for row in found]
    else:
        rows = [row for job in jobs for row in cases(job)]
    wrong = [row for row in rows if row["wrong"]]
    worst = {one: max((row["error"] for row in rows if row["sixteen"] == one), default=0.0) for one in WORST}
    versions = {"device": host_of(DEVICE).name, "torch": torch.__version__, "triton": triton.__version__}
    args.out.write_text(json.dumps({**versions, "cases": rows}))
    print(f"{time.monotonic() - began:.1f} s: {len(rows)} cases, largest errors {worst}, of a log-normalizer "
          f"{max(row['lse'] for row in rows):.1e}; {len(wrong)} wrong {wrong[:3]}")  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
