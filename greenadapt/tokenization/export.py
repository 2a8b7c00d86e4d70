"""Write the expanded tokenizer for plain transformers, and the base tokenizer beside it."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from greenadapt.config import OovRule
from greenadapt.errors import InputError
from greenadapt.storage.files import Json, read_object
from greenadapt.tokenization.added_words import WORDS_FILE, NewEntries
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER
from greenadapt.tokenization.files import (
    ADDED_FILE,
    FILES_OF_SETTINGS,
    MAP_FILE,
    SETTINGS_FILE,
    TOKENIZER_FILE,
    VocabularyFolder,
    end_names,
    read_settings,
    special_names,
)
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer, tokenizer_json
from greenadapt.tokenization.words import SPACE, UNSPACED, is_of_spaced_word

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


_BASE_FILES = (*FILES_OF_SETTINGS, ADDED_FILE, "vocab.txt", "vocab.json", "merges.txt")


@dataclass(frozen=True)
class ExportReport:
    """Where the exported tokenizer deviates from the word rule; DualTokenizer never does."""

    hidden_words: int
    r"""Added words that plain transformers will not find: some character is not ``\w``, or is an ideograph; with
    SentencePiece, a piece of other words is spelled so.
    """
    changed_entries: list[str]
    """Base entries that BPE merges never produce, but ``ignore_merges`` now does for such a word."""


def copy_tokenizers(source: Path, folder: Path) -> None:
    """Copy the tokenizer of a model's folder; if expanded, also the base tokenizer and the added words.

    A ``tokenizer.json`` is written even if the folder has only a vocabulary.
    """
    (folder / TOKENIZER_FILE).write_bytes(tokenizer_json(source))
    _copy_base_files(source, folder)
    copy_views(source, folder)


def copy_views(source: Path, folder: Path) -> None:
    """Copy what an expanded model's folder has beside its exported tokenizer, if anything."""
    _copy_files(source, folder, (WORDS_FILE,))
    if (source / BASE_FOLDER).is_dir():
        (folder / BASE_FOLDER).mkdir(exist_ok=True)
        copy_tokenizers(source / BASE_FOLDER, folder / BASE_FOLDER)


def export_tokenizers(  # noqa: PLR0913
    vocabulary: BaseVocabulary,
    source: Path,
    folder: Path,
    entries: NewEntries,
    first_id: int,
    oov: OovRule,
    *,
    is_generative: bool = False,
) -> ExportReport:
    """Write the tokenizer of ``source``, expanded, into ``folder``, and unchanged into ``base_tokenizer/``.

    The files are copied from ``source`` byte for byte, except that truncation and padding are off in ``tokenizer.json``
    of both (they would cut what transformers should encode whole); the expanded one is in ``tokenizer.json`` alone,
    since transformers would rebuild it from a ``vocab.txt`` beside it. New entry ``i`` has id ``first_id + i``.
    ``is_generative``: of a generative language model, which has no special tokens to frame a text with.
    Raises ``InputError`` if the library would give other ids.
    """
    base = _without_truncation(json.loads(tokenizer_json(source)))
    _write_base(source, folder / BASE_FOLDER, base)
    changed: list[str] = []
    if vocabulary.at_spaces:
        n_hidden = _n_hidden(entries)
        begin = first_id + n_hidden
        expanded = with_words(_padded(base, vocabulary, begin), entries.surfaces()[n_hidden:], begin)
    elif vocabulary.kind == "wordpiece" and oov == "base":
        expanded = with_added_tokens(base, vocabulary, entries, first_id)
    else:
        expanded = with_entries(base, vocabulary, entries, first_id)
        changed = [] if vocabulary.kind == "wordpiece" else unreachable_entries(vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / TOKENIZER_FILE, expanded)
    _write_json(folder / SETTINGS_FILE, _settings(source, vocabulary, is_generative=is_generative))
    _copy_files(source, folder, (MAP_FILE,))
    _check_ids(folder / TOKENIZER_FILE, vocabulary, entries, first_id)
    return ExportReport(_n_hidden(entries), changed)


def with_added_tokens(base: Json, vocabulary: BaseVocabulary, entries: NewEntries, first_id: int) -> Json:
    """``base`` with every exported word as an ``AddedToken`` that is matched as a whole word, after normalization.

    Placeholders take the ids of hidden words, which come first.
    """
    n_hidden = _n_hidden(entries)
    padded = _padded(base, vocabulary, first_id + n_hidden)
    surfaces = entries.surfaces()[n_hidden:]
    words = [_added_token(word, first_id + i) for i, word in enumerate(surfaces, n_hidden)]
    return {**padded, "added_tokens": [*base["added_tokens"], *words]}


def with_entries(base: Json, vocabulary: BaseVocabulary, entries: NewEntries, first_id: int) -> Json:
    """``base`` with every new entry in the vocabulary of its model.

    BPE matches it as a whole pre-token, with ``ignore_merges``; WordPiece also at the start of longer words, as the
    paper's own code does. A BPE that reads whole texts gets a pre-token of each word behind a space.
    """
    model = _with_placeholders(base, vocabulary, first_id)
    model["vocab"] |= {string: first_id + i for i, string in enumerate(entries.strings(vocabulary))}
    if vocabulary.kind != "wordpiece":
        model["ignore_merges"] = True
    expanded = {**base, "model": model}
    return with_pre_tokens(expanded, vocabulary.merged) if vocabulary.whole_texts else expanded


def unreachable_entries(vocabulary: BaseVocabulary) -> list[str]:
    """Base vocabulary strings of a BPE that its merges cut into several pieces.

    ``ignore_merges`` keeps such a string as one piece if it is a whole pre-token; a vocabulary trained together with
    its merges has none.
    """
    tokenizer = vocabulary.tokenizer
    special = set(tokenizer.get_added_tokens_decoder())
    entries = {entry: i for entry, i in tokenizer.get_vocab(with_added_tokens=False).items() if i not in special}
    encodings = Tokenizer(tokenizer.model).encode_batch_fast(list(entries), add_special_tokens=False)
    cut = (entry for (entry, i), e in zip(entries.items(), encodings, strict=True) if e.ids != [i])
    return sorted(entry for entry in cut if not vocabulary.whole_texts or is_pre_token(entry))


def _n_hidden(entries: NewEntries) -> int:
    return int((~entries.exported).sum())


def _padded(base: Json, vocabulary: BaseVocabulary, end: int) -> Json:
    """``base`` with placeholders for all ids below ``end`` that it lacks."""
    return {**base, "model": _with_placeholders(base, vocabulary, end)} if end > vocabulary.size else base


def _with_placeholders(base: Json, vocabulary: BaseVocabulary, end: int) -> Json:
    """The model of ``base``, whose vocabulary has all ids below ``end``, also where ``vocab.txt`` repeats an entry.

    So embedding rows that no text can produce (of hidden words, and padding) have an id in the tokenizer, and a token
    added by a user gets none of them. Added tokens of the base go into the vocabulary, since the library would
    otherwise number them after it.
    """
    added = {token["content"]: token["id"] for token in base["added_tokens"]}
    # A string with a space is never a pre-token, nor the start of one, so no text produces it, not even its own.
    pieces = base["model"]["vocab"]
    used = set() if base["model"]["type"] == "Unigram" else {*pieces.values(), *added.values()}
    first = vocabulary.size if base["model"]["type"] == "Unigram" else 0
    placeholders = {f"unused row {i}": i for i in range(first, end) if i not in used}
    if base["model"]["type"] == "Unigram":
        more = sorted((added | placeholders).items(), key=lambda each: each[1])
        return {**base["model"], "vocab": [*pieces, *([entry, 0.0] for entry, row in more if row >= len(pieces))]}
    return {**base["model"], "vocab": {**pieces, **added, **placeholders}}


def _added_token(word: str, row: int) -> Json:
    return {
        "id": row, "content": word, "single_word": True, "lstrip": False, "rstrip": False, "normalized": True,
        "special": False,
    }  # fmt: skip


def _without_truncation(tokenizer: Json) -> Json:
    return {**tokenizer, "truncation": None, "padding": None}


def _write_base(source: Path, folder: Path, base: Json) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _copy_base_files(source, folder)
    original = tokenizer_json(source)
    if json.loads(original) == base:
        (folder / TOKENIZER_FILE).write_bytes(original)
    else:
        _write_json(folder / TOKENIZER_FILE, base)


def _copy_base_files(source: Path, folder: Path) -> None:
    """Copy what a tokenizer has beside ``tokenizer.json``, without settings that name code.

    Settings of a folder with only a vocabulary get the class that its ``config.json`` tells.
    """
    _copy_files(source, folder, _BASE_FILES)
    file = folder / SETTINGS_FILE
    names_code = file.is_file() and b'"auto_map"' in file.read_bytes()
    if names_code or not (source / TOKENIZER_FILE).is_file():
        copied = read_object(file, "model folder", "download the model again") if file.is_file() else {}
        _write_json(file, _own_settings(source, copied))


def _own_settings(source: Path, settings: Json) -> Json:
    """``settings`` without ``auto_map``, which names code of the model that is not copied, and with the tokenizer's
    class and the special tokens that this has, if ``source`` has only a vocabulary.
    """
    own = {name: value for name, value in settings.items() if name != "auto_map"}
    if not (source / TOKENIZER_FILE).is_file():
        found = VocabularyFolder.find(source)
        own |= {"tokenizer_class": found.tokenizer_class, **found.unsaid}
    return own


def _copy_files(source: Path, folder: Path, names: Iterable[str]) -> None:
    """Copy the existing files byte for byte."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _settings(source: Path, vocabulary: BaseVocabulary, *, is_generative: bool) -> Json:
    """``tokenizer_config.json`` of the expanded tokenizer."""
    settings = _own_settings(source, read_settings(source))
    if vocabulary.kind == "wordpiece":
        return settings
    # The classes of transformers would rebuild the model and drop ignore_merges, or another normalizer; their built-in
    # settings have to be written here.
    if is_generative:
        own = end_names(vocabulary.tokenizer, read_object(source / "config.json", "model folder", "download it again"))
    else:
        names = special_names(vocabulary.tokenizer, settings)
        own = {"bos_token": names["cls_token"], "eos_token": names["sep_token"], **names}
    types = ["token_type_ids"] if any(vocabulary.tokenizer.encode("a", "a").type_ids) else []
    settings = {"model_input_names": ["input_ids", *types, "attention_mask"], **own, **settings}
    return {**settings, "tokenizer_class": "PreTrainedTokenizerFast"}


def _check_ids(file: Path, vocabulary: BaseVocabulary, entries: NewEntries, first_id: int) -> None:
    tokenizer = load_tokenizer(file)
    n_hidden = _n_hidden(entries)
    strings = entries.surfaces() if vocabulary.at_spaces else entries.strings(vocabulary)
    for i, string in enumerate(strings[n_hidden:], n_hidden):
        if tokenizer.token_to_id(string) != first_id + i:
            raise InputError(
                f"{file}: {string!r} has id {tokenizer.token_to_id(string)}, its row is {first_id + i}",
                "the ids of the base tokenizer have gaps; load it with transformers and save it again",
            )


def _write_json(path: Path, content: Json) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
