"""The shipped models are the files that their digests name, and their cards and logs stand beside them."""

import hashlib
import json
from pathlib import Path

import pytest

MODELS = Path(__file__).resolve().parents[3] / "data" / "models"
DIGESTS = json.loads((MODELS / "digests.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["robust", "fragile"])
def test_every_file_needed_to_load_has_a_digest(name):
    needed = {f"{name}/{file}" for file in ("config.json", "generation_config.json", "model.safetensors")}
    assert needed == {path for path in DIGESTS if path.startswith(f"{name}/")}


@pytest.mark.parametrize("path", sorted(DIGESTS))
def test_digests_are_those_of_the_files(path):
    assert hashlib.sha256((MODELS / path).read_bytes()).hexdigest() == DIGESTS[path]


@pytest.mark.parametrize("name", ["robust", "fragile"])
def test_card_states_the_steps_and_the_last_score_of_the_log(name):
    card = (MODELS / name / "README.md").read_text(encoding="utf-8")
    log = [json.loads(line) for line in (MODELS / name / "training-log.jsonl").read_text(encoding="utf-8").splitlines()]
    last = log[-1]
    assert last["event"] == "shipped"
    assert f"{log[0]['steps']} steps, seed {log[0]['seed']}" in card
    for recipe, row in last.items():
        if isinstance(row, dict):
            cells = [
                f"{row[f'{task}_{what}']:.4g}"
                for task in ("retrieval", "arithmetic")
                for what in ("accuracy", "gross_loss")
            ]
            assert f"| {recipe} | {' | '.join(cells)} | {row['loss_nats']:.5f} | {row['loss_change']:+.3%} |" in card
