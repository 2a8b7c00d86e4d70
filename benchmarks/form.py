"""Which features and which penalty predict rows best: variants of ``expand --rows form`` on words held out.

    python benchmarks/form.py --vectors FOLDER [FOLDER ...] [--model minilm] [--folds 5]

``--vectors`` are folders of ``w2v``. Each variant is fitted on all but a fold of the words that have a row, and
predicts the rows of that fold. The figures are means over the folds: R² and cosine of prediction and row before the
prediction is rescaled, the share of words whose own row is the nearest or among the ten nearest of all rows, the mean
reciprocal rank, and the share among ten by how often a word occurs.

``count`` is the variant with weights n / (n + 20) and with the standardized log n as a feature, ``ends`` the one with
the rows of a word's first and last piece, ``no gate`` the one in which the count plays no part.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.linalg import solve
from tables import aligned

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.storage.arrays import Array
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.vectors.alignment import overlap
from greenadapt.vectors.neighbours import unit_rows
from greenadapt.vectors.rows import mean_of_pieces, wordpiece_norm
from greenadapt.vectors.word_vectors import WordVectors

BANDS = ((1, 20), (20, 100), (100, 500), (500, np.inf))
VARIANTS = [
    ("count", 50, 0.1),
    ("count", 50, 1.0),
    ("gate", 50, 0.1),
    ("gate", 50, 0.3),
    ("gate", 50, 1.0),
    ("gate", 20, 1.0),
    ("no gate", 0, 1.0),
    ("ends", 50, 0.5),
    ("ends", 50, 1.0),
    ("ends", 50, 2.0),
]
"""Features, the count at which contexts count as much as form, and the penalty."""


class KnownRows:
    """The words that have a row and could be spelled without it."""

    def __init__(self, vectors: WordVectors, model: str) -> None:
        folder = find_model(model).folder
        vocabulary = BaseVocabulary(load_tokenizer(folder))
        self.table = np.asarray(Checkpoint.open(folder).embedding()[: vocabulary.size], np.float32)
        words, rows, ids = overlap(vectors, vocabulary)
        pieces = vocabulary.pieces_without_row(words)
        with_pieces = np.array([i for i, word_pieces in enumerate(pieces) if word_pieces])
        word_pieces = self.pieces = [pieces[i] for i in with_pieces]
        norm = wordpiece_norm(self.table, vocabulary.size, vocabulary.special_ids)
        self.ids, self.counts = ids[with_pieces], vectors.counts[rows[with_pieces]].astype(np.float64)
        self.units = unit_rows(vectors.matrix[rows[with_pieces]])
        self.means = mean_of_pieces(word_pieces, self.table) / norm
        self.ends = [self.table[[word[index] for word in word_pieces]] / norm for index in (0, -1)]
        self.candidates = np.setdiff1d(np.arange(len(self.table)), [*vocabulary.special_ids])

    def features(self, name: str, gate_count: int) -> Array:
        """(n_words, n_features)."""
        gate = (self.counts / (self.counts + gate_count))[:, None]
        blocks = [gate * self.units, (1 - gate) / 2 * self.units, self.means, (1 - gate) * self.means]
        if name == "count":
            logs = np.log(self.counts)
            blocks.append(0.05 * ((logs - logs.mean()) / logs.std())[:, None])
        if name == "ends":
            blocks += [end / 2 for end in self.ends]
        return np.hstack([self.units, self.means] if name == "no gate" else blocks)

    def figures(self, held: Array, rows: Array) -> list[float]:
        """The figures of ``rows``, predicted for the words ``held``."""
        targets = self.table[self.ids[held]]
        cosines = unit_rows(rows) @ unit_rows(self.table).T
        own_cosines = cosines[np.arange(len(held)), self.ids[held]]
        ranks = 1 + (cosines[:, self.candidates] > own_cosines[:, None]).sum(axis=1)
        r2 = 1 - np.square(rows - targets).sum() / np.square(targets - targets.mean(axis=0)).sum()
        counts = self.counts[held]
        bands = [(ranks[(counts >= low) & (counts < high)] <= 10).mean() for low, high in BANDS]
        return [r2, own_cosines.mean(), (ranks == 1).mean(), (ranks <= 10).mean(), (1 / ranks).mean(), *bands]


def predicted(words: KnownRows, features: Array, weights: Array, fold: tuple[Array, Array], penalty: float) -> Array:
    """The rows of the words held out, by weighted ridge regression on the others."""
    fitted, held = fold
    weight, targets = weights[fitted][:, None], words.table[words.ids[fitted]].astype(np.float64)
    middle, mean = (weight * features[fitted]).sum(0) / weight.sum(), (weight * targets).sum(0) / weight.sum()
    centred = (features[fitted] - middle) * np.sqrt(weight)
    gram = centred.T @ centred
    gram[np.diag_indices(len(gram))] += penalty * np.trace(gram) / len(gram)
    solved = solve(gram, centred.T @ ((targets - mean) * np.sqrt(weight)), assume_a="pos")
    return ((features[held] - middle) @ solved + mean).astype(np.float32)


def main() -> None:
    """Print a table for each folder of vectors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, nargs="+", required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    for folder in options.vectors:
        words = KnownRows(WordVectors.load(folder), options.model)
        n = len(words.ids)
        print(f"{folder}, {options.model}: {n:,} words\n", flush=True)
        names = ["features", "gate", "penalty", "R²", "cosine", "first", "among ten", "MRR"]
        rows = [[*names, *(f"from {low}" for low, _ in BANDS)]]
        parts = np.array_split(np.random.default_rng(5).permutation(n), options.folds)
        folds = [(np.concatenate([*parts[:i], *parts[i + 1 :]]), held) for i, held in enumerate(parts)]
        for name, gate_count, penalty in VARIANTS:
            features = words.features(name, gate_count)
            weights = words.counts / (words.counts + 20) if name == "count" else np.ones(n)
            fold_figures = [
                words.figures(fold[1], predicted(words, features, weights, fold, penalty)) for fold in folds
            ]
            figures = [f"{value:.3f}" for value in np.mean(fold_figures, axis=0)]
            rows.append([name, str(gate_count), str(penalty), *figures])
        print(aligned(rows), flush=True)


if __name__ == "__main__":
    main()
