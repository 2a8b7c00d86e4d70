"""The vocabulary of a model's own tokenizer, seen word by word."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property

from tokenizers import Tokenizer

from greenadapt.errors import InputError
from greenadapt.tokenization.bytelevel import SPACE_MARK, from_byte_characters, to_byte_characters
from greenadapt.tokenization.characters import is_of_spaced_word
from greenadapt.tokenization.sentencepiece import SPACE, best_spelling
from greenadapt.tokenization.splitter import WordSplitter, reads_whole_texts, unknown_id

_CONTINUES = "##"  # WordPiece's mark of pieces that do not begin a word


class BaseVocabulary:
    """How a tokenizer treats single words; a word is a normalised pre-token, of a SentencePiece model a part of one.

    With byte-level BPE and SentencePiece a word includes its leading-space mark unless ``marked=False``.
    Raises ``InputError`` for other kinds of tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        splitter = WordSplitter(tokenizer)
        self.kind, self._bounds = splitter.kind, splitter.bounds
        self.whole_texts = reads_whole_texts(tokenizer)
        """Whether a SentencePiece model also sees spaces: a row is of a word behind a space, and only of that."""
        self.at_spaces = self.kind == "sentencepiece" and not self.whole_texts
        """Whether a SentencePiece model's text is split at spaces: a row is of a word with a mark and without."""
        self._entries: dict[str, int] = tokenizer.get_vocab(with_added_tokens=False)
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(row for row, token in added.items() if token.special)
        self.size: int = 1 + max((*self._entries.values(), *added), default=-1)
        self.unk_id = unknown_id(tokenizer)
        if self.kind == "wordpiece" and self.unk_id is None:
            raise InputError(
                f"the tokenizer's vocabulary lacks its unknown token {tokenizer.model.unk_token}",
                "use the model's own tokenizer.json",
            )
        self._model = Tokenizer(tokenizer.model)  # only the model: its input is one pre-token

    @property
    def merged(self) -> list[str]:
        """The vocabulary strings without added tokens and single bytes."""
        of_bytes = self._bounds.of_bytes if self._bounds is not None else {}
        added = self.tokenizer.get_added_tokens_decoder()
        return [entry for entry, row in self._entries.items() if row not in added and row not in of_bytes]

    @cached_property
    def whole_words(self) -> dict[str, int]:
        """Word → id of the base row of this word alone; without special tokens."""
        entries = sorted((row, entry) for entry, row in self._entries.items() if row not in self.special_ids)
        candidates = {word: row for row, entry in entries if (word := self._word(entry))}
        pieces = self._own_pieces(candidates)
        if self._bounds is not None:
            return {word: own[0] for word, own in zip(candidates, pieces, strict=True) if len(own) == 1}
        return {word: row for (word, row), own in zip(candidates.items(), pieces, strict=True) if own == [row]}

    def _own_pieces(self, words: Iterable[str]) -> list[list[int]]:
        """The pieces of each word, as it stands most often.

        With SentencePiece without a space mark that is a piece of its own; punctuation and scripts without spaces stand
        behind other words more often than behind spaces.
        """
        if self._bounds is None:
            return self._encoded(self.entries(words))
        entries = (SPACE + word if all(map(is_of_spaced_word, word)) else word for word in words)
        mark = self._entries.get(SPACE)
        return [own[1:] if own[0] == mark else own for own in self._encoded(entries)]

    def is_cut(self, word: str, pieces: Sequence[int]) -> bool:
        """Whether a word has these several ``pieces`` and no row of its own; ``[UNK]`` counts as several.

        Those of a SentencePiece model must be pieces of no other word, and none of them unknown.
        """
        if self._bounds is None:
            return len(pieces) > 1 or pieces == [self.unk_id]
        n_pieces = len(pieces) - (
            pieces[:1] == [self._entries.get(SPACE)]
        )  # a mark alone, and a piece that is the word
        return n_pieces > 1 and all(map(is_of_spaced_word, word)) and self.is_one_word(pieces)

    def is_one_word(self, pieces: Sequence[int]) -> bool:
        """Whether a SentencePiece model's ``pieces`` of a word, found beside others, are known as one word."""
        assert self._bounds is not None
        return self.unk_id not in pieces and self._bounds.is_one_word(pieces)

    def pieces(self, words: Sequence[str], *, marked: bool = True) -> list[list[int]]:
        """The base ids of each word's pieces, as the tokenizer cuts the word; a WordPiece word may be ``[UNK]``."""
        return self._encoded(self.entries(words, marked=marked))

    def _encoded(self, entries: Iterable[str]) -> list[list[int]]:
        encodings = self._model.encode_batch_fast(list(entries), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def pieces_without_row(self, words: Iterable[str]) -> list[list[int]]:
        """The base ids of the pieces of each of the ``whole_words`` if it had no row; empty if nothing else spells it.

        WordPiece begins with the longest other entry; BPE leaves out the merge that makes the whole word; Unigram takes
        the likeliest other pieces.
        """
        if self.kind == "wordpiece":
            return [self._next_best(word) for word in words]
        words = list(words)
        entries = [str(self.tokenizer.id_to_token(self.whole_words[word])) for word in words]
        model = json.loads(self.tokenizer.to_str())["model"]
        if model["type"] == "Unigram":
            scores = {piece: score for row, (piece, score) in enumerate(model["vocab"]) if row not in self.special_ids}
            longest = max(map(len, scores), default=0)
            spellings = (best_spelling(*pair, scores, longest) for pair in zip(words, entries, strict=True))
            return [[self._entries[piece] for piece in spelling] for spelling in spellings]
        pairs = (merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"])
        halves: dict[str, list[str]] = {}
        for pair in pairs:
            halves.setdefault("".join(pair), pair)
        return [[self._entries[half] for half in halves.get(entry, [])] for entry in entries]

    def _next_best(self, word: str) -> list[int]:
        for end in range(len(word) - 1, 0, -1):
            if word[:end] in self._entries:
                rest = self._model.encode(_CONTINUES + word[end:], add_special_tokens=False)
                is_spelled = rest.tokens[0].startswith(_CONTINUES) and self.unk_id not in rest.ids
                return [self._entries[word[:end]], *rest.ids] if is_spelled else []
        return []

    def entries(self, words: Iterable[str], *, marked: bool = True) -> Iterable[str]:
        """The vocabulary string of each word: itself, or with byte-level BPE its bytes.

        If ``marked``, that of byte-level BPE begins with ``Ġ``, of SentencePiece with ``▁``.
        """
        if self.kind == "wordpiece":
            return words
        if self.kind == "sentencepiece":
            return (SPACE + word if marked else word for word in words)
        mark = SPACE_MARK if marked else ""
        return (mark + to_byte_characters(word) for word in words)

    def _word(self, entry: str) -> str | None:
        """The word of ``entry``, ``None`` if it is only a part of words."""
        if self.kind == "wordpiece":
            return None if entry.startswith(_CONTINUES) else entry
        if self.kind == "sentencepiece":
            word = entry.removeprefix(SPACE)
            return word if len(set(map(is_of_spaced_word, word))) == 1 else None
        if not entry.startswith(SPACE_MARK):
            return None
        try:
            word = from_byte_characters(entry.removeprefix(SPACE_MARK))
        except UnicodeError:
            return None
        return None if word.isspace() else word
