"""Seconds and bytes of ``greenadapt report`` for a made-up adapted model with many added words.

    python benchmarks/report.py [--words 300000] [--dim 768] [--work FOLDER] [--times 3]

Writes results as the stages would have: a corpus with twice as many words, vectors' counts, held-out figures, and a
model with the tokenizer of MiniLM and random rows (1 GB in ``--work``). Then the command runs ``--times`` times in a
process of its own. ``seconds`` is the wall time of the whole command with the start of Python, ``CPU seconds`` what it
and its threads computed; the fastest run counts.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

SEED = 1


def words_of(n: int, known_words: set[str]) -> list[str]:
    """``n`` different words of 5 to 14 letters."""
    draw, words = random.Random(SEED), dict[str, None]()
    while len(words) < n:
        word = "".join(draw.choices("etaoinshrdlucmfwypvbgkq", k=draw.randint(5, 14)))
        if word not in known_words:
            words[word] = None
    return list(words)


def write_results(work: Path, n_words: int, dim: int) -> Path:
    """The folders of all stages; returns that of the adapted model."""
    import numpy as np

    from greenadapt.checkpoints.source import find_model
    from greenadapt.corpus.prepared import write_vocabulary
    from greenadapt.storage.arrays import Streamed, write_arrays
    from greenadapt.storage.files import write_json
    from greenadapt.tokenization.added_words import AddedWords, new_entries
    from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer

    base = find_model("minilm").folder
    vocabulary = BaseVocabulary(load_tokenizer(base))
    whole = list(vocabulary.whole_words)
    words = [*whole, *words_of(2 * n_words, set(whole))]
    counts = (5e7 / np.arange(1, len(words) + 1)).astype(np.int64) + 1
    folders = {stage: work / stage for stage in ("corpus", "w2v", "align", "expand")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    n_trained = len(whole) + n_words
    write_vocabulary(folders["corpus"] / "vocabulary.tsv", words, counts)
    write_vocabulary(folders["w2v"] / "vocabulary.tsv", words[:n_trained], counts[:n_trained])
    added = folders["expand"]
    shutil.copytree(base, added / "base_tokenizer", ignore=shutil.ignore_patterns("*.safetensors", "1_*"))
    entries = new_entries(words[len(whole) : n_trained], vocabulary)
    AddedWords.build(entries, vocabulary, vocabulary.size, "base").write(added / "words.safetensors")
    draw, block = np.random.default_rng(SEED), 10_000
    n_rows = vocabulary.size + len(entries)
    sizes = [min(block, n_rows - begin) for begin in range(0, n_rows, block)]
    rows = (draw.standard_normal((size, dim), np.float32) for size in sizes)
    name = "embeddings.word_embeddings.weight"
    write_arrays(added / "model.safetensors", {name: Streamed((n_rows, dim), np.dtype(np.float32), rows)})
    config = {"model_type": "bert", "vocab_size": n_rows, "hidden_size": dim, "num_hidden_layers": 0}
    write_json(added / "config.json", config)
    write_manifests(folders, {"words": n_words, "tokens": int(counts.sum()), "overlap": len(whole)})
    return added


def write_manifests(folders: dict[str, Path], counts: dict[str, int]) -> None:
    """Write the manifests of the stages, each with the one before as its input."""
    from greenadapt.cost import estimate
    from greenadapt.storage.files import write_json
    from greenadapt.storage.results import Manifest

    retrieval = {"precision_at_1": 0.1, "precision_at_5": 0.2, "precision_at_10": 0.3, "mrr": 0.2, "n_candidates": 1}
    bands = [{"min_count": least, "n_words": 100, "precision_at_10": 0.3} for least in (1, 20, 100, 500)]
    kinds = {"base_rows": {"cosine": retrieval, "csls": retrieval}, "by_count": bands}
    figures = {"n_fitted": 1000, "n_heldout": 100, "r2": 0.1, "cosine": 0.4, **kinds}
    facts: dict[str, Any] = {"corpus": "made-up", "title": "made-up", "licence": "none"}
    facts |= {"model": {"name": "minilm", "source": "minilm"}}
    facts |= {"heldout": {"figures": figures, "note": ""}, "rows": {"recipe": "form", "heldout": {"form": figures}}}
    inputs: dict[str, dict[str, Any]] = {}
    for (stage, folder), input_name in zip(folders.items(), ("corpus", "vectors", "alignment", ""), strict=True):
        cost = estimate(60.0, 60.0, 1 << 30).as_dict()
        manifest = Manifest(stage, {"method": "lstsq"}, inputs, {}, counts, cost, facts)
        write_json(folder / "manifest.json", asdict(manifest))
        inputs = {input_name: {"sha256": manifest.digest, "path": str(folder)}}


def main() -> None:
    """Make the results, run the command, and print time and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=300_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.work is not None:
        arguments.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        added = write_results(Path(folder), arguments.words, arguments.dim)
        command = [sys.executable, "-m", "greenadapt", "report", added, "--out", Path(folder) / "page.html", "--json"]
        runs = []
        for _ in range(arguments.times):
            before, began = os.times(), time.perf_counter()
            process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            after = os.times()
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            runs.append((time.perf_counter() - began, cpu))
        wall, cpu = (min(values) for values in zip(*runs, strict=True))
        n_bytes = json.loads(process.stdout)["bytes"]
        print("| added words | dims | seconds | CPU seconds | page (MB) |\n|---|---|---|---|---|")
        print(f"| {arguments.words:,} | {arguments.dim} | {wall:.2f} | {cpu:.2f} | {n_bytes / 1e6:.2f} |")


if __name__ == "__main__":
    main()
