"""Fertility, the mean number of pieces per word, of the base tokenizer and the expanded one."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from greenadapt.tokenization.dual_tokenizer import DualTokenizer

_BATCH = 1000  # texts encoded at a time


@dataclass(frozen=True)
class Fertility:
    """Counts over the same words in both tokenizations."""

    words: int
    base_pieces: int
    expanded_pieces: int
    whole_words: int
    """Words that only the expanded tokenizer keeps as one piece."""

    @property
    def before(self) -> float:
        """Base pieces per word."""
        return self.base_pieces / max(self.words, 1)

    @property
    def after(self) -> float:
        """Expanded pieces per word."""
        return self.expanded_pieces / max(self.words, 1)


def fertility(tokenizer: DualTokenizer, texts: Iterable[str]) -> Fertility:
    """Count the pieces of ``texts`` in both tokenizations, a batch at a time."""
    words = base = expanded = whole = 0
    remaining = iter(texts)
    while batch := list(islice(remaining, _BATCH)):
        for encoding in tokenizer.encode_batch(batch):
            words += encoding.n_words
            base += len(encoding.base.ids)
            expanded += len(encoding.expanded.ids)
            whole += int((encoding.expanded.ids >= tokenizer.added.first_id).sum())
    return Fertility(words, base, expanded, whole)
