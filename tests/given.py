"""A checkpoint that is not ours: a tiny transformer of random weights with a tokenizer trained on the tasks' texts."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from kassay.kv.tasks import arithmetic, document, retrieval
from tests.tiny import SIZES

WORDS = 400  # of the vocabulary
END, BEGIN = "<|end|>", "<|begin|>"


def texts() -> list[str]:
    """Texts of the tasks, from the split that nothing is judged on."""
    asked = {"split": "train", "seed": 1, "count": 20}
    found = [one.context for one in document.documents(**asked, context_tokens=600, targets=0)]
    for make, tokens in ((retrieval.items, 400), (arithmetic.items, 120)):
        found += [f"{item.context}{item.question}\n{item.expected}\n" for item in make(**asked, context_tokens=tokens)]
    return found


def tokenizer(begin: bool) -> PreTrainedTokenizerFast:
    """Byte-level BPE, as Qwen's and Llama 3's are; `begin`: with a token that begins every text."""
    made = Tokenizer(BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts(),
        BpeTrainer(vocab_size=WORDS, special_tokens=[END, BEGIN], initial_alphabet=alphabet, show_progress=False),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, bos_token=BEGIN)
    if begin:
        from tokenizers.processors import TemplateProcessing

        place = [(BEGIN, fast.bos_token_id)]
        fast.backend_tokenizer.post_processor = TemplateProcessing(single=f"{BEGIN} $A", special_tokens=place)
    return fast


def save(directory: Path, *, seed: int = 1, begin: bool = False, words: bool = True, **changes: Any) -> Path:
    """The checkpoint's folder: Qwen2-like, no digests beside it, its tokenizer inside unless `words` is false."""
    torch.manual_seed(seed)
    sizes = {**SIZES, "vocab_size": WORDS, "max_position_embeddings": 1024, "eos_token_id": 0, **changes}
    Qwen2ForCausalLM(Qwen2Config(**sizes)).save_pretrained(directory)
    if words:
        tokenizer(begin).save_pretrained(directory)
    return directory
