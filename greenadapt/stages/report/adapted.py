"""What a report says of an adapted model: its words, its rows, and its corpus in pieces."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.corpus.prepared import read_vocabulary
from greenadapt.report.page.sections import AddedData, PieceCounts, Plane, RowsData
from greenadapt.stages.session import W2V
from greenadapt.storage.arrays import Array, FloatArray
from greenadapt.storage.results import MANIFEST, Result, read_manifest
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.vectors.neighbours import nearest, on_plane, unit_rows
from greenadapt.vectors.rows import mean_of_pieces
from greenadapt.vectors.word_vectors import VOCABULARY

_FEWEST = 20
"""Words of which a map is drawn."""
N_COUNTED = 20_000
"""Words of the corpus whose pieces are counted."""
_N_NORMS = 4000
_N_MAP = 200
_N_NAMED = 60
"""Words of the map that may be named, if there is room."""
_N_QUERIES = 200
_N_ADDED = 5000
_N_NEAR = 6
_N_WORST = 15


@dataclass(frozen=True)
class Adapted:
    """An adapted model; each part is read once, and of the rows only samples."""

    result: Result
    name: str

    @cached_property
    def tokenizer(self) -> DualTokenizer:
        """Both tokenizations."""
        return DualTokenizer.load(self.result.folder)

    @cached_property
    def words(self) -> list[str]:
        """The word of each new row."""
        return self.tokenizer.added.all_surfaces()

    @cached_property
    def counts(self) -> Array | None:
        """How often the word of each new row occurs, int64 (n,); ``None`` if the vectors, or their counts, are not
        there.
        """
        vocabulary = self._vocabulary()
        if vocabulary is None:
            return None
        words, counts = read_vocabulary(vocabulary)
        if counts.min() == counts.max():
            return None
        known = dict(zip(words, counts.tolist(), strict=True))
        return np.fromiter(map(known.get, self.words, repeat(0)), np.int64, len(self.words))

    def _vocabulary(self) -> Path | None:
        """``vocabulary.tsv`` of the vectors that the rows were made from."""
        aligned = Path(self.result.manifest.inputs["alignment"].get("path", ""))
        if (aligned / VOCABULARY).is_file():  # vectors that were made elsewhere
            return aligned / VOCABULARY
        if not (aligned / MANIFEST).is_file():
            return None
        trained = Path(read_manifest(aligned).inputs["vectors"].get("path", ""))
        is_there = (trained / MANIFEST).is_file() and read_manifest(trained).stage == W2V
        return trained / VOCABULARY if is_there else None

    @cached_property
    def order(self) -> Array:
        """A new row of each word, those of frequent words first, int64 (n_words,)."""
        by_count = np.arange(len(self.words)) if self.counts is None else np.argsort(-self.counts, kind="stable")
        if len(set(self.words)) == len(self.words):
            return by_count
        first: dict[str, int] = {}  # with byte-level BPE a word has up to two rows, which are equal
        for row in by_count.tolist():
            first.setdefault(self.words[row], row)
        return np.array(list(first.values()), np.int64)

    @cached_property
    def embedding(self) -> Array:
        """Its rows, (n_rows, dim), memory-mapped."""
        return Checkpoint.open(self.result.folder, generative=True).embedding()

    @cached_property
    def n_pieces(self) -> Array:
        """Base pieces of the word of each new row, int (n,)."""
        return np.diff(self.tokenizer.added.pieces.stored.offsets)

    @cached_property
    def base_ids(self) -> Array:
        """The rows of the base vocabulary without its special tokens, int64 (n_base,)."""
        vocabulary = self.tokenizer.base.get_vocab(with_added_tokens=False)
        special = {row for row, token in self.tokenizer.base.get_added_tokens_decoder().items() if token.special}
        return np.array(sorted(set(vocabulary.values()) - special), np.int64)

    def added_data(self) -> AddedData:
        """See ``AddedData``."""
        cut = self.order[np.argsort(-self.n_pieces[self.order[:_N_ADDED]], kind="stable")[:_N_WORST]]
        worst = [
            (self.words[i], "" if self.counts is None else f"{self.counts[i]:,}", self._spelled(i))
            for i in cut.tolist()
        ]
        words = [self.words[i] for i in self.order.tolist()]
        counts = None if self.counts is None else self.counts[self.order]
        return AddedData(self.name, words, self.n_pieces[self.order], counts, worst)

    def piece_counts(self, words: list[str], counts: Array) -> PieceCounts:
        """The pieces of the first ``N_COUNTED`` of a corpus's ``words``, most frequent first, and their ``counts``."""
        taken, weights = words[:N_COUNTED], counts[:N_COUNTED]
        encoding = self.tokenizer.encode(taken)
        by_view = []
        for view in (encoding.base, encoding.expanded):
            assert view.given is not None
            by_view.append(np.bincount(np.bincount(view.given, minlength=len(taken)), weights=weights).astype(np.int64))
        share = float(weights.sum() / max(int(counts.sum()), 1))
        return PieceCounts(self.name, len(taken), share, *by_view)

    def rows_data(self, command: str) -> RowsData:
        """See ``RowsData``; ``command`` shows other words' neighbours."""
        first, n = self.tokenizer.added.first_id, len(self.words)
        sampled = np.unique(np.linspace(0, n - 1, min(n, _N_NORMS)).astype(int)) + first
        base = self.base_ids[:: max(1, len(self.base_ids) // _N_NORMS)]
        frequent = self.order[:_N_ADDED]
        return RowsData(
            self.name,
            np.linalg.norm(self._rows(base), axis=1),
            np.linalg.norm(self._rows(sampled), axis=1),
            len(self.base_ids),
            n,
            self._plane() if len(self.order) >= _FEWEST else None,
            self._near(frequent),
            (len(self.base_ids), len(frequent)),
            command,
        )

    def _rows(self, ids: Array) -> FloatArray:
        return np.asarray(self.embedding[ids], np.float32)

    def _as_pieces(self, entries: Array) -> FloatArray:
        """What the base model sees for the words of ``entries``, (n, dim): the mean of the rows of their pieces."""
        return mean_of_pieces([self._piece_ids(entry) for entry in entries.tolist()], self.embedding)

    def _piece_ids(self, entry: int) -> list[int]:
        stored = self.tokenizer.added.pieces.stored
        begin, end = stored.offsets[entry : entry + 2]
        ids: list[int] = stored.values[begin:end].tolist()
        return ids

    def _spelled(self, entry: int) -> str:
        return " ".join(self._label(row) for row in self._piece_ids(entry))

    def _label(self, row: int) -> str:
        return self.tokenizer.base.id_to_token(row) or f"[{row}]"

    def _plane(self) -> Plane:
        entries = self.order[:_N_MAP]
        ids = self.base_ids[:: max(1, len(self.base_ids) // _N_MAP)]
        base, after = unit_rows(self._rows(ids)), unit_rows(self._rows(entries + self.tokenizer.added.first_id))
        both, before, share = on_plane(np.concatenate([base, after]), unit_rows(self._as_pieces(entries)))
        at_base, after = both[: len(ids)], both[len(ids) :]
        points = []
        for panel, own in (("before: mean of the base pieces", before), ("after: the new rows", after)):
            for what, labels, xy in (
                ("wordpieces", [self._label(row) for row in ids.tolist()], at_base),
                ("added words", [self.words[i] for i in entries.tolist()], own),
            ):
                for i, (label, (x, y)) in enumerate(zip(labels, xy.tolist(), strict=True)):
                    named = what == "added words" and i < _N_NAMED
                    points.append({"label": label, "x": x, "y": y, "what": what, "panel": panel, "named": named})
        table = [
            [self.words[entry], self._spelled(entry), *(f"{value:.3f}" for value in (*a, *b))]
            for entry, a, b in zip(entries.tolist(), before.tolist(), after.tolist(), strict=True)
        ]
        return Plane(points, share, table)

    def _near(self, frequent: Array) -> list[tuple[str, list[str], list[str], list[str]]]:
        """The neighbours of the first of ``frequent``: as pieces and by their own row."""
        asked = frequent[:_N_QUERIES]
        own = self._rows(asked + self.tokenizer.added.first_id)
        queries = np.concatenate([self._as_pieces(asked), own])
        special = np.setdiff1d(np.arange(self.base_ids[-1] + 1), self.base_ids)
        hidden = np.broadcast_to(special, (len(queries), len(special)))
        pieces = _named(queries, self.embedding[: self.base_ids[-1] + 1], self._label, hidden)
        among = self._rows(frequent + self.tokenizer.added.first_id)
        added = _named(own, among, lambda i: self.words[frequent[i]], np.arange(len(own))[:, None])
        words = [self.words[i] for i in asked.tolist()]
        return list(zip(words, pieces[: len(asked)], pieces[len(asked) :], added, strict=True))


def _named(queries: Array, rows: Array, label: Callable[[int], str], exclude: Array) -> list[list[str]]:
    """The neighbours of each query among ``rows`` but those of ``exclude``, with their cosines; see ``nearest``."""
    indices, cosines = nearest(queries, rows, min(_N_NEAR, len(rows)), exclude)
    return [
        [f"{label(i)} {cosine:.2f}" for i, cosine in zip(row, near, strict=True) if i >= 0]
        for row, near in zip(indices.tolist(), cosines.tolist(), strict=True)
    ]
