"""The figure of a load: how long its requests took, as shares of all requests, so that failures stay visible."""

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter

from kassay.kinds.serving import OK, ServedRequest
from kassay.report.drawing import RULE, SETTINGS, Drawing, Style, context, drawn, figure
from kassay.report.figures import plain_log_ticks
from kassay.report.words import counted, tick, title

PANEL_PX = (466, 320)
MS_PER_NS = 1e-6


def latency_figure(load: str, requests: Sequence[ServedRequest], style_of: dict[str, Style]) -> Drawing:
    """Cumulative shares of latency and time to first token, an arm a colour; the denominator is all requests."""
    with context(SETTINGS):
        made = figure(*PANEL_PX)
        axes = made.subplots()
        said = []
        for arm, style in style_of.items():
            own = [one for one in requests if one.arm == arm]
            good = [one for one in own if one.status == OK]
            if not own:
                continue
            ends = sorted((one.ended_ns - one.started_ns) * MS_PER_NS for one in good)
            firsts = sorted((one.token_ns[0] - one.started_ns) * MS_PER_NS for one in good)
            name = tick(title(arm))
            curve(axes, ends, len(own), style, "-", f"{name}, {len(own) - len(good)} of {len(own)} bad")
            curve(axes, firsts, len(own), style, (0, (4, 2)), None)
            said.append(f"{title(arm)}: {counted(len(own) - len(good), 'failed or empty request')} of {len(own)}")
        axes.axhline(1.0, color=RULE, linewidth=0.8)
        axes.set_ylim(0, 1.04)
        if any(one.status == OK for one in requests):
            axes.set_xscale("log")
            plain_log_ticks(axes, "x", *axes.get_xlim())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.grid(True, axis="y")
        axes.set_xlabel("milliseconds from the start of a request")
        axes.set_ylabel("share of all requests")
        axes.set_title(f"load {load}")
        axes.legend(loc="upper left", fontsize=10.5, handlelength=2.2, borderaxespad=0.2)
        return drawn(f"latency-{load}", f"Latency of requests, load {load}: {'; '.join(said)}", made)


def curve(axes: Any, values: Sequence[float], total: int, style: Style, line: Any, label: str | None) -> None:
    """A cumulative share; without a value only its name."""
    shares = [(index + 1) / total for index in range(len(values))]
    axes.step(values, shares, where="post", color=style.colour, linewidth=1.4, linestyle=line, label=label)
