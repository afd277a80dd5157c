"""The section on fused INT4: claims and verdicts as recorded, a figure from raw rounds, and no number without cells."""

from types import SimpleNamespace
from typing import Any

from kassay.kinds.fusion import FusionCell, FusionClaim, FusionFit, FusionVerdict
from kassay.report.fusion import doublings, fusion_section, short
from kassay.report.fusion_words import fusion_line


def report(*records: Any) -> Any:
    """What the section asks of a report."""
    run = SimpleNamespace(why_absent=lambda program: f"`{program}` is blocked: `grid` was unmet")
    return SimpleNamespace(of=lambda kind: tuple(one for one in records if isinstance(one, kind)), run=run)


def cells(arm: str, us: float) -> list[FusionCell]:
    """Two layouts at three batches, the last of which did not run."""
    return [
        FusionCell(
            query_heads=heads, kv_heads=2, head_dim=128, page_tokens=16, batch=batch, context_tokens=1024, arm=arm,
            splits=1, programs=8, tile="64x4x3", call_bytes=1000, calls=8, error=None,
            failed="" if batch < 4 else "gone", rounds_us=[us * batch, us * batch * 1.01] if batch < 4 else None,
        )
        for heads in (16, 12)
        for batch in (1, 2, 4)
    ]  # fmt: skip


PAIR: Any = {"candidate": "int4 each head", "baseline": "torch repeat"}
VERDICT = FusionVerdict(
    **PAIR, n=4, lowest=0.5, median=2.0, highest=3.93, above_limit=1, covariate="batch x query heads",
    left_out_covariate="batch x query heads", gain_over_batch=228.0, layouts=["16/2", "12/2"], half_batches=[7.0, None],
    half_spread=None, half_spread_query_heads=None, half_spread_kv_heads=None, verdict="closest", reason="rms <14> %",
)  # fmt: skip
FIT = FusionFit(
    **PAIR, covariate="batch x query heads", ceiling_rule="one ceiling", n=4, clusters=2, residual_space="log",
    ceiling=4.4, half=238.0, gamma=1.2, status="converged", linear_ceiling=3.9, linear_half=169.0, ceiling_ends=[4, 5],
    half_ends=[198, 268], gamma_ends=[1, 1.4], draws=20, failed_draws=0, r2=0.98, rms_log_residual=0.14,
    left_out_rms=0.15, aicc=-558.0, reached=0.95, best=True, flags=[],
)  # fmt: skip
CLAIM = FusionClaim(claim="the baseline makes the ceiling", pairs=["one", "two"], agreeing=1, against=0,
                    verdict="unsettled", reason="4.4 over 1.2")  # fmt: skip


def test_claims_verdicts_and_the_cells_behind_them() -> None:
    made = report(*cells("int4 each head", 5.0), *cells("torch repeat", 10.0), FIT, VERDICT, CLAIM)
    page = fusion_section(made)
    assert "int4 each head over torch repeat" in page and "rms &lt;14&gt; %" in page
    assert page.count("<svg") == 1 and "batch x query heads" in page and "unsettled" in page
    assert fusion_line(made) == "Of 1 claim: “the baseline makes the ceiling” unsettled."


def test_nothing_is_drawn_or_said_where_nothing_was_measured() -> None:
    page = fusion_section(report())
    assert "<svg" not in page and "`" not in page and "was unmet" in page
    assert "Not judged" in fusion_line(report())
    assert "<svg" not in fusion_section(report(VERDICT, CLAIM))


def test_ticks_are_powers_of_two_that_can_be_read() -> None:
    assert doublings(12, 5000) == [8.0, 32.0, 128.0, 512.0, 2048.0]
    assert [short(value) for value in (0.5, 128, 2048, 16384, 1 << 20)] == ["0.5", "128", "2048", "16K", "1M"]
