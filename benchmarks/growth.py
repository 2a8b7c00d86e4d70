"""How predicted rows get better with more text, and with other settings of the word vectors, without any fine-tuning.

    python benchmarks/growth.py --corpus biomedical=biomedical.txt.gz software=software.txt.gz --work DIR [--plots DIR]

For each text: vectors of its ``--words`` (millions, whole lines drawn at random, a smaller part within each larger
one) and of all of it at each of ``--rates`` after each of ``--epochs``; of all of it with each of ``--widths``. The
rows that the model has are predicted by ``--rows norm`` and ``form``, in five folds: fitted on the words of four,
measured on the fifth, where a word is in the same fold for all vectors.

The own row is looked for among all rows of the model, by cosine. A small text has fewer words in common with the model,
and they are the frequent ones: ``same words`` are those that the smallest part has, too, so that only these columns can
be compared between sizes. R² is that of the rows before they get the norm of the model's.

Finished runs are lines of ``growth.jsonl`` in ``--results``, and are not made again.
"""

import argparse
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from zlib import crc32

import numpy as np
from draws import draw_lines
from records import Records, resumable
from tables import aligned

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import AlignConfig, CorpusConfig, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus, prepare_corpus
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.progress import Silent
from greenadapt.store.arrays import Array
from greenadapt.store.files import Json, hash_file, hash_json
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.vectors.alignment import fit, overlap
from greenadapt.vectors.cbow import train
from greenadapt.vectors.neighbours import unit_rows
from greenadapt.vectors.quality import KnownWords
from greenadapt.vectors.rows import FormSums, wordpiece_norm
from greenadapt.vectors.word_vectors import WordVectors

RESULTS = Path(__file__).parent / "results"
N_FOLDS = 5
_BLOCK = 512  # words compared with all rows at a time
ALL = float("inf")
"""Millions of words of the whole text."""


class Growth:
    """The folder of the runs: parts of the texts, and a line for each run."""

    def __init__(self, work: Path, results: Path, corpora: dict[str, Path], model: str, workers: int) -> None:
        work.mkdir(parents=True, exist_ok=True)
        results.mkdir(parents=True, exist_ok=True)
        self.work, self.corpora, self.model, self.workers = work, corpora, find_model(model), workers
        self.records = Records(results / "growth.jsonl")
        self.vocabulary = BaseVocabulary(load_tokenizer(self.model.folder))
        self.table = np.asarray(Checkpoint(self.model.folder).embedding()[: self.vocabulary.size], np.float32)
        self.norm = wordpiece_norm(self.table, self.vocabulary.size, self.vocabulary.special_ids)
        self.part = cache(self._part)

    def run(self, corpus: str, millions: float, smallest: float, config: W2VConfig) -> Json:
        """The record of a run, made if it is not there."""
        whole = {"corpus": hash_file(self.corpora[corpus]), "model": self.model.name, "millions": str(millions)}
        request = {**whole, "alpha": config.alpha, "epochs": config.epochs, "dim": config.dim, "same": str(smallest)}
        key = hash_json(request)[:16]
        if key in self.records.by_key:
            return self.records.by_key[key]
        text, part = self.part(corpus, millions), {"corpus": corpus, "millions": millions}
        begin = time.perf_counter()
        training = self.work / "training"
        vectors = train(text, config, training, progress=Silent(), max_memory=32 << 30)
        shutil.rmtree(training)
        seconds = time.perf_counter() - begin
        words = self._known_words(vectors)
        common = set(_frequent(self.part(corpus, smallest), config.min_count))
        figures = self._measured(words, np.array([word in common for word in words.words]))
        settings = {"alpha": config.alpha, "epochs": config.epochs, "dim": config.dim}
        counts = {"tokens": int(text.counts.sum()), "words": len(vectors.words), "known": len(words.words)}
        facts = {**part, "millions": None if millions == ALL else millions}
        return self.records.add({"key": key, **facts, **settings, **counts, "seconds": seconds, **figures})

    def _part(self, corpus: str, millions: float) -> PreparedCorpus:
        """Lines drawn until they have so many words, split as the model splits them."""
        folder = self.work / f"{corpus}-{millions}-{self.model.name}"
        if not folder.is_dir():
            work = folder.with_suffix(".part")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            file = self.corpora[corpus]
            if millions != ALL:
                file = draw_lines(file, millions * 1e6, work / "drawn.txt")
            documents = open_corpus(find_recipe(str(file)), work).documents()
            prepare_corpus(documents, self.model.folder, work, CorpusConfig(), workers=self.workers,
                           max_memory=2 << 30, progress=Silent())  # fmt: skip
            work.replace(folder)
        return PreparedCorpus(folder)

    def _known_words(self, vectors: WordVectors) -> KnownWords:
        """The words that the model has a row for and could spell without it."""
        words, rows, ids = overlap(vectors, self.vocabulary)
        pieces = self.vocabulary.pieces_without_row(words)
        split = np.array([i for i, word_pieces in enumerate(pieces) if word_pieces])
        return KnownWords(
            np.asarray(vectors.matrix[rows[split]], np.float32), vectors.counts[rows[split]], ids[split], self.table,
            [pieces[i] for i in split], self.vocabulary.special_ids, [words[i] for i in split],
        )  # fmt: skip

    def _measured(self, words: KnownWords, common: Array) -> Json:
        """Recipe → figures of all words, and of the common ones."""
        fold = np.array([crc32(word.encode()) % N_FOLDS for word in words.words])
        predicted_rows = {name: np.empty((len(fold), self.table.shape[1]), np.float32) for name in ("norm", "form")}
        for held in (np.flatnonzero(fold == number) for number in range(N_FOLDS)):
            fitted = np.setdiff1d(np.arange(len(fold)), held)
            targets = words.targets(fitted)
            predicted_rows["norm"][held] = fit(words.vectors[fitted], targets, AlignConfig()).apply(words.vectors[held])
            sums = FormSums(words.vectors.shape[1], self.table.shape[1])
            sums.add(words, fitted, self.norm)
            pieces = [words.pieces[i] for i in held]
            predicted_rows["form"][held] = sums.fit(self.norm).rows(
                words.vectors[held], words.counts[held], pieces, self.table, rescale=False
            )
        return {
            name: {"all": self._figures(rows, words, np.full(len(fold), True)),
                   "same": self._figures(rows, words, common)}
            for name, rows in predicted_rows.items()
        }  # fmt: skip

    def _figures(self, rows: Array, words: KnownWords, subset: Array) -> Json:
        ids, row_vectors, target = words.base_ids[subset], rows[subset], self.table[words.base_ids[subset]]
        unit = unit_rows(self.table)
        unit[[*self.vocabulary.special_ids]] = 0
        queries = unit_rows(row_vectors)
        cosines = (queries * unit[ids]).sum(axis=1)
        ranks = np.concatenate([
            1 + (queries[begin : begin + _BLOCK] @ unit.T > cosines[begin : begin + _BLOCK, None] + 1e-6).sum(axis=1)
            for begin in range(0, len(queries), _BLOCK)
        ])  # fmt: skip
        spread = np.square(target - target.mean(axis=0)).sum()
        return {
            "n": len(ids),
            "p10": float((ranks <= 10).mean()),
            "r2": float(1 - np.square(row_vectors - target).sum() / spread),
            "cosine": float(cosines.mean()),
        }


def _frequent(text: PreparedCorpus, min_count: int) -> list[str]:
    return [word for word, n in zip(text.words, text.counts.tolist(), strict=True) if n >= min_count]


def settings(options: argparse.Namespace) -> Iterator[tuple[float, W2VConfig]]:
    """Millions of words and the settings of each run of a text, none twice."""
    usual = W2VConfig(workers=options.workers, dim=options.dim)
    sizes = [*options.words, ALL]
    schedules = [
        (size, replace(usual, alpha=rate, epochs=n))
        for n, rate, size in product([usual.epochs, *options.epochs], options.rates, sizes)
    ]
    widths = [(ALL, replace(usual, dim=dim)) for dim in options.widths]
    yield from dict.fromkeys([*schedules, *widths])


def table(records: list[Json]) -> str:
    """All runs in Markdown."""
    names = ["text", "million words", "rate", "epochs", "width", "words", "same words"]
    figures = [f"{name}, {figure}" for name in ("norm", "form") for figure in ("among ten", "same words", "R²")]
    rows = [[*names, *figures, "seconds"]]
    for record in records:
        cells = [
            record["corpus"],
            f"{record['tokens'] / 1e6:.1f}",
            f"{record['alpha']:g}",
            f"{record['epochs']}",
            f"{record['dim']}",
        ]
        cells += [f"{record['norm']['all']['n']:,}", f"{record['norm']['same']['n']:,}"]
        for name in ("norm", "form"):
            every, same_words = record[name]["all"], record[name]["same"]
            cells += [f"{every['p10']:.1%}", f"{same_words['p10']:.1%}", f"{every['r2']:.3f}"]
        rows.append([*cells, f"{record['seconds']:.0f}"])
    return aligned(rows)


def plot(records: list[Json], folder: Path) -> None:
    """Write ``growth-words.svg``: the share among ten of rows from form, by size of the text, rate and epochs."""
    from vl_convert import vegalite_to_svg  # in the extra "report"

    folder.mkdir(parents=True, exist_ok=True)
    points = [
        {"text": row["corpus"], "schedule": f"{row['alpha']:g}, {row['epochs']}", "words": row["tokens"] / 1e6,
         "share": row["form"]["same"]["p10"]}
        for row in records if row["dim"] == records[0]["dim"]
    ]  # fmt: skip
    x = {"field": "words", "type": "quantitative", "title": "million words",
         "scale": {"type": "log", "nice": False, "padding": 12}}  # fmt: skip
    y = {"field": "share", "type": "quantitative", "title": "own row among the ten nearest",
         "axis": {"format": ".0%"}, "scale": {"zero": False}}  # fmt: skip
    color = {"field": "schedule", "type": "nominal", "title": "rate, epochs"}
    plot = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "data": {"values": points},
        "facet": {"column": {"field": "text", "type": "nominal", "title": None}},
        "spec": {
            "width": 240,
            "height": 220,
            "mark": {"type": "line", "point": True},
            "encoding": {"x": x, "y": y, "color": color},
        },
    }
    (folder / "growth-words.svg").write_text(vegalite_to_svg(plot), "utf-8")


def _named(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    return (name, Path(file)) if equals else (Path(text).name.split(".")[0], Path(text))


def main(arguments: list[str] | None = None) -> None:
    """Do the missing runs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs="+", type=_named, required=True, metavar="[NAME=]FILE", help="lines of text")
    parser.add_argument("--work", type=Path, required=True, help="where all of it is kept")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where records are kept")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--words", nargs="*", type=float, default=[0.5, 2], help="millions, besides all of a text")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.025, 0.05, 0.1])
    parser.add_argument("--epochs", nargs="*", type=int, default=[1, 15], help="besides 5")
    parser.add_argument("--dim", type=int, default=384, help="the width, where it is not varied")
    parser.add_argument("--widths", nargs="*", type=int, default=[96, 192, 768])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--plots", type=Path, help="write plots to this folder, as SVG")
    options = parser.parse_args(arguments)
    growth = Growth(options.work, options.results, dict(options.corpus), options.model, options.workers)
    smallest = min([*options.words, ALL])
    records = []
    for name in growth.corpora:
        for millions, config in settings(options):
            records.append(growth.run(name, millions, smallest, config))
    print(table(records), flush=True)
    if options.plots:
        plot(records, options.plots)


if __name__ == "__main__":
    resumable(main)
