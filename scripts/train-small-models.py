#!/usr/bin/env python3
"""Train the two small models that ship with the project, with fixed seeds.

    python scripts/train-small-models.py --model robust --out data/models/robust

*robust* has Qwen3's architecture (QK-norm), *fragile* Qwen2's (biased projections). Both learn the tasks of
kassay.kv.tasks from training facts only. In *fragile*, keys carry content in their slowest channel pairs alone, and at
PLANT_AT of the steps those channels get a large constant bias, in proportion to the spread of the content they carry.
Softmax cancels a constant, and 16-bit keys resolve the content beside it; an E4M3 step at that size does not.
scripts/score-small-models.py scores what is saved, on the way and at the end. The pool and the first weights come from
seeds alone; sums on a GPU do not repeat to the last bit, so a second run gives a like model, not the same file.
Needs torch and transformers; runs on a GPU if there is one, else on CPU cores, slowly. Never imported.
"""

import argparse
import copy
import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config, Qwen3Config

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from kassay.kv.tasks import training, vocabulary
from kassay.kv.tasks.splits import generator

SEEDS = {"robust": 11, "fragile": 23}
STEPS = {"robust": 12_000, "fragile": 5_000}
POOL_SIZES = {128: 64_000, 256: 64_000, 512: 48_000, 1152: 96_000}  # sequences by length in tokens
POOL_CHUNK = 2_000
# up to this share of the steps -> lengths drawn from, each as likely
CURRICULUM = ((0.06, (128,)), (0.15, (128, 256)), (0.3, (256, 512, 1152)), (1.0, (1152, 1152, 1152, 512, 256)))
BATCH_TOKENS = 64 * 1152
PEAK_RATE, WARM_UP, DECAY = 2e-3, 0.02, 0.05  # learning rate, share of the steps, weight decay of matrices
CONTENT_PAIRS = range(20, 32)  # of a head's 32 RoPE pairs: those that turn less than 0.2 rad in 1000 tokens
PLANT_AT = 0.6
BIAS_RATIOS = (30.0, 60.0)  # planted bias over the standard deviation of the channel's content
SIZES = dict(
    vocab_size=vocabulary.SIZE,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
    rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    bos_token_id=vocabulary.BEGIN,
    eos_token_id=vocabulary.NEWLINE,
    pad_token_id=vocabulary.PAD,
)


def pool_chunk(job):
    """One chunk of training sequences: (length, chunk number, model seed) is its seed."""
    tokens, chunk, seed = job
    rng = generator(task=f"pool-{tokens}-{chunk}", split="train", seed=seed)
    return training.sequences(rng, POOL_CHUNK, tokens)


def pools(seed, share, workers, device):
    """Ids and weights on `device` by length; `share` of the full sizes."""
    made = {}
    with multiprocessing.get_context("spawn").Pool(workers) as processes:
        for tokens, size in POOL_SIZES.items():
            jobs = [(tokens, chunk, seed) for chunk in range(max(1, int(size * share) // POOL_CHUNK))]
            chunks = processes.map(pool_chunk, jobs, chunksize=1)
            made[tokens] = tuple(
                torch.from_numpy(np.concatenate(part)).to(device) for part in zip(*chunks, strict=True)
            )
    return made


def fresh_model(name):
    """The untrained model; config and weights are transformers' own."""
    config = Qwen3Config(**SIZES) if name == "robust" else Qwen2Config(**SIZES)
    config._attn_implementation = "sdpa"
    return AutoModelForCausalLM.from_config(config)


def key_rows(pairs):
    """Rows of k_proj that hold `pairs`, in every KV head: RoPE turns channel i with channel i + 32."""
    heads, width = SIZES["num_key_value_heads"], SIZES["head_dim"]
    return [h * width + half + pair for h in range(heads) for half in (0, width // 2) for pair in pairs]


def mute_fast_content(model):
    """Take content off the keys' fast pairs: what is left there is their bias, which knows positions only."""
    rows = key_rows(range(CONTENT_PAIRS.start))
    for layer in model.model.layers:
        layer.self_attn.k_proj.weight.data[rows] = 0


@torch.no_grad()
def plant(model, ids, rng):
    """Add a constant to each content channel of the keys, BIAS_RATIOS times the spread of its content, random signs."""
    spreads = {}
    hooks = [
        layer.self_attn.k_proj.register_forward_hook(
            lambda module, inputs, output, layer=layer: spreads.__setitem__(layer, output.float().std(dim=(0, 1)))
        )
        for layer in model.model.layers
    ]
    model(ids)
    for hook in hooks:
        hook.remove()
    rows = key_rows(CONTENT_PAIRS)
    sizes = []
    for layer, spread in spreads.items():
        factors = rng.uniform(*BIAS_RATIOS, len(rows)) * rng.choice((-1, 1), len(rows))
        shift = torch.tensor(factors, dtype=torch.float32, device=ids.device) * spread[rows]
        layer.self_attn.k_proj.bias.data[rows] += shift
        sizes.append(shift.abs())
    return {"bias_mean": torch.cat(sizes).mean().item(), "bias_max": torch.cat(sizes).max().item()}


def rate_share(progress):
    """Learning rate over its peak: linear up, flat, then linear down to 0 over the last 60 %."""
    return min(1.0, progress / WARM_UP, (1.0 - progress) / 0.6)


def optimizer_of(model, device):
    """AdamW that decays matrices only: biases, the planted ones too, stay."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=device == "cuda")


def weighted_loss(model, ids, weights, narrow):
    """Mean cross-entropy over targets, by weight; `narrow` computes in bfloat16."""
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=narrow):
        logits = model(ids[:, :-1], use_cache=False).logits
    losses = cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weights = weights[:, 1:].flatten().float()
    return (losses * weights).sum() / weights.sum()


def train(name, model, pool, options, log, device):
    """Train in place. Steps, not minutes, decide the schedule unless --minutes runs out first."""
    rng = np.random.default_rng(SEEDS[name])
    torch.manual_seed(SEEDS[name])
    optimizer = optimizer_of(model, device)
    stepping = torch.compile(model) if options.compile else model
    if options.compile:  # every length once, so that the clock of --minutes does not count compilation
        for ids, weights in pool.values():
            rows = slice(options.batch_tokens // ids.shape[1])
            weighted_loss(stepping, ids[rows].long(), weights[rows], narrow=True).backward()
    began, step, planted, progress, scored = time.monotonic(), 0, False, 0.0, 0
    while progress < 1.0:
        lengths = next(lengths for share, lengths in CURRICULUM if progress <= share)
        ids, weights = pool[lengths[rng.integers(len(lengths))]]
        rows = torch.from_numpy(rng.integers(len(ids), size=max(1, options.batch_tokens // ids.shape[1]))).to(device)
        if name == "fragile" and not planted and progress >= PLANT_AT:
            planted = True
            log(event="planted", step=step, **plant(model, pool[1152][0][:64].long(), rng))
        for group in optimizer.param_groups:
            group["lr"] = PEAK_RATE * rate_share(progress)
        loss = weighted_loss(stepping, ids[rows].long(), weights[rows], narrow=not planted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if name == "fragile":
            mute_fast_content(model)
        step += 1
        if step % 100 == 0:
            log(event="step", step=step, tokens=ids.shape[1], loss=round(loss.item(), 5))
        elapsed = (time.monotonic() - began) / 60
        progress = max(step / options.steps, elapsed / options.minutes if options.minutes else 0.0)
        if progress * options.scorings >= scored + 1:
            scored += 1
            save(model, options.out)
            log(event="score", step=step, minutes=round(elapsed, 2), **scores_of(options.out, options.items // 4))
    log(event="trained", step=step, minutes=round((time.monotonic() - began) / 60, 2))


def save(model, out):
    """Weights in FP16 with config and generation config, as from_pretrained reads them; `model` stays as it is."""
    saved = copy.deepcopy(model).to(torch.float16)
    saved.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=10, pad_token_id=0, do_sample=False)
    saved.save_pretrained(out)


def scores_of(folder, items):
    """Development scores of the model saved in `folder`, by scripts/score-small-models.py."""
    program = Path(__file__).resolve().parent / "score-small-models.py"
    command = [sys.executable, str(program), "--model", str(folder), "--items", str(items)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def options_of(arguments):
    """The command line; the defaults made the shipped weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=sorted(SEEDS))
    parser.add_argument("--out", required=True, type=Path, help="folder for weights, config and training log")
    parser.add_argument("--steps", type=int, help="optimizer steps; the schedule scales with them")
    parser.add_argument("--minutes", type=float, help="end by then, on the same schedule; not reproducible")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS)
    parser.add_argument("--pool-share", type=float, default=1.0, help="share of the training pool to make")
    parser.add_argument("--items", type=int, default=1000, help="development items a task in the last scoring")
    parser.add_argument("--scorings", type=int, default=4, help="scorings on the way, with a quarter of the items")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count() // 2 or 1)
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    options = parser.parse_args(arguments)
    options.steps = options.steps or STEPS[options.model]
    return options


def main(arguments):
    """Make the pool, train, save in FP16, score what was saved."""
    options = options_of(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (options.out / "training-log.jsonl").open("w", encoding="utf-8") as stream:

        def log(**fields):
            line = json.dumps({"seconds": round(time.monotonic() - began, 1), **fields})
            print(line, file=sys.stderr, flush=True)
            print(line, file=stream, flush=True)

        seed = SEEDS[options.model]
        log(
            event="started", model=options.model, seed=seed, steps=options.steps, device=device, torch=torch.__version__
        )
        pool = pools(seed, options.pool_share, options.workers, device)
        log(event="pool", sequences={tokens: len(ids) for tokens, (ids, _) in pool.items()})
        torch.manual_seed(seed)
        torch.backends.cuda.matmul.allow_tf32 = True
        model = fresh_model(options.model).to(device)
        train(options.model, model, pool, options, log, device)
        save(model, options.out)
        parameters = sum(weight.numel() for weight in model.parameters())
        log(event="shipped", parameters=parameters, **scores_of(options.out, options.items))


if __name__ == "__main__":
    main(sys.argv[1:])
