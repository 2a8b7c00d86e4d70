"""Text to words, exactly as a model's own tokenizer pre-tokenizes it."""

import json
import re
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from greenadapt.errors import InputError, MissingError
from greenadapt.tokenization.bytelevel import from_byte_characters

# These treat the text between two ASCII spaces independently: they look at single characters or runs of combining
# marks, and a space ends a run.
_CHUNKWISE_NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"}
_ASCII_WORD = {
    "wordpiece": re.compile(r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]"),
    "bytelevel": re.compile(r"(?!^)'(?:[sdmt]|re|ve|ll)|[A-Za-z]+|[0-9]+|[!-/:-@\[-`{-~]+"),
}
"""What the pre-tokenizer matches in a printable ASCII chunk that follows a space."""
WORD_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})
"""Unicode categories whose every character is ``\\w`` to the tokenizers library, where added tokens end."""
_ASCII_WHITESPACE = re.compile(r"[ \t\n\r]+")


def load_tokenizer(path: Path) -> Tokenizer:
    """Read ``tokenizer.json`` (``path`` is the file or its folder) with truncation and padding switched off.

    Raises ``MissingError`` if there is no such file, ``InputError`` if it cannot be read.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise MissingError(f"no tokenizer file {file}", "give a model folder that has a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{file} cannot be read by the tokenizers library ({error})") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class WordSplitter:
    """Splits text into words with the tokenizer's normalizer and pre-tokenizer.

    Special tokens in the text (a literal ``[SEP]``) are split like other text.
    ``kind`` says how the model cuts a word into pieces; ``lowercases`` whether words are lower-cased.
    Raises ``InputError`` for tokenizers whose words are not supported (SentencePiece, for instance).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._normalizer = tokenizer.normalizer
        self._pre_tokenizer = tokenizer.pre_tokenizer
        self.kind = _kind(tokenizer)
        self.lowercases = self.normalize("A") == "a"
        self.chunkwise = _is_chunkwise(tokenizer)
        """Whether a text can be split chunk by chunk: its first chunk, then the others by ``split_chunk``."""
        self._ascii_word = _ASCII_WORD[self.kind]

    def split(self, text: str) -> list[str]:
        """The words of ``text``: its pre-tokens without whitespace.

        No word contains a space, tab or line break.
        """
        tokens = (token for token, _ in self._pre_tokenizer.pre_tokenize_str(self.normalize(text)))
        texts = (from_byte_characters(token, "replace") for token in tokens) if self.kind == "bytelevel" else tokens
        return [word for text in texts for word in _ASCII_WHITESPACE.split(text) if word and not word.isspace()]

    def split_chunk(self, chunk: str) -> list[str]:
        """The words of ``chunk``, a piece of text without spaces that follows a space; only if ``chunkwise``."""
        if chunk.isascii() and chunk.isprintable():
            words: list[str] = self._ascii_word.findall(chunk.lower() if self.lowercases else chunk)
            return words
        return self.split(f" {chunk}")

    def normalize(self, text: str) -> str:
        """``text`` after the tokenizer's normalizer."""
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))


def _kind(tokenizer: Tokenizer) -> Literal["wordpiece", "bytelevel"]:
    model = type(tokenizer.model).__name__
    steps = [step["type"] for step in _steps(tokenizer.pre_tokenizer, "pretokenizers")]
    if model == "WordPiece" and steps and "Metaspace" not in steps:
        return "wordpiece"
    if model == "BPE" and "ByteLevel" in steps:
        return "bytelevel"
    known = {"Unigram": "Unigram (SentencePiece)"}.get(model, model)
    raise InputError(
        f"{known} tokenizers with pre-tokenizer {' + '.join(steps) or 'none'} are not supported for now",
        "use a model with a WordPiece tokenizer (BERT) or a byte-level BPE one (RoBERTa, ModernBERT)",
    )


def _is_chunkwise(tokenizer: Tokenizer) -> bool:
    normalizers = [step["type"] for step in _steps(tokenizer.normalizer, "normalizers")]
    splits = _steps(tokenizer.pre_tokenizer, "pretokenizers")
    alone = len(splits) == 1 and (splits[0]["type"] == "BertPreTokenizer" or bool(splits[0].get("use_regex")))
    return alone and _CHUNKWISE_NORMALIZERS.issuperset(normalizers)


def _steps(component: Any, members: str) -> list[dict[str, Any]]:
    """The configuration of a normalizer or pre-tokenizer, sequences unrolled."""
    if component is None:
        return []
    state: dict[str, Any] = json.loads(component.__getstate__())
    return list(state[members]) if state["type"] == "Sequence" else [state]
