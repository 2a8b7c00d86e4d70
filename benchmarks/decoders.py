"""What new rows are worth to a causal language model: its loss on text of the domain, with rows by several recipes.

    python benchmarks/decoders.py software.txt.gz biomedical.txt.gz --work DIR --minutes 15 [--untied]

Trains a small Llama (--layers, --width) with a byte-level BPE on the first text for some minutes, or takes the model in
--base; adds the words of the second text by greenadapt's own commands, and measures on lines of it that nothing has
seen. ``random`` has rows drawn
with the mean and deviation of the model's; ``omp`` is what mergekit-tokensurgeon does (its ``batch_omp``, k = 64): each
new word's vector as a sparse combination of the vectors of words that the model has, and the same combination of their
rows. It is left out if mergekit is not installed.

Tokenizations differ, so losses are in bits per byte of text: −Σ log₂ p(token | tokens before it) / bytes, each line
alone behind ``<s>``. ``others`` counts only the tokens that are not added words, which are the same in both
tokenizations, so it says how well the model reads the new rows; ``words`` the added words, or the pieces that they were
before, so it says how well it predicts them. With ``--tune-lines`` every arm is then trained on that much text of the
domain, and measured again.
"""

import argparse
import gzip
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tables import aligned
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.storage.arrays import Array
from greenadapt.tokenization.dual_tokenizer import DualEncoding, DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.vectors.alignment import overlap
from greenadapt.vectors.word_vectors import WordVectors

SPECIALS = ("<unk>", "<s>", "</s>")
RECIPES = ("map", "norm", "form", "pieces")
CONTEXT = 256
_BATCH = 8
_HELD_OUT = 50  # one of so many lines
_K = 64
Json = dict[str, Any]


def lines_of(path: str) -> Iterator[str]:
    """The lines of a text file, gzip or not, that are not empty."""
    with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file if line.strip())


def make_base(folder: Path, lines: list[str], options: argparse.Namespace) -> Json:
    """Train a model and its tokenizer on ``lines`` for ``--minutes``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=options.size, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(lines[:20_000], trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIALS, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=options.width, intermediate_size=3 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 32, num_key_value_heads=options.width // 32,
        max_position_embeddings=2 * CONTEXT, bos_token_id=1, eos_token_id=2, tie_word_embeddings=not options.untied,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    trained = train(model, packed(tokenizer, lines), rate=options.rate, seconds=60 * options.minutes)
    model.save_pretrained(folder)
    return trained


def packed(tokenizer: Tokenizer, lines: list[str]) -> Array:
    """The ids of the lines end to end, each behind ``<s>``."""
    encodings = tokenizer.encode_batch_fast(lines)
    return np.concatenate([np.array(encoding.ids, np.int32) for encoding in encodings])


def train(model: Any, ids: Array, rate: float, seconds: float = math.inf) -> Json:
    """Train by AdamW on contexts in random order, at a falling rate: once through, or until the time is up."""
    contexts = ids[: len(ids) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
    order = np.random.default_rng(0).permutation(len(contexts))
    n_steps, started, losses = max(1, len(order) // _BATCH), time.monotonic(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
    model.train()
    for step in range(n_steps):
        progress = max(step / n_steps, (time.monotonic() - started) / seconds)
        if progress >= 1:
            break
        optimizer.param_groups[0]["lr"] = rate * min(1 - progress, (step + 1) / 50)
        batch = torch.from_numpy(contexts[order[step * _BATCH : (step + 1) * _BATCH]].astype(np.int64))
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 200 == 0:
            print(f"step {step}, loss {np.mean(losses[-200:]):.3f}", file=sys.stderr, flush=True)
    return {
        "tokens": len(losses) * _BATCH * CONTEXT,
        "loss": float(np.mean(losses[-50:])),
        "seconds": time.monotonic() - started,
    }


def expand(work: Path, text: Path, max_words: int) -> dict[str, Path]:
    """Recipe of rows → the folder of the model with the words of ``text``."""
    base, arms = work / "base", {name: work / name for name in (*RECIPES, "random")}
    common = ("--corpus", text, "--model", base)
    _greenadapt(work, "w2v", *common, "--workers", 1)
    _greenadapt(work, "align", *common)
    for name in RECIPES:
        _greenadapt(work, "expand", *common, "--rows", name, "--max-words", max_words, "--out", arms[name])
    drawn = ("--method", "random", "--random-scale", "matched")
    _greenadapt(work, "align", *common, *drawn, "--variant", "random")
    rows = ("--rows", "map", "--max-words", max_words, "--out", arms["random"])
    _greenadapt(work, "expand", *common, *rows, "--variant", "random")
    vectors = next((work / "workspace").glob("*/*/w2v"))
    if with_omp(base, arms["map"], work / "omp", vectors):
        arms["omp"] = work / "omp"
    return arms


def _greenadapt(work: Path, *arguments: object) -> None:
    command = [sys.executable, "-m", "greenadapt", *map(str, arguments), "--quiet"]
    subprocess.run(command, check=True, env={**os.environ, "GREENADAPT_HOME": str(work / "workspace")})


def with_omp(base: Path, like: Path, folder: Path, vectors_folder: Path) -> bool:
    """Write a copy of ``like`` with mergekit's new rows; return whether mergekit is installed."""
    try:
        from mergekit.tokensurgeon.omp import batch_omp
    except ImportError as error:
        print(f"omp is left out: {error}", file=sys.stderr)
        return False
    shutil.copytree(like, folder)
    vectors, before = WordVectors.load(vectors_folder), Checkpoint.open(base, generative=True)
    _, shared, ids = overlap(vectors, BaseVocabulary(load_tokenizer(base)))
    added = [vectors.index[word] for word in DualTokenizer.load(folder).added.all_surfaces()]
    donor = torch.from_numpy(np.array(vectors.matrix, np.float32))
    weights = load_file(folder / "model.safetensors")
    for begin in range(0, len(added), 512):
        indices, shares = batch_omp(donor[added[begin : begin + 512]], donor[shared], _K)
        for name in {before.embedding_name, before.decoder_name or before.embedding_name}:
            rows = torch.from_numpy(np.asarray(before[name][ids], np.float32))[indices]
            combined = torch.bmm(shares.unsqueeze(1), rows).squeeze(1).numpy()
            weights[name][before.n_rows + begin : before.n_rows + begin + len(combined)] = combined
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return True


def measure(model: Any, lines: list[str], encodings: list[DualEncoding], first_id: int, *, is_base: bool) -> Json:
    """Bits per byte of the lines: of all text, of added words, and of other tokens."""
    bits, sizes = {"all": 0.0, "words": 0.0, "others": 0.0}, {"all": 0, "words": 0, "others": 0}
    model.eval()
    for line, encoding in zip(lines, encodings, strict=True):
        is_new_word = np.zeros(encoding.n_words, bool)
        is_new_word[encoding.expanded.words[encoding.expanded.ids >= first_id]] = True
        view = encoding.base if is_base else encoding.expanded
        with torch.no_grad():
            ids = torch.from_numpy(np.concatenate([[model.config.bos_token_id], view.ids]).astype(np.int64))[None]
            logits = model(ids).logits[0, :-1].float()
        losses = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none").numpy() / math.log(2)
        is_word = is_new_word[view.words]
        spans = encoding.expanded.spans[encoding.expanded.ids >= first_id].tolist()
        of_words = sum(len(line[begin:end].encode()) for begin, end in spans)
        for name, chosen, size in (
            ("all", np.ones(len(losses), bool), len(line.encode())),
            ("words", is_word, of_words),
            ("others", ~is_word, len(line.encode()) - of_words),
        ):
            bits[name] += float(losses[chosen].sum())
            sizes[name] += size
    return {name: bits[name] / max(sizes[name], 1) for name in bits}


def main(arguments: list[str] | None = None) -> None:
    """Print the table; models and results stay in ``--work``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("general", help="text that the model is trained on")
    parser.add_argument("domain", help="text whose words are added")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=15, help="of training")
    parser.add_argument("--general-lines", type=int, default=200_000)
    parser.add_argument("--domain-lines", type=int, default=None)
    parser.add_argument("--base", type=Path, help="folder of a model, which is then not trained")
    parser.add_argument("--untied", action="store_true", help="output rows of their own")
    parser.add_argument("--size", type=int, default=8192, help="pieces")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--max-words", type=int, default=5000)
    parser.add_argument("--measured-lines", type=int, default=1000)
    parser.add_argument("--tune-lines", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    if options.base is not None and not (options.work / "base").exists():
        shutil.copytree(options.base, options.work / "base")
    if not (options.work / "base" / "model.safetensors").is_file():
        lines = list(itertools.islice(lines_of(options.general), options.general_lines))
        shutil.rmtree(options.work / "base", ignore_errors=True)
        print(json.dumps({"base": make_base(options.work / "base", lines, options)}), flush=True)
    domain = list(itertools.islice(lines_of(options.domain), options.domain_lines))
    held_out = [line for line in domain[::_HELD_OUT] if 20 < len(line) < 3 * CONTEXT][: options.measured_lines]
    unseen = set(held_out)
    seen = [line for line in domain if line not in unseen]
    text = options.work / "domain.txt"
    if not text.is_file():
        text.write_text("\n".join(seen), "utf-8")
    arms = {"base": options.work / "base", **expand(options.work, text, options.max_words)}
    report(arms, held_out, seen[: options.tune_lines], options)


def report(arms: dict[str, Path], held_out: list[str], tuned_on: list[str], options: argparse.Namespace) -> None:
    """Measure each arm, and again after training, and print what was measured."""
    dual = DualTokenizer.load(arms["map"])
    encodings = dual.encode_batch(held_out)
    fits = [len(encoding.base.ids) < 2 * CONTEXT for encoding in encodings]
    held_out, encodings = (list(itertools.compress(items, fits)) for items in (held_out, encodings))
    n_added = sum(int((encoding.expanded.ids >= dual.added.first_id).sum()) for encoding in encodings)
    pieces = [sum(len(getattr(encoding, view).ids) for encoding in encodings) for view in ("base", "expanded")]
    size = sum(len(line.encode()) for line in held_out)
    print(json.dumps({"lines": len(held_out), "bytes": size, "pieces": pieces, "added_words": n_added}), flush=True)
    table = []
    for name, folder in arms.items():
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        rows = [measure(model, held_out, encodings, dual.added.first_id, is_base=name == "base")]
        if tuned_on:
            train(model, packed(load_tokenizer(folder), tuned_on), rate=options.rate / 3)
            rows.append(measure(model, held_out, encodings, dual.added.first_id, is_base=name == "base"))
        print(json.dumps({"arm": name, "before": rows[0], "after": rows[1:]}), flush=True)
        table.append([name, *(f"{row[part]:.3f}" for row in rows for part in ("all", "others", "words"))])
    parts = ("all", "others", "words", "all, tuned", "others", "words")[: len(table[0]) - 1]
    print(aligned([["rows", *parts], *table]), end="")


if __name__ == "__main__":
    main()
