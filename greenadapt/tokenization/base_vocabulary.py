"""The vocabulary of a model's own tokenizer, seen word by word."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property

from tokenizers import Tokenizer

from greenadapt.errors import InputError
from greenadapt.tokenization.bytelevel import SPACE_MARK, from_byte_characters, to_byte_characters
from greenadapt.tokenization.splitter import WordSplitter

_CONTINUES = "##"  # WordPiece's mark of pieces that do not begin a word


class BaseVocabulary:
    """How a WordPiece or byte-level BPE tokenizer treats single words; a word is a normalised pre-token.

    With byte-level BPE a word includes its leading-space mark unless ``marked=False``.
    Raises ``InputError`` for other kinds of tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.kind = WordSplitter(tokenizer).kind
        self._entries: dict[str, int] = tokenizer.get_vocab(with_added_tokens=False)
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(row for row, token in added.items() if token.special)
        self.size: int = 1 + max((*self._entries.values(), *added), default=-1)
        self.unk_id: int | None = self._entries.get(tokenizer.model.unk_token or "")
        if self.kind == "wordpiece" and self.unk_id is None:
            raise InputError(
                f"the tokenizer's vocabulary lacks its unknown token {tokenizer.model.unk_token}",
                "use the model's own tokenizer.json",
            )
        self._model = Tokenizer(tokenizer.model)  # only the model: its input is one pre-token

    @cached_property
    def whole_words(self) -> dict[str, int]:
        """Word → id of the base row of this word alone; without special tokens."""
        entries = sorted((row, entry) for entry, row in self._entries.items() if row not in self.special_ids)
        candidates = {word: row for row, entry in entries if (word := self._word(entry))}
        pieces = self.pieces(list(candidates))
        return {word: row for (word, row), own in zip(candidates.items(), pieces, strict=True) if own == [row]}

    def pieces(self, words: Sequence[str], *, marked: bool = True) -> list[list[int]]:
        """The base ids of each word's pieces, as the tokenizer cuts the word; a WordPiece word may be ``[UNK]``."""
        encodings = self._model.encode_batch_fast(list(self.entries(words, marked=marked)), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def pieces_without_row(self, words: Iterable[str]) -> list[list[int]]:
        """The base ids of the pieces of each of the ``whole_words`` if it had no row; empty if nothing else spells it.

        WordPiece begins with the longest other entry; byte-level BPE leaves out the merge that makes the whole word.
        """
        if self.kind == "wordpiece":
            return [self._next_best(word) for word in words]
        model = json.loads(self.tokenizer.to_str())["model"]
        pairs = (merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"])
        halves: dict[str, list[str]] = {}
        for pair in pairs:
            halves.setdefault("".join(pair), pair)
        return [[self._entries[half] for half in halves.get(entry, [])] for entry in self.entries(words)]

    def _next_best(self, word: str) -> list[int]:
        for end in range(len(word) - 1, 0, -1):
            if word[:end] in self._entries:
                rest = self._model.encode(_CONTINUES + word[end:], add_special_tokens=False)
                is_spelled = rest.tokens[0].startswith(_CONTINUES) and self.unk_id not in rest.ids
                return [self._entries[word[:end]], *rest.ids] if is_spelled else []
        return []

    def entries(self, words: Iterable[str], *, marked: bool = True) -> Iterable[str]:
        """The vocabulary string of each word: itself, or with byte-level BPE its bytes (``Ġ`` first if ``marked``)."""
        if self.kind == "wordpiece":
            return words
        mark = SPACE_MARK if marked else ""
        return (mark + to_byte_characters(word) for word in words)

    def _word(self, entry: str) -> str | None:
        """The word of ``entry``, ``None`` if it is only a part of words."""
        if self.kind == "wordpiece":
            return None if entry.startswith(_CONTINUES) else entry
        if not entry.startswith(SPACE_MARK):
            return None
        try:
            word = from_byte_characters(entry.removeprefix(SPACE_MARK))
        except UnicodeError:
            return None
        return None if word.isspace() else word
