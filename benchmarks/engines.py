"""Word vectors by several engines, in turns: words a second, memory, and how good the vectors are.

    python benchmarks/engines.py --corpus biomedical.txt.gz --dims 384 768 --workers 1 2 --references --work DIR
    python benchmarks/engines.py --zipf 1000000 --epochs 1 --dims 768 --engines fast gensim gensim-lists --work DIR
    python benchmarks/engines.py --planted --tokens 3e6 --dims 100 --engines fast gensim word2vec-c --word2vec-c FILE

The engines take turns, in another order each time. ``engine_sides.py`` says what is timed of each, and what the figures
are is said by ``vector_quality.py`` and ``planted.py``. The text is a file, or random (``--zipf``: words drawn by
1 / rank, no quality), or one with known neighbours (``--planted``: another text for each repeat). The first ``--seeds``
of the repeats measure quality, each on vectors of another seed. With ``--references`` that is also how many of a word's
ten nearest words are those of vectors that each of greenadapt's engines trained for 15 epochs.

What is done is kept in ``--work``, run by run: the same command goes on where it was, and in the end only prints the
table.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import word2vec_c
from engine_runs import Runs
from engine_sides import SIDES
from engine_tables import table
from machine import machine_line

from greenadapt.config import W2VConfig
from greenadapt.errors import GreenadaptError
from greenadapt.storage.files import Json, hash_file


def main() -> None:
    """Run the engines in turns and print a table."""
    options = _options()
    with _work(options.work) as work:
        program = word2vec_c.built(options.word2vec_c, work) if options.word2vec_c else None
        runs = Runs(work, program)
        results = [(request, runs.result(request)) for request in _requests(options)]
    print(table(results))
    print(f"\n{machine_line(['numpy', 'gensim', *(['numba'] if 'fast' in options.engines else [])])}")


@contextmanager
def _work(folder: Path | None) -> Iterator[Path]:
    if folder is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    folder.mkdir(parents=True, exist_ok=True)
    yield folder.resolve()


def _requests(options: argparse.Namespace) -> list[Json]:
    """The requests of all runs, in their order."""
    requests: list[Json] = []
    n = len(options.engines)
    for dim, workers, repeat in product(options.dims, options.workers, range(options.repeats)):
        is_measured = options.zipf is None and repeat < options.seeds
        common = {
            "text": _text(options, repeat),
            "dim": dim,
            "workers": workers,
            "epochs": options.epochs,
            "alpha": options.alpha,
            "seed": repeat + 1,
            "min_count": W2VConfig.min_count if options.zipf is None else 1,
            "measures": ["quality", *(["neighbours"] if options.references else [])] if is_measured else [],
        }
        for side in options.engines[repeat % n :] + options.engines[: repeat % n]:
            program = {"program": hash_file(options.word2vec_c)} if side == "word2vec-c" else {}
            requests.append({"side": side, **program, **common})
    return requests


def _text(options: argparse.Namespace, repeat: int) -> Json:
    if options.corpus:
        size = options.corpus.stat().st_size
        return {"corpus": str(options.corpus.resolve()), "bytes": size, "model": options.model}
    kind = {"planted": repeat + 1} if options.planted else {"zipf": options.zipf}
    return {**kind, "tokens": int(options.tokens)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--corpus", type=Path, help="a text file, one paragraph a line, gz too")
    text.add_argument("--zipf", type=int, help="words of random text instead")
    text.add_argument("--planted", action="store_true", help="text with known neighbours instead")
    parser.add_argument("--tokens", type=float, default=10e6, help="length of text that is made up")
    parser.add_argument("--model", default="minilm", help="whose tokenizer splits the text, and whose rows are found")
    parser.add_argument("--engines", nargs="+", choices=SIDES, default=["fast", "gensim"])
    parser.add_argument("--word2vec-c", type=Path, help="word2vec.c, or a program that was built from it")
    parser.add_argument("--dims", type=int, nargs="+", default=[384])
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=W2VConfig.alpha, help="learning rate at the beginning")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3, help="of these repeats, how many measure quality")
    parser.add_argument("--references", action="store_true", help="compare neighbours with vectors of 15 epochs")
    parser.add_argument("--work", type=Path, help="keeps texts and runs; a temporary folder without it")
    options = parser.parse_args()
    if ("word2vec-c" in options.engines) != (options.word2vec_c is not None):
        parser.error("--engines word2vec-c and --word2vec-c FILE need each other")
    if options.references and not options.corpus:
        parser.error("--references needs --corpus")
    return options


if __name__ == "__main__":
    try:
        main()
    except GreenadaptError as error:
        sys.exit(str(error))
