"""Expanding a model beside transformers, and fitting the map beside numpy: seconds and peak memory.

    python benchmarks/expand.py [--model minilm] [--words 300000] [--pairs 30000] [--dim 768]

Each case runs in a process of its own. The time of expanding includes the imports, that of fitting does not. The plain
way to expand is ``add_tokens``, ``resize_token_embeddings``, writing the new rows into the weight, and
``save_pretrained``. Words and vectors are made up; both ways get the same, and their embeddings are compared at the
end. Run it on an idle machine: threads of linear algebra wait for each other, and take many times as long where another
program wants their processors.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SEED = 1


def make_input(arguments: argparse.Namespace) -> None:
    """Write made-up words with random vectors, and the map of a least-squares fit."""
    import numpy as np

    from greenadapt.checkpoints.reader import Checkpoint
    from greenadapt.checkpoints.source import find_model
    from greenadapt.config import AlignConfig
    from greenadapt.vectors.alignment import fit
    from greenadapt.vectors.word_vectors import WordVectors

    draw = np.random.default_rng(SEED)
    embedding = Checkpoint(find_model(arguments.model).folder).embedding()
    dim = embedding.shape[1]
    words = [f"zq{i:x}w" for i in range(arguments.words)]
    matrix = draw.standard_normal((len(words), dim), np.float32)
    WordVectors(words, np.arange(len(words), 0, -1), matrix).save(arguments.work)
    n_pairs = min(10_000, len(embedding))
    source = draw.standard_normal((n_pairs, dim), np.float32)
    fit(source, np.asarray(embedding[:n_pairs], np.float32), AlignConfig()).save(arguments.work)
    for name in ("source", "target"):
        np.save(arguments.work / f"{name}.npy", draw.standard_normal((arguments.pairs, arguments.dim), np.float32))


def expand_ours(arguments: argparse.Namespace) -> float:
    """The expand stage: weights, configuration, both tokenizers and the table of added words."""
    begin = time.perf_counter()
    from greenadapt.checkpoints.source import find_model
    from greenadapt.config import ExpandConfig
    from greenadapt.stages.expand import write_adapted
    from greenadapt.stages.session import OpenedBase
    from greenadapt.vectors.alignment import Alignment
    from greenadapt.vectors.rows import Expansion
    from greenadapt.vectors.word_vectors import WordVectors

    vectors, alignment = WordVectors.load(arguments.work), Alignment.load(arguments.work)
    out = arguments.work / "ours"
    out.mkdir()
    base = OpenedBase(find_model(arguments.model))
    write_adapted(Expansion(base.checkpoint, base.vocabulary, vectors, alignment, ExpandConfig(rows="map")), out)
    return time.perf_counter() - begin


def expand_form(arguments: argparse.Namespace) -> float:
    """The expand stage with ``--rows form``, fitted on the model's own words, and its figures on held-out ones."""
    begin = time.perf_counter()
    import numpy as np

    from greenadapt.checkpoints.source import find_model
    from greenadapt.config import ExpandConfig
    from greenadapt.stages.expand import write_adapted
    from greenadapt.stages.session import OpenedBase
    from greenadapt.vectors.alignment import Alignment
    from greenadapt.vectors.rows import Expansion
    from greenadapt.vectors.word_vectors import WordVectors

    base = OpenedBase(find_model(arguments.model))
    new, alignment = WordVectors.load(arguments.work), Alignment.load(arguments.work)
    words = [*base.vocabulary.whole_words]
    own_vectors = np.random.default_rng(SEED).standard_normal((len(words), new.dim), np.float32)
    counts = np.concatenate([new.counts, np.arange(len(words), 0, -1)])
    vectors = WordVectors([*new.words, *words], counts, np.concatenate([new.matrix, own_vectors]))
    out = arguments.work / "form"
    out.mkdir()
    expansion = Expansion(base.checkpoint, base.vocabulary, vectors, alignment, ExpandConfig(rows="form"))
    write_adapted(expansion, out)
    assert expansion.heldout_figures["form"].n_heldout
    return time.perf_counter() - begin


def expand_transformers(arguments: argparse.Namespace) -> float:
    """The same words and rows with the means of transformers."""
    begin = time.perf_counter()
    import torch
    from transformers import AutoModel, AutoTokenizer

    from greenadapt.checkpoints.source import find_model
    from greenadapt.vectors.alignment import Alignment
    from greenadapt.vectors.word_vectors import WordVectors

    folder = find_model(arguments.model).folder
    vectors, alignment = WordVectors.load(arguments.work), Alignment.load(arguments.work)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    tokenizer.add_tokens(list(vectors.words))
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        rows = torch.from_numpy(alignment.apply(vectors.matrix))
        model.get_input_embeddings().weight[-len(rows) :] = rows
    model.save_pretrained(arguments.work / "transformers")
    tokenizer.save_pretrained(arguments.work / "transformers")
    return time.perf_counter() - begin


def compare(arguments: argparse.Namespace) -> None:
    """Raise ``AssertionError`` unless both ways gave the same embedding."""
    import numpy as np

    from greenadapt.checkpoints.reader import Checkpoint

    ours, theirs = (Checkpoint(arguments.work / name).embedding() for name in ("ours", "transformers"))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def fit_ours(arguments: argparse.Namespace) -> float:
    """The map on random pairs."""
    import numpy as np
    from scipy import linalg  # noqa: F401  (imported by the fit, and no part of it)

    from greenadapt.config import AlignConfig
    from greenadapt.vectors.alignment import fit

    source, target = (np.load(arguments.work / f"{name}.npy") for name in ("source", "target"))
    begin = time.perf_counter()
    fit(source, target, AlignConfig())
    return time.perf_counter() - begin


def fit_numpy(arguments: argparse.Namespace) -> float:
    """The same map, as numpy solves it."""
    import numpy as np

    source, target = (np.load(arguments.work / f"{name}.npy") for name in ("source", "target"))
    begin = time.perf_counter()
    np.linalg.lstsq(source.astype(np.float64), target.astype(np.float64), rcond=None)
    return time.perf_counter() - begin


CASES = (make_input, expand_ours, expand_transformers, compare, expand_form, fit_ours, fit_numpy)


@dataclass(frozen=True)
class Cost:
    """Seconds of one case, and the peak resident memory of its process in bytes."""

    seconds: float
    peak: float


def measure(case: str, work: Path) -> Cost:
    """Run one case in a process of its own, which prints its seconds last."""
    command = [sys.executable, __file__, *sys.argv[1:], "--case", case, "--work", str(work)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{case} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(float(output.splitlines()[-1]), usage.ru_maxrss * unit)


def print_pair(label: str, peer: str, theirs: Cost, ours: Cost) -> None:
    """Two lines of the table, the second with its ratio to the first."""
    for name, cost, ratio in ((peer, theirs, ""), ("greenadapt", ours, f"{ours.seconds / theirs.seconds:8.2f}")):
        print(f"{label:46}{name:14}{cost.seconds:10.1f}{cost.peak / 1e6:10.0f}{ratio}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--words", type=int, default=300_000)
    parser.add_argument("--pairs", type=int, default=30_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print({case.__name__: case for case in CASES}[arguments.case](arguments) or 0.0)
        return
    with tempfile.TemporaryDirectory() as folder:
        results = {case.__name__: measure(case.__name__, Path(folder)) for case in CASES}
    print(f"{'':60}{'seconds':>10}{'peak MB':>10}{'ratio':>8}")
    expand, fit = f"expand {arguments.model} by {arguments.words:,}", f"fit {arguments.pairs:,} x {arguments.dim}"
    print_pair(expand, "transformers", results["expand_transformers"], results["expand_ours"])
    print_pair(f"{expand}, --rows form", "transformers", results["expand_transformers"], results["expand_form"])
    print_pair(fit, "numpy", results["fit_numpy"], results["fit_ours"])


if __name__ == "__main__":
    main()
