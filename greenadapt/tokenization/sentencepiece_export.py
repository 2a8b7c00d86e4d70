"""The ``tokenizer.json`` of a SentencePiece model with whole words that plain transformers finds."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any

from greenadapt.storage.files import Json
from greenadapt.tokenization.characters import UNSPACED, is_of_spaced_word
from greenadapt.tokenization.sentencepiece import SPACE

_WHITE = r"\s+"
_OF_ONE_TOKEN = r"^ (?=(\w+|<\w+>|\[\w+\])$)"
_WORD = f"(?:(?!{UNSPACED})[\\w\\x{{200C}}\\x{{200D}}])"
_SECOND_SPACE = f"^ (?=[ {SPACE}])"


def with_words(base: Json, words: list[str], first_id: int) -> Json:
    r"""``base`` with an ``AddedToken`` for each of ``words``, from ``first_id`` on.

    The library takes added tokens out of the text before the pre-tokenizer sets a mark before what is left, so that
    the text behind a word would get a mark of its own. Here the normalizer sets it: it runs before normalized tokens
    are taken out, and once for each text between special ones. Tokens also take the space before them (``lstrip``).
    Since the normalizer is run on a token's content, too, it sets no mark before a word alone; the pre-tokenizer does
    where a text begins. A pre-tokenizer that does more than to split at spaces stays as it is, with marks of its own.
    """
    tokens = [_token(word, first_id + i) for i, word in enumerate(words)]
    changed = {**base, "added_tokens": [*base["added_tokens"], *tokens]}
    steps = _steps(base["pre_tokenizer"], "pretokenizers")
    if not _is_known(steps):
        return changed
    normalizers = [*map(_with_spaces, _steps(base["normalizer"], "normalizers"))]
    if len(steps) > 1:  # WhitespaceSplit, which drops the spaces that the tokens are to take
        normalizers += [_replace(_WHITE, " "), {"type": "Strip", "strip_left": False, "strip_right": True}]
    normalizers += [{"type": "Prepend", "prepend": " "}, _replace(_OF_ONE_TOKEN, ""), _replace(_SECOND_SPACE, "")]
    pre_tokenizer = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": True}
    return {**changed, "normalizer": {"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": pre_tokenizer}


def with_pre_tokens(base: Json, entries: Iterable[str]) -> Json:
    """``base``, a BPE that reads whole texts, with a pre-token of its own for each word behind a space.

    ``entries`` are what its merges make. Two characters that stand side by side in one of them are not parted, so that
    every text is still merged as before: merges stay within the pre-tokens.
    """
    left: set[str] = set()
    right: defaultdict[str, set[str]] = defaultdict(set)
    for before, after in chain.from_iterable(map(pairwise, entries)):
        if after == SPACE:
            left.add(before)
        elif is_of_spaced_word(before) and not is_of_spaced_word(after):
            right[before].add(after)
    not_behind = f"(?<!{_one_of(left)})" if left else ""
    not_before = "".join(f"(?!(?<={_one_of(before)}){_one_of(after)})" for before, after in sorted(right.items()))
    pattern = f"{not_behind}{SPACE}{_WORD}+(?!{_WORD}){not_before}"
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    steps = [*_steps(base["pre_tokenizer"], "pretokenizers"), cut]
    return {**base, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def _one_of(characters: Iterable[str]) -> str:
    return "[" + "".join(f"\\x{{{ord(character):X}}}" for character in sorted(characters)) + "]"


def is_pre_token(entry: str) -> bool:
    """Whether an entry can be one of those pre-tokens."""
    return entry.startswith(SPACE) and len(entry) > 1 and all(map(is_of_spaced_word, entry[1:]))


def _is_known(steps: list[Json]) -> bool:
    """Whether the pre-tokenizer only splits at spaces and sets a mark before each part."""
    kinds = [step["type"] for step in steps]
    return kinds in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]) and (
        steps[-1].get("prepend_scheme", "always") == "always" and steps[-1].get("add_prefix_space", True)
    )


def _with_spaces(normalizer: Json) -> Json:
    """The same, writing spaces in place of marks, which become one later."""
    return {**normalizer, "content": " "} if normalizer.get("content") == SPACE else normalizer


def _steps(component: Json | None, members: str) -> list[Json]:
    if component is None:
        return []
    parts: list[Json] = component[members] if component["type"] == "Sequence" else [component]
    return parts


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _token(content: str, row: int) -> dict[str, Any]:
    return {
        "id": row, "content": content, "single_word": True, "lstrip": True, "rstrip": False, "normalized": True,
        "special": False,
    }  # fmt: skip
