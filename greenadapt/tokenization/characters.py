"""Which characters words are made of, to tokenizers that leave punctuation in their pre-tokens."""

import re
import unicodedata

import numpy as np

from greenadapt.storage.arrays import BoolArray, IntArray

WORD_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})
"""Unicode categories whose every character is ``\\w`` to the tokenizers library, where added tokens end."""
# Thai and Lao, Myanmar, Khmer, Han and kana with their signs.
UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
"""The characters of scripts that set no spaces between words, as a regular expression."""
_UNSPACED = re.compile(UNSPACED)
_JOINERS = "\u200c\u200d"  # within words, of Persian and Hindi for example


_FIRST_COMPOSED = 0x300


def composes(characters: IntArray) -> BoolArray:
    """Which code points (n,) are parts of the character before them: marks, and all but the first letter of Hangul."""
    found = np.zeros(len(characters), bool)
    later = np.flatnonzero(characters >= _FIRST_COMPOSED)
    kinds, which = np.unique(characters[later], return_inverse=True)
    found[later] = np.array([_composes(chr(code)) for code in kinds.tolist()], bool)[which]
    return found


def _composes(character: str) -> bool:
    is_jamo = "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff"
    return is_jamo or unicodedata.category(character).startswith("M")


def is_of_spaced_word(character: str) -> bool:
    r"""Whether it is ``\w``, of a script that sets spaces between words."""
    is_of_word = unicodedata.category(character) in WORD_CATEGORIES or character in _JOINERS
    return is_of_word and not _UNSPACED.match(character)
