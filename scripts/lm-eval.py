"""Run tasks of lm-evaluation-harness on a checkpoint under one recipe; the scores are descriptive and decide nothing.

    python scripts/lm-eval.py FOLDER RECIPE OUT TASK[,TASK…] [--compute bf16] [--scales FILE] [--limit N]

OUT is a JSONL file of records, appended to. A recipe with fixed scales needs the scales.json of a calibrate stage of
the same checkpoint. The harness and its data must be there (`pip install 'kassay[lm-eval]'`). Never imported.
"""

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from kassay import digest
from kassay.backend import checkpoint, harness
from kassay.errors import KassayError
from kassay.kv import calibrate
from kassay.kv.recipe import recipe_named
from kassay.record import Writer
from kassay.stage import Unmet


def main(asked: argparse.Namespace) -> None:
    """Load, evaluate, record, print."""
    sixteen = asked.compute if asked.compute != "fp32" else "fp16"
    recipe, sha256 = recipe_named(asked.recipe, sixteen), digest.of_path(asked.folder)
    scales = None
    if recipe.policy == "fixed":
        if asked.scales is None:
            raise KassayError(f"recipe `{recipe.name}` has fixed scales", hint="--scales <scales.json of calibrate>")
        scales = calibrate.own_scales(json.loads(asked.scales.read_bytes()), model_sha256=sha256, sixteen=sixteen)
    device = checkpoint.device_of(int(torch.cuda.is_available()), asked.compute)
    loaded = checkpoint.given(asked.folder, os.cpu_count() or 1, device, asked.compute)
    model = harness.RecipeModel(checkpoint=loaded, tokens=loaded.text, recipe=recipe, scales=scales, sixteen=sixteen)
    words = harness.language_model(model)
    import lm_eval

    found = lm_eval.simple_evaluate(model=words, tasks=asked.tasks.split(","), limit=asked.limit, log_samples=False)
    writer = Writer(asked.out)
    for one in harness.scores(
        found,
        model_sha256=sha256,
        recipe=recipe.name,
        scales_sha256=digest.of_file(asked.scales) if scales is not None else None,
        compute_dtype=str(next(iter(loaded.model.parameters())).dtype),
        harness=lm_eval.__version__,
    ):
        writer.append(one)
        print(f"{one.task} {one.metric} {one.value:.6g} ({one.items} items, {one.standing})")
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="tasks of lm-evaluation-harness under one recipe, descriptive")
    parser.add_argument("folder", type=Path)
    parser.add_argument("recipe")
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks")
    parser.add_argument("--compute", choices=list(checkpoint.COMPUTE), default="bf16")
    parser.add_argument("--scales", type=Path)
    parser.add_argument("--limit", type=int)
    try:
        main(parser.parse_args())
    except (KassayError, Unmet) as error:
        sys.exit(f"error: {error}")
