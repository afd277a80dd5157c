"""Choose margins and sizes before the first confirmation run: the gates' power at the rates that development showed.

    make SET="study.split=development"
    python scripts/power.py results/latest

Reads the quality stages' records of a *development* run (it refuses another split) and prints, for every recipe, the
development gross losses with their one-sided 95 % upper bound, and the power of the planned gate at the observed
rate and at that bound; for the prediction loss, the bootstrap upper bound at the planned number of documents. Never
imported.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from kassay.kinds.quality import Answer, DocumentLoss
from kassay.record import read_kind
from kassay.stats.bootstrap import relative_mean_bounds
from kassay.stats.exact import binomial_upper, gate_power, largest_losses
from kassay.study import control_of

ALPHA = 0.05
MARGINS = (0.01, 0.02, 0.03)
SIZES = (200, 400)
DRAWS = 20_000


def main(run_dir: Path) -> None:
    """The two tables as Markdown."""
    study = json.loads((run_dir / "plan.json").read_bytes())["config"]["study"]
    control = control_of(study)
    if study["split"] != "development":
        sys.exit(f"error: {run_dir} is a run on `{study['split']}`; margins are chosen on development data only")
    print(
        "| model | recipe | task | lost / n | upper 95 % |",
        *(f" power n={n} m={m:.1%} |" for n in SIZES for m in MARGINS),
    )
    print("|---" * (5 + len(SIZES) * len(MARGINS)) + "|")
    for path in sorted((run_dir / "stages").glob("quality.*/records.jsonl")):
        model = path.parent.name.partition(".")[2]
        answers = read_kind(path, Answer)
        for recipe in [name for name in study["arms"] if name != control]:
            for task in ("retrieval", "arithmetic"):
                print(loss_row(model, recipe, task, answers, control))
    print("\n| model | recipe | relative mean nll | upper 95 % |\n|---|---|---|---|")
    for path in sorted((run_dir / "stages").glob("quality.*/records.jsonl")):
        model = path.parent.name.partition(".")[2]
        losses = read_kind(path, DocumentLoss)
        for recipe in [name for name in study["arms"] if name != control]:
            print(nll_row(model, recipe, losses, control))


def loss_row(model: str, recipe: str, task: str, answers: list[Answer], control: str) -> str:
    """One recipe on one task: development losses and the power of gates at the observed rate / at its upper bound."""
    right = {(record.recipe, record.item_id): record.outcome == "correct" for record in answers if record.task == task}
    items = [item for name, item in right if name == control]
    lost = sum(right[control, item] and not right[recipe, item] for item in items)
    upper = binomial_upper(lost, len(items), alpha=ALPHA).bound
    cells = []
    for n in SIZES:
        for margin in MARGINS:
            if largest_losses(n, margin=margin, alpha=ALPHA) is None:
                cells.append("none")
                continue
            rates = (max(lost / len(items), 1e-6), min(upper, 1 - 1e-6))
            powers = [gate_power(n, margin=margin, alpha=ALPHA, true_rate=rate).power for rate in rates]
            cells.append(" / ".join(f"{power:.3f}" for power in powers))
    return f"| {model} | {recipe} | {task} | {lost} / {len(items)} | {upper:.4f} | " + " | ".join(cells) + " |"


def nll_row(model: str, recipe: str, losses: list[DocumentLoss], control: str) -> str:
    """One recipe's relative change of the mean loss with its bootstrap upper bound."""
    mean = {(record.recipe, record.item_id): sum(record.loss_nats) / len(record.loss_nats) for record in losses}
    items = sorted(item for name, item in mean if name == control)
    arms = [np.array([mean[name, item] for item in items]) for name in (control, recipe)]
    found = relative_mean_bounds(*arms, alpha=ALPHA, draws=DRAWS, rng=np.random.default_rng(1))
    return f"| {model} | {recipe} | {found.estimate:+.4%} | {found.upper:+.4%} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
