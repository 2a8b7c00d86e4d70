"""Split text into words as a model's tokenizer pre-tokenizes it, and look up words in its vocabulary."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from greenadapt.errors import GreenadaptError, InputError, MissingError, is_panic
from greenadapt.tokenization.files import TOKENIZER_FILE, convert_tokenizer
from greenadapt.tokenization.words import (
    SPACE,
    SPACE_MARK,
    WordBounds,
    best_spelling,
    ends_word,
    from_byte_characters,
    is_of_spaced_word,
    to_byte_characters,
)

Kind = Literal["wordpiece", "bytelevel", "sentencepiece"]

# These treat chunks between ASCII spaces independently: they read single characters or runs of combining marks, and
# a space ends a run.
_CHUNKWISE_NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"}
_OF_SENTENCEPIECE = _CHUNKWISE_NORMALIZERS | {"Precompiled", "Nmt", "Strip"}
_CHUNKWISE_REPLACEMENTS = {  # of SentencePiece models; a chunk has no runs of spaces
    *((pattern, " ") for pattern in (" {2,}", r"\s", r"\s{2,}|[\n\r\t]")),
    *((" {2,}", SPACE), ("``", '"'), ("''", '"'), ("\u200b", "")),
}
_ASCII_WORD = {
    "wordpiece": re.compile(r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]"),
    "bytelevel": re.compile(r"(?!^)'(?:[sdmt]|re|ve|ll)|[A-Za-z]+|[0-9]+|[!-/:-@\[-`{-~]+"),
}
"""The words of a printable ASCII chunk after a space."""
_PLAIN_WORD = re.compile(r"\w+|[^\w\s]")
_ASCII_WHITESPACE = re.compile(r"[ \t\n\r]+")
_AGAIN = "download the files of the model's tokenizer again"


def load_tokenizer(path: Path) -> Tokenizer:
    """Load ``tokenizer.json`` (``path`` is the file or its folder) without truncation and padding.

    In a model's folder without the file, transformers creates the tokenizer from the vocabulary. Raises
    ``MissingError`` if there is neither, ``InputError`` if the files cannot be read.
    """
    file = path / TOKENIZER_FILE if path.is_dir() else path
    try:
        if file.is_file():
            tokenizer = Tokenizer.from_file(str(file))
        elif (path / "config.json").is_file():
            tokenizer = convert_tokenizer(path).backend_tokenizer
        else:
            raise MissingError(f"no tokenizer file {file}", f"give a model folder that has a {TOKENIZER_FILE}")
    except GreenadaptError:
        raise
    except BaseException as error:  # the library raises Exception; a panic of Rust is no Exception
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise InputError(f"{file} cannot be read by the tokenizers library ({error})", _AGAIN) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenizer_json(path: Path) -> bytes:
    """The bytes of ``tokenizer.json`` (``path`` is the file or its folder), created if the folder has none.

    Raises the errors of ``load_tokenizer``.
    """
    file = path / TOKENIZER_FILE if path.is_dir() else path
    return file.read_bytes() if file.is_file() else load_tokenizer(path).to_str().encode()


class WordSplitter:
    """Splits text into words with the tokenizer's normalizer and pre-tokenizer.

    Pre-tokens of SentencePiece models are split further, at ``bounds``. Special tokens in the text (a literal
    ``[SEP]``) are split like other text. ``kind`` is the kind of the model; ``lowercases`` says whether words are
    lower-cased.
    Raises ``InputError`` for unsupported kinds of tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._normalizer = tokenizer.normalizer
        self._pre_tokenizer = tokenizer.pre_tokenizer
        kind = find_kind(tokenizer)
        if kind is None:
            steps = [step["type"] for step in steps_of(tokenizer.pre_tokenizer, "pretokenizers")]
            model = type(tokenizer.model).__name__
            raise InputError(
                f"{model} tokenizers with pre-tokenizer {' + '.join(steps) or 'none'} are not supported",
                "use a model with a WordPiece tokenizer (BERT), a byte-level BPE one (RoBERTa, ModernBERT, Qwen), or a "
                "SentencePiece one (XLM-RoBERTa, DeBERTa, Gemma)",
            )
        self.kind: Kind = kind
        self.bounds = word_bounds(tokenizer)
        """Word bounds between the pieces of a SentencePiece model; ``None`` for other models."""
        self._pieces = Tokenizer(tokenizer.model)  # without added tokens
        for name in ("normalizer", "pre_tokenizer"):
            if (component := getattr(tokenizer, name)) is not None:
                setattr(self._pieces, name, component)
        self._special = frozenset(tokenizer.get_added_tokens_decoder())
        self.lowercases = self.normalize("A") == "a"
        self.chunkwise = _is_chunkwise(tokenizer)
        """Whether chunks between spaces can be split separately: the first by ``split``, others by ``split_chunk``."""
        self._ascii_word = _ASCII_WORD.get(self.kind)

    @classmethod
    def load(cls, path: Path) -> "WordSplitter":
        """Load the splitter of a ``tokenizer.json`` (``path`` is the file or its folder)."""
        tokenizer = load_tokenizer(path)
        try:
            return cls(tokenizer)
        except InputError as error:
            raise InputError(f"{path}: {error.message}", error.hint) from None

    def split(self, text: str) -> list[str]:
        """Split ``text`` into words: its pre-tokens without white space.

        No word contains a space, tab or line break.
        """
        if self.bounds is not None:
            return self._split_pieces(text, self.bounds)
        tokens = (token for token, _ in self._pre_tokenizer.pre_tokenize_str(self.normalize(text)))
        texts = (from_byte_characters(token, "replace") for token in tokens) if self.kind == "bytelevel" else tokens
        return _drop_white_space(texts)

    def split_chunk(self, chunk: str) -> list[str]:
        """Split ``chunk``, text without spaces after a space; only if ``chunkwise``."""
        if self._ascii_word is not None and chunk.isascii() and chunk.isprintable():
            return self._ascii_word.findall(chunk.lower() if self.lowercases else chunk)
        return self.split(f" {chunk}")

    def _split_pieces(self, text: str, bounds: WordBounds) -> list[str]:
        encoding = self._pieces.encode(text, add_special_tokens=False)
        words: list[str] = []
        last_kind = 0
        pre_token: int | None = None
        for piece, token, number, (begin, end) in zip(
            encoding.ids, encoding.tokens, encoding.word_ids, encoding.offsets, strict=True
        ):
            if piece in self._special and piece != bounds.unk_id:  # special tokens that are also pieces
                words += [*_PLAIN_WORD.findall(token), ""]
                continue
            first_kind, end_kind = bounds.of_piece(piece, text[begin:end])
            text_of_piece = text[begin:end] if piece == bounds.unk_id else bounds.of_bytes.get(piece, token)
            if number != pre_token or ends_word(last_kind, first_kind):
                words.append("")
            words[-1] += text_of_piece
            last_kind, pre_token = end_kind, number
        # Surrogates represent bytes of characters without a piece.
        texts = (
            word if word.isprintable() else word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            for word in words
        )
        return _drop_white_space(text.replace(SPACE, " ") for text in texts)

    def normalize(self, text: str) -> str:
        """Apply the tokenizer's normalizer."""
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))


def _drop_white_space(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in _ASCII_WHITESPACE.split(text) if word and not word.isspace()]


def find_kind(tokenizer: Tokenizer) -> Kind | None:
    """The kind of a tokenizer; ``None`` if it is not supported."""
    model = type(tokenizer.model).__name__
    steps = [step["type"] for step in steps_of(tokenizer.pre_tokenizer, "pretokenizers")]
    if model == "WordPiece" and steps and "Metaspace" not in steps:
        return "wordpiece"
    if model == "BPE" and "ByteLevel" in steps:
        return "bytelevel"
    is_split = model in ("Unigram", "BPE") and "Metaspace" in steps
    return "sentencepiece" if is_split or reads_whole_texts(tokenizer) else None


def reads_whole_texts(tokenizer: Tokenizer) -> bool:
    """Whether a text with its spaces is one pre-token, as in the SentencePiece BPE of Llama 2 and Gemma."""
    if type(tokenizer.model).__name__ != "BPE":
        return False
    steps = steps_of(tokenizer.pre_tokenizer, "pretokenizers")
    at_space: dict[str, Any] = {"pattern": {"String": " "}}
    marks = {"type": "Replace", "content": SPACE, **at_space} in steps_of(tokenizer.normalizer, "normalizers")
    by_metaspace = [step["type"] == "Metaspace" and not step["split"] for step in steps]
    # Gemma splits at spaces, which its normalizer has replaced.
    has_no_effect = [marks and step["type"] == "Split" and step["pattern"] == at_space["pattern"] for step in steps]
    return (marks or any(by_metaspace)) and all(map(max, by_metaspace, has_no_effect))


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """The id of the unknown token; ``None`` if there is none, as where unknown text is spelled in bytes.

    Raises ``InputError`` if a Unigram model has neither.
    """
    if type(tokenizer.model).__name__ != "Unigram":
        name = tokenizer.model.unk_token
        return None if name is None else tokenizer.model.token_to_id(name)
    # The library has no method for it; this code point is not a character, so no vocabulary contains it.
    try:
        ids = Tokenizer(tokenizer.model).encode("\U0010ffff", add_special_tokens=False).ids
    except Exception as error:  # the library raises Exception
        raise InputError(
            f"the tokenizer cannot encode unknown text ({error})", "use the model's own tokenizer.json"
        ) from None
    return int(ids[0]) if len(ids) == 1 else None


def word_bounds(tokenizer: Tokenizer) -> WordBounds | None:
    """The word bounds of a SentencePiece model; ``None`` for other models, whose words are pre-tokens."""
    return WordBounds.of(tokenizer, unknown_id(tokenizer)) if find_kind(tokenizer) == "sentencepiece" else None


def _is_chunkwise(tokenizer: Tokenizer) -> bool:
    if reads_whole_texts(tokenizer):
        return False
    normalizers = steps_of(tokenizer.normalizer, "normalizers")
    *preceding, final = steps_of(tokenizer.pre_tokenizer, "pretokenizers")
    if final["type"] == "Metaspace":
        splits = final["prepend_scheme"] == "always" and final["split"]
        at_spaces = bool(splits) and all(step["type"] == "WhitespaceSplit" for step in preceding)
        return at_spaces and all(map(_normalizes_chunkwise, normalizers))
    alone = not preceding and (final["type"] == "BertPreTokenizer" or bool(final.get("use_regex")))
    return alone and _CHUNKWISE_NORMALIZERS.issuperset(step["type"] for step in normalizers)


def _normalizes_chunkwise(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        return all((pattern, step["content"]) in _CHUNKWISE_REPLACEMENTS for pattern in step["pattern"].values())
    return step["type"] in _OF_SENTENCEPIECE


def steps_of(component: Any, members: str) -> list[dict[str, Any]]:
    """The configurations of the steps of ``component``, a normalizer or pre-tokenizer of the library or its JSON."""
    if component is None:
        return []
    state: dict[str, Any] = component if isinstance(component, dict) else json.loads(component.__getstate__())
    return list(state[members]) if state["type"] == "Sequence" else [state]


CONTINUES = "##"
"""WordPiece's mark of pieces that do not begin a word."""


class BaseVocabulary:
    """Looks up words in a tokenizer's vocabulary; a word is a normalised pre-token, or a part of it (SentencePiece).

    With byte-level BPE and SentencePiece a word includes its leading-space mark unless ``marked=False``.
    Raises ``InputError`` for unsupported kinds of tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        splitter = WordSplitter(tokenizer)
        self.kind, self._bounds = splitter.kind, splitter.bounds
        self.whole_texts = reads_whole_texts(tokenizer)
        """Whether a SentencePiece model reads whole texts: a row belongs only to the word after a space."""
        self.at_spaces = self.kind == "sentencepiece" and not self.whole_texts
        """Whether a SentencePiece model splits at spaces: a row belongs to the word with and without the mark."""
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
        self._model = Tokenizer(tokenizer.model)  # without pre-tokenizer: the input is one pre-token

    @property
    def merged(self) -> list[str]:
        """The vocabulary strings without added tokens and single bytes."""
        of_bytes = self._bounds.of_bytes if self._bounds is not None else {}
        added = self.tokenizer.get_added_tokens_decoder()
        return [entry for entry, row in self._entries.items() if row not in added and row not in of_bytes]

    @cached_property
    def whole_words(self) -> dict[str, int]:
        """Word → id of its base row, for words that are one piece; without special tokens."""
        entries = sorted((row, entry) for entry, row in self._entries.items() if row not in self.special_ids)
        candidates = {word: row for row, entry in entries if (word := self._word(entry))}
        pieces = self._usual_pieces(candidates)
        if self._bounds is not None:
            return {word: ids[0] for word, ids in zip(candidates, pieces, strict=True) if len(ids) == 1}
        return {word: row for (word, row), ids in zip(candidates.items(), pieces, strict=True) if ids == [row]}

    def _usual_pieces(self, words: Iterable[str]) -> list[list[int]]:
        """The pieces of each word in its most frequent form.

        With SentencePiece, punctuation and scripts without spaces are without the mark, since they follow other words
        more often than spaces; a separate piece for the mark is dropped.
        """
        if self._bounds is None:
            return self._encode(self.entries(words))
        entries = (SPACE + word if all(map(is_of_spaced_word, word)) else word for word in words)
        mark = self._entries.get(SPACE)
        return [ids[1:] if ids[0] == mark else ids for ids in self._encode(entries)]

    def is_cut(self, word: str, pieces: Sequence[int]) -> bool:
        """Whether ``pieces``, those of ``word``, are more than one; ``[UNK]`` counts as more than one.

        The pieces of a SentencePiece model must also belong to no other word, and none may be unknown.
        """
        if self._bounds is None:
            return len(pieces) > 1 or pieces == [self.unk_id]
        has_mark = pieces[:1] == [self._entries.get(SPACE)]
        n_pieces = len(pieces) - has_mark
        return n_pieces > 1 and all(map(is_of_spaced_word, word)) and self.is_one_word(pieces)

    def is_one_word(self, pieces: Sequence[int]) -> bool:
        """Whether ``pieces`` of a SentencePiece model are recognized as one word within a text."""
        assert self._bounds is not None
        return self.unk_id not in pieces and self._bounds.is_one_word(pieces)

    def pieces(self, words: Sequence[str], *, marked: bool = True) -> list[list[int]]:
        """The base ids of each word's pieces; a WordPiece word may be ``[UNK]``."""
        return self._encode(self.entries(words, marked=marked))

    def _encode(self, entries: Iterable[str]) -> list[list[int]]:
        encodings = self._model.encode_batch_fast(list(entries), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def pieces_without_row(self, words: Iterable[str]) -> list[list[int]]:
        """The base ids of the pieces of each of the ``whole_words`` without its row; empty if no other pieces spell it.

        WordPiece begins with the longest other entry, BPE skips the last merge, and Unigram uses the most likely other
        pieces.
        """
        if self.kind == "wordpiece":
            return [self._find_spelling(word) for word in words]
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

    def _find_spelling(self, word: str) -> list[int]:
        for end in range(len(word) - 1, 0, -1):
            if word[:end] in self._entries:
                encoding = self._model.encode(CONTINUES + word[end:], add_special_tokens=False)
                is_spelled = encoding.tokens[0].startswith(CONTINUES) and self.unk_id not in encoding.ids
                return [self._entries[word[:end]], *encoding.ids] if is_spelled else []
        return []

    def entries(self, words: Iterable[str], *, marked: bool = True) -> Iterable[str]:
        """The vocabulary string of each word: the word, or its bytes with byte-level BPE.

        If ``marked``, it begins with ``Ġ`` in byte-level BPE and with ``▁`` in SentencePiece.
        """
        if self.kind == "wordpiece":
            return words
        if self.kind == "sentencepiece":
            return (SPACE + word if marked else word for word in words)
        mark = SPACE_MARK if marked else ""
        return (mark + to_byte_characters(word) for word in words)

    def _word(self, entry: str) -> str | None:
        """The word of ``entry``; ``None`` if it is only a part of words."""
        if self.kind == "wordpiece":
            return None if entry.startswith(CONTINUES) else entry
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
