"""Write the expanded tokenizer for transformers, and the base tokenizer beside it."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, pairwise
from pathlib import Path

from greenadapt.config import OovRule
from greenadapt.errors import InputError
from greenadapt.store.files import Json
from greenadapt.tokenization.added_words import WORDS_FILE, NewEntries
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER
from greenadapt.tokenization.files import (
    ADDED_FILE,
    FILES_OF_SETTINGS,
    MAP_FILE,
    SETTINGS_FILE,
    TOKENIZER_FILE,
    convert_tokenizer,
    read_existing,
    read_settings,
    special_names,
    special_tokens,
)
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer, steps_of, tokenizer_json
from greenadapt.tokenization.words import SPACE, UNSPACED, is_of_spaced_word

_WHITE = r"\s+"
_SINGLE_TOKEN = r"^ (?=(\w+|<\w+>|\[\w+\])$)"
_WORD = f"(?:(?!{UNSPACED})[\\w\\x{{200C}}\\x{{200D}}])"
_SECOND_SPACE = f"^ (?=[ {SPACE}])"


def with_words(base: Json, words: list[str], first_id: int, *, at_spaces: bool) -> Json:
    r"""Add an ``AddedToken`` for each of ``words`` to ``base``, with ids from ``first_id`` on: whole words after
    normalization.

    ``at_spaces``: the model is SentencePiece's. The library extracts added tokens before the pre-tokenizer adds space
    marks, so that the text after a word would get an extra mark. Here the normalizer adds the marks: it runs before
    normalized tokens are extracted, once for each text between special tokens. Tokens also consume the space before
    them (``lstrip``). The normalizer also runs on the content of a token, so it adds no mark to a single word; the
    pre-tokenizer does at the beginning of a text. A pre-tokenizer that does more than split at spaces does not change.
    """
    flags = {"single_word": True, "lstrip": at_spaces, "rstrip": False, "normalized": True, "special": False}
    tokens = [{"id": row, "content": word, **flags} for row, word in enumerate(words, first_id)]
    changed = {**base, "added_tokens": [*base["added_tokens"], *tokens]}
    steps = steps_of(base["pre_tokenizer"], "pretokenizers")
    if not at_spaces or not _is_known(steps):
        return changed
    normalizers = steps_of(base["normalizer"], "normalizers")  # they write spaces instead of marks
    normalizers = [{**step, "content": " "} if step.get("content") == SPACE else step for step in normalizers]
    if len(steps) > 1:  # WhitespaceSplit, which drops the spaces that tokens consume
        normalizers += [_replace(_WHITE, " "), {"type": "Strip", "strip_left": False, "strip_right": True}]
    normalizers += [{"type": "Prepend", "prepend": " "}, _replace(_SINGLE_TOKEN, ""), _replace(_SECOND_SPACE, "")]
    pre_tokenizer = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": True}
    return {**changed, "normalizer": {"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": pre_tokenizer}


def with_pre_tokens(base: Json, entries: Iterable[str]) -> Json:
    """Make each word after a space a pre-token of ``base``, a BPE that reads whole texts.

    ``entries`` are the results of its merges. Adjacent characters of an entry are never split, so every merge stays
    within a pre-token, and the pieces of a text do not change.
    """
    before_space: set[str] = set()
    successors: defaultdict[str, set[str]] = defaultdict(set)
    for before, after in chain.from_iterable(map(pairwise, entries)):
        if after == SPACE:
            before_space.add(before)
        elif is_of_spaced_word(before) and not is_of_spaced_word(after):
            successors[before].add(after)
    not_behind = f"(?<!{_character_class(before_space)})" if before_space else ""
    not_before = "".join(
        f"(?!(?<={_character_class(before)}){_character_class(after)})" for before, after in sorted(successors.items())
    )
    pattern = f"{not_behind}{SPACE}{_WORD}+(?!{_WORD}){not_before}"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    steps = [*steps_of(base["pre_tokenizer"], "pretokenizers"), split]
    return {**base, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def _character_class(characters: Iterable[str]) -> str:
    return "[" + "".join(f"\\x{{{ord(character):X}}}" for character in sorted(characters)) + "]"


def _is_known(steps: list[Json]) -> bool:
    """Whether the pre-tokenizer only splits at spaces and adds a mark to each part."""
    kinds = [step["type"] for step in steps]
    return kinds in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]) and (
        steps[-1].get("prepend_scheme", "always") == "always" and steps[-1].get("add_prefix_space", True)
    )


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


_BASE_FILES = (*FILES_OF_SETTINGS, ADDED_FILE, "vocab.txt", "vocab.json", "merges.txt")


def copy_tokenizers(source: Path, folder: Path) -> None:
    """Copy the tokenizer of a model; of an expanded model, also the base tokenizer and the added words.

    Writes a ``tokenizer.json`` even if the folder has only a vocabulary.
    """
    (folder / TOKENIZER_FILE).write_bytes(tokenizer_json(source))
    _copy_base_files(source, folder)
    _copy_files(source, folder, (WORDS_FILE,))
    if (source / BASE_FOLDER).is_dir():
        (folder / BASE_FOLDER).mkdir(exist_ok=True)
        copy_tokenizers(source / BASE_FOLDER, folder / BASE_FOLDER)


def export_tokenizers(
    vocabulary: BaseVocabulary, source: Path, folder: Path, entries: NewEntries, first_id: int, oov: OovRule
) -> int:
    r"""Write the expanded tokenizer of ``source`` into ``folder``, and the base tokenizer into ``base_tokenizer/``.

    Files are copied byte for byte, except that both ``tokenizer.json`` are without truncation and padding, so that
    transformers encodes whole texts. The expanded tokenizer has no ``vocab.txt``, from which transformers would rebuild
    it. New entry ``i`` has id ``first_id + i``.
    Returns the number of entries that transformers cannot find: a character is an ideograph or not ``\w``, or the word
    is also a SentencePiece piece of other words. Raises ``InputError`` if the library assigns other ids.
    """
    original = tokenizer_json(source)
    loaded = json.loads(original)
    base = {**loaded, "truncation": None, "padding": None}
    (folder / BASE_FOLDER).mkdir(parents=True, exist_ok=True)
    _copy_base_files(source, folder / BASE_FOLDER)
    if loaded == base:
        (folder / BASE_FOLDER / TOKENIZER_FILE).write_bytes(original)
    else:
        _write_json(folder / BASE_FOLDER / TOKENIZER_FILE, base)
    n_hidden = int((~entries.exported).sum())
    first_exported = first_id + n_hidden
    if vocabulary.at_spaces or (vocabulary.kind == "wordpiece" and oov == "base"):
        strings = entries.surfaces()[n_hidden:]
        has_gap = first_exported > vocabulary.size
        padded = {**base, "model": _with_placeholders(base, vocabulary, first_exported)} if has_gap else base
        expanded = with_words(padded, strings, first_exported, at_spaces=vocabulary.at_spaces)
    else:
        strings = entries.strings(vocabulary)
        expanded = with_entries(base, vocabulary, strings, first_id)
    _write_json(folder / TOKENIZER_FILE, expanded)
    _write_json(folder / SETTINGS_FILE, _settings(source, vocabulary))
    _copy_files(source, folder, (MAP_FILE,))
    _check_ids(folder / TOKENIZER_FILE, strings, first_exported)
    return n_hidden


def with_entries(base: Json, vocabulary: BaseVocabulary, entries: list[str], first_id: int) -> Json:
    """Add the new ``entries`` to the vocabulary of ``base``.

    With ``ignore_merges`` BPE matches it as a whole pre-token; WordPiece also at the start of longer words, as in the
    paper's code. In a BPE that reads whole texts each word after a space becomes a pre-token.
    """
    model = _with_placeholders(base, vocabulary, first_id)
    model["vocab"] |= {string: first_id + i for i, string in enumerate(entries)}
    if vocabulary.kind != "wordpiece":
        model["ignore_merges"] = True
    expanded = {**base, "model": model}
    return with_pre_tokens(expanded, vocabulary.merged) if vocabulary.whole_texts else expanded


def _with_placeholders(base: Json, vocabulary: BaseVocabulary, end: int) -> Json:
    """The model of ``base`` with placeholders for missing ids below ``end``, such as repeated lines of ``vocab.txt``.

    Embedding rows that no text can produce (hidden words, padding) thus have an id in the tokenizer, which tokens added
    by a user cannot take. Added tokens of the base become entries, since the library would number them after the
    vocabulary.
    """
    added = {token["content"]: token["id"] for token in base["added_tokens"]}
    # No pre-token contains a space, so no text produces a placeholder.
    pieces = base["model"]["vocab"]
    used = set() if base["model"]["type"] == "Unigram" else {*pieces.values(), *added.values()}
    start = vocabulary.size if base["model"]["type"] == "Unigram" else 0
    placeholders = {f"unused row {i}": i for i in range(start, end) if i not in used}
    if base["model"]["type"] == "Unigram":
        missing = sorted((added | placeholders).items(), key=lambda item: item[1])
        return {**base["model"], "vocab": [*pieces, *([entry, 0.0] for entry, row in missing if row >= len(pieces))]}
    return {**base["model"], "vocab": {**pieces, **added, **placeholders}}


def _copy_base_files(source: Path, folder: Path) -> None:
    """Copy the files beside ``tokenizer.json``, without settings that name code.

    Settings of a folder with only a vocabulary get the tokenizer's class, from ``config.json``.
    """
    _copy_files(source, folder, _BASE_FILES)
    file = folder / SETTINGS_FILE
    names_code = file.is_file() and b'"auto_map"' in file.read_bytes()
    if names_code or not (source / TOKENIZER_FILE).is_file():
        _write_json(file, _clean_settings(source, read_existing(file)))


def _clean_settings(source: Path, settings: Json) -> Json:
    """Remove ``auto_map``, which names code that is not copied; of a ``source`` with only a vocabulary, add the
    tokenizer's class and its special tokens.
    """
    cleaned = {name: value for name, value in settings.items() if name != "auto_map"}
    if not (source / TOKENIZER_FILE).is_file():
        tokenizer = convert_tokenizer(source)
        cleaned = {**special_tokens(tokenizer), **cleaned, "tokenizer_class": type(tokenizer).__name__}
    return cleaned


def _copy_files(source: Path, folder: Path, names: Iterable[str]) -> None:
    """Copy the existing files byte for byte."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _settings(source: Path, vocabulary: BaseVocabulary) -> Json:
    """``tokenizer_config.json`` of the expanded tokenizer."""
    settings = _clean_settings(source, read_settings(source))
    if vocabulary.kind == "wordpiece":
        return settings
    # A specific class of transformers would rebuild the tokenizer and drop ignore_merges and normalizers; a generic
    # class lacks its built-in settings, so they are written here.
    names = special_names(vocabulary.tokenizer, settings)
    special_settings = {"bos_token": names["cls_token"], "eos_token": names["sep_token"], **names}
    types = ["token_type_ids"] if any(vocabulary.tokenizer.encode("a", "a").type_ids) else []
    settings = {"model_input_names": ["input_ids", *types, "attention_mask"], **special_settings, **settings}
    return {**settings, "tokenizer_class": "PreTrainedTokenizerFast"}


def _check_ids(file: Path, strings: list[str], first_id: int) -> None:
    tokenizer = load_tokenizer(file)
    for row, string in enumerate(strings, first_id):
        if tokenizer.token_to_id(string) != row:
            raise InputError(
                f"{file}: {string!r} has id {tokenizer.token_to_id(string)}, its row is {row}",
                "the ids of the base tokenizer have gaps; load it with transformers and save it again",
            )


def _write_json(path: Path, content: Json) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
