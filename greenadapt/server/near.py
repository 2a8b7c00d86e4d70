"""Neighbours of words among the rows of a model's own embedding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from starlette.exceptions import HTTPException

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter
from greenadapt.vectors.neighbours import near_names, nearest


@dataclass(frozen=True, eq=False)
class NearRows:
    """The rows of a model with added words: of the base model's pieces, and after them of the added words.

    Nothing but the model's folder is needed; ``greenadapt neighbours`` also has the word vectors themselves.
    """

    rows: Array
    """(n, dim), memory-mapped."""
    n_base: int
    labels: Sequence[str]
    """Of each row."""
    words: Mapping[str, int]
    """Word → its row, an added one where there are both."""
    hidden: Sequence[int]
    """Rows that are nobody's neighbours: special tokens."""
    splitter: WordSplitter

    @classmethod
    def open(cls, folder: Path) -> "NearRows":
        """Those of a model's folder."""
        checkpoint = Checkpoint.open(folder)
        tokenizer = DualTokenizer.of_model(folder, checkpoint.n_rows)
        vocabulary, added = BaseVocabulary(tokenizer.base), tokenizer.added.all_surfaces()
        first = tokenizer.added.first_id
        pieces = [tokenizer.base.id_to_token(row) or f"[{row}]" for row in range(first)]
        words = {**vocabulary.whole_words, **{word: first + i for i, word in enumerate(added)}}
        hidden = sorted(vocabulary.special_ids)
        return cls(checkpoint.embedding(), first, [*pieces, *added], words, hidden, WordSplitter(tokenizer.base))

    def near(self, word: str, top: int) -> Json:
        """The ``top`` added words and the ``top`` wordpieces whose rows are nearest to the row of ``word``, by cosine.

        Raises ``HTTPException``: 400 for what is not one word, 404 for a word without a row.
        """
        parts = self.splitter.split(word)
        if len(parts) != 1:
            raise HTTPException(400, f"{word!r} is {len(parts)} words as the model splits it: give one word at a time")
        [known] = parts
        if known not in self.words:
            near = near_names(known, self.words)
            hint = f"near: {', '.join(near)}" if near else "give one of the corpus, or of the base model"
            raise HTTPException(404, f"no row for {known!r}: {hint}")
        row, n = self.words[known], len(self.labels)
        found = {"added": self._near(row, self.n_base, n, top), "pieces": self._near(row, 0, self.n_base, top)}
        return {"word": known, "is_added": row >= self.n_base, **found}

    def _near(self, row: int, begin: int, end: int, top: int) -> list[Json]:
        """The nearest of the rows from ``begin`` up to ``end``; those of the same word, which may be two, left out."""
        hidden = [one - begin for one in (row, *self.hidden) if begin <= one < end]
        exclude = np.array([hidden or [-1]], np.int64)
        k = min(2 * top + 1, end - begin)
        indices, cosines = nearest(self.rows[row : row + 1], self.rows[begin:end], k, exclude)
        found: dict[str, float] = {}
        for index, cosine in zip(indices[0].tolist(), cosines[0].tolist(), strict=True):
            if index >= 0 and (label := self.labels[begin + index]) != self.labels[row]:
                found.setdefault(label, cosine)
        return [{"word": label, "cosine": cosine} for label, cosine in list(found.items())[:top]]
