"""Do further features, neighbours or several maps predict rows better than ``expand --rows form``? On words held out.

    python benchmarks/form_trials.py --vectors FOLDER [--model minilm] [--folds 5]

Figures and folds are those of ``benchmarks/form.py``. What is tried, each on top of ``form``:

- ``states``: what the model itself makes of the word alone, [CLS] pieces [SEP]: the mean over the pieces of its states
  in the last or the middle layer, as further features, once, and once more times 1 − g.
- ``neighbours``: the mean residual of the k words with the nearest vectors, weighted by cosine, times a share. The
  residuals are those that a word has if it is left out of the fit, e / (1 − h), h the leverage.
- ``bands``: a map of its own for each band of frequency; fitted on the words of the band alone, or on all words with
  weights exp(−½ (Δ log n / width)²) around the middle of the band.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from form import BANDS, KnownRows
from scipy.linalg import cho_factor, cho_solve
from tables import aligned
from transformers import AutoModel

from greenadapt.checkpoints.source import find_model
from greenadapt.storage.arrays import Array
from greenadapt.tokenization.files import read_settings, special_ids
from greenadapt.tokenization.vocabulary import load_tokenizer
from greenadapt.vectors.word_vectors import WordVectors

GATE = 50
MIDDLES = np.log([8, 50, 250, 1500])
"""Of the bands of ``BANDS``."""
NEIGHBOURS = [(5, 0.3), (20, 0.3), (20, 0.6), (50, 0.6)]
"""How many, and times which share."""


class Fit:
    """Ridge regression on words with weights, with the penalty of ``form``."""

    def __init__(self, features: Array, targets: Array, weights: Array) -> None:
        share = weights[:, None] / weights.sum()
        self.middle, self.mean = (share * features).sum(0), (share * targets).sum(0)
        root = np.sqrt(weights)[:, None].astype(np.float32)
        self.centred = (features - self.middle).astype(np.float32) * root
        gram = (self.centred.T @ self.centred).astype(np.float64)
        gram[np.diag_indices(len(gram))] += np.trace(gram) / len(gram)
        self.factor = cho_factor(gram, overwrite_a=True)
        cross = self.centred.T @ ((targets - self.mean) * root).astype(np.float32)
        self.solved = cho_solve(self.factor, cross.astype(np.float64)).astype(np.float32)
        self.residuals = targets - self.rows(features)

    def rows(self, features: Array) -> Array:
        """Predicted rows (n, dim)."""
        return (features - self.middle) @ self.solved + self.mean

    def left_out(self) -> Array:
        """The residual of each word if it is left out."""
        leverage = (self.centred * cho_solve(self.factor, self.centred.T).T).sum(axis=1)
        return np.asarray(self.residuals / np.clip(1 - leverage, 0.05, None)[:, None])


def states(words: KnownRows, model: str) -> dict[str, Array]:
    """Layer → the mean state of the pieces of each word alone, (n_words, dim), centred and of length 1 on average."""
    folder = find_model(model).folder
    network = AutoModel.from_pretrained(folder).eval()
    special = special_ids(load_tokenizer(folder), read_settings(folder))
    layers = {"middle": network.config.num_hidden_layers // 2, "last": network.config.num_hidden_layers}
    by_layer = {name: np.empty((len(words.pieces), network.config.hidden_size), np.float32) for name in layers}
    by_length: dict[int, list[int]] = {}
    for i, pieces in enumerate(words.pieces):
        by_length.setdefault(len(pieces), []).append(i)
    for group in by_length.values():
        for begin in range(0, len(group), 256):
            block = group[begin : begin + 256]
            ids = torch.tensor([[special.cls, *words.pieces[i], special.sep] for i in block])
            with torch.inference_mode():
                hidden = network(input_ids=ids, output_hidden_states=True).hidden_states
            for name, layer in layers.items():
                by_layer[name][block] = hidden[layer][:, 1:-1].mean(dim=1).numpy()
    centred = {name: rows - rows.mean(axis=0) for name, rows in by_layer.items()}
    return {name: rows / np.linalg.norm(rows, axis=1).mean() for name, rows in centred.items()}


def variants(words: KnownRows, inputs: dict[str, Array], fold: tuple[Array, Array]) -> dict[str, Array]:
    """Name → predicted rows of the words held out."""
    fitted, held = fold
    targets, ones = words.table[words.ids[fitted]], np.ones(len(fitted))
    form = inputs["form"]
    plain = Fit(form[fitted], targets, ones)
    rows = {"form": plain.rows(form[held])}
    for name, features in inputs.items():
        if name != "form":
            rows[name] = Fit(features[fitted], targets, ones).rows(features[held])
    residuals = plain.left_out()
    cosines = words.units[held] @ words.units[fitted].T
    nearest = np.argsort(-cosines, axis=1)[:, : max(k for k, _ in NEIGHBOURS)]
    for k, share in NEIGHBOURS:
        weights = np.take_along_axis(cosines, nearest[:, :k], axis=1).clip(0)
        weights /= weights.sum(axis=1, keepdims=True) + 1e-9
        mean = np.stack(
            [weight @ residuals[neighbours[:k]] for weight, neighbours in zip(weights, nearest, strict=True)]
        )
        rows[f"{k} neighbours, {share:g}"] = rows["form"] + share * mean
    logs = np.log(words.counts)
    for name, width in (("bands, own words", 0.0), ("bands, width 1", 1.0), ("bands, width 2", 2.0)):
        changed = rows["form"].copy()
        for (low, high), middle in zip(BANDS, MIDDLES, strict=True):
            inside = (words.counts >= low) & (words.counts < high)
            weights = np.exp(-0.5 * ((logs[fitted] - middle) / width) ** 2) if width else inside[fitted] * 1.0
            positive = weights > 1e-3
            if inside[held].any():
                fit = Fit(form[fitted][positive], targets[positive], weights[positive])
                changed[inside[held]] = fit.rows(form[held][inside[held]])
        rows[name] = changed
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    words = KnownRows(WordVectors.load(options.vectors), options.model)
    n = len(words.ids)
    form = words.features("ends", GATE).astype(np.float32)
    gate = (words.counts / (words.counts + GATE)).astype(np.float32)[:, None]
    inputs = {"form": form}
    for layer, layer_states in states(words, options.model).items():
        inputs[f"states, {layer} layer"] = np.hstack([form, layer_states, (1 - gate) * layer_states])
    parts = np.array_split(np.random.default_rng(5).permutation(n), options.folds)
    figures: dict[str, list[list[float]]] = {}
    for i, held in enumerate(parts):
        fold = (np.concatenate([*parts[:i], *parts[i + 1 :]]), held)
        for name, rows_of_variant in variants(words, inputs, fold).items():
            figures.setdefault(name, []).append(words.figures(held, rows_of_variant))
    print(f"{options.vectors}, {options.model}: {n:,} words\n", flush=True)
    rows = [["", "R²", "cosine", "first", "among ten", "MRR", *(f"from {low}" for low, _ in BANDS)]]
    rows += [[name, *(f"{value:.3f}" for value in np.mean(values, axis=0))] for name, values in figures.items()]
    print(aligned(rows), flush=True)


if __name__ == "__main__":
    main()
