"""Recipes: the name of a corpus, the sources of its text, and their format."""

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from greenadapt.config import SampleBy, TextLimits
from greenadapt.corpus.opening import open_binary, require_names
from greenadapt.corpus.sources import (
    Source,
    Stated,
    check_keys,
    read_sources,
    read_stated,
    refuse_password,
    refuse_same_names,
)
from greenadapt.errors import InputError, MissingError, counted
from greenadapt.storage.files import own_folder, path_name, read_toml, short
from greenadapt.storage.outputs import COMPRESSIONS

FORMATS = ("text", "jsonl", "csv", "tsv", "cord19", "xml", "pmc", "pydocs", "auto")
"""``xml`` is PubMed or JATS, detected by root element; ``auto`` goes by the suffix of each file."""


_SUFFIXES = {
    ".txt": "text", ".text": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv",
    ".json": "cord19", ".xml": "xml", ".nxml": "xml", ".tar": "auto",
}  # fmt: skip


_WITH_FIELDS = ("jsonl", "csv", "tsv", "auto")
"""Formats whose documents may have fields with names."""


_LIMITS = {"max_document_bytes", "max_word_chars", "max_compression"}


@dataclass(frozen=True)
class Recipe:
    """A corpus: its name in a workspace, its format and its sources."""

    name: str
    title: str
    licence: str
    format: str
    sources: tuple[Source, ...] = ()
    fields: tuple[str, ...] = ("text",)
    """The fields of JSON lines, or the columns of CSV and TSV, that hold text."""
    sample_by: SampleBy = "line"
    """What a document is in plain text."""
    packages: tuple[str, ...] = ()
    """pydocs: only these packages, or ``name[extra]`` for what that needs; empty means all."""
    about: str = ""
    limits: TextLimits = field(default_factory=TextLimits)
    """Its keys ``max_document_bytes``, ``max_word_chars`` and ``max_compression``."""
    stated: Stated | None = None
    """How large it is, as somebody stated."""
    given: str = ""
    """The value of ``--corpus``, without private paths; for the command in a model card."""
    asked: str = ""
    """Its name on this machine's command line."""

    @property
    def is_local(self) -> bool:
        """Whether it needs no network."""
        return not any(source.is_remote for source in self.sources)


def list_recipes() -> list[Recipe]:
    """The recipes that come with greenadapt, by name."""
    return [read_recipe(path) for path in sorted(own_folder("corpora").glob("*.toml"))]


def find_recipe(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of that name or ``.toml`` file, or one that reads that file, folder or URL as text.

    ``overrides`` replaces ``format``, ``fields`` or ``sample_by``. The corpus of a path is named after its last part
    and eight digits of the hash of the whole path. Raises ``MissingError``, with similar names, if there is no such
    recipe or file, and ``InputError`` if the recipe is invalid or the suffix does not tell the format.
    """
    recipe = _find(name_or_path, dict(overrides or {}))
    own = {key: _as_tuple(value) for key, value in (overrides or {}).items()}
    recipe = replace(recipe, given=short(name_or_path), asked=name_or_path, **own)
    _check(recipe, name_or_path)
    return recipe


def _find(name_or_path: str, overrides: dict[str, Any]) -> Recipe:
    known = {recipe.name: recipe for recipe in list_recipes()}
    if name_or_path in known:
        return known[name_or_path]
    path = Path(name_or_path)
    if path.suffix == ".toml" and path.is_file():
        return replace(read_recipe(path), name=path_name(str(path.resolve())))
    is_url = re.match(r"(https?|s3)://", name_or_path)
    if not is_url:
        require_names(name_or_path)
    if not is_url and not path.exists():
        near = difflib.get_close_matches(name_or_path, known, n=3, cutoff=0.4)
        raise MissingError(
            f"no corpus or file is called {name_or_path}",
            f"did you mean {' or '.join(near)}?" if near else f"choose among {', '.join(known)}, or give a path",
        )
    if is_url:
        refuse_password(name_or_path, "--corpus")
    url = name_or_path if is_url else str(path.resolve())
    guessed = "auto" if path.is_dir() else format_of(url)
    if not guessed and not overrides.get("format"):
        raise InputError(
            f"{name_or_path}: the format cannot be inferred from the name",
            f"give --format, one of {', '.join(FORMATS)}",
        )
    if guessed == "text" and not overrides.get("format") and path.is_file() and _begins_like_json(path):
        raise InputError(f"{name_or_path} looks like JSON lines, not text", "give --format jsonl, or --format text")
    return Recipe(path_name(url), PurePosixPath(name_or_path).name, "unknown", guessed, (Source(url),))


def _begins_like_json(path: Path) -> bool:
    with open_binary(str(path)) as stream:
        return stream.read(2) == b'{"'


def corpus_name(name_or_path: str) -> str:
    """The workspace name of a value of ``--corpus``, whether it exists or not."""
    path = Path(name_or_path)
    if name_or_path in {recipe.name for recipe in list_recipes()}:
        return name_or_path
    if re.match(r"(https?|s3)://", name_or_path):
        return path_name(name_or_path)
    return path_name(str(path.resolve())) if path.exists() else name_or_path


def may_have_fields(name_or_path: str, format: str | None = None) -> bool:  # noqa: A002  (the option's name)
    """Whether documents of a corpus, a file or a folder may have fields with names; ``format`` is that of the user."""
    known = {recipe.name: recipe.format for recipe in list_recipes()}
    kind = format or known.get(name_or_path) or format_of(name_or_path)
    return not kind or kind in _WITH_FIELDS or Path(name_or_path).is_dir()


def format_of(name: str) -> str:
    """The format by a file's suffix, after that of compression; "" if unknown."""
    path = PurePosixPath(name.partition("?")[0].lower() if "://" in name else name.lower())
    if path.suffix in COMPRESSIONS:
        path = path.with_suffix("")
    return "auto" if path.suffix == ".tgz" else _SUFFIXES.get(path.suffix, "")


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file, with its name; paths are relative to the file.

    Raises InputError naming the file and the key that is unknown, missing or of the wrong type.
    """
    content = read_toml(path, f"see {own_folder('corpora') / 'README.md'} for the format")
    where = str(path)
    check_keys(
        content,
        {f.name for f in fields(Recipe)} - {"name", "given", "asked", "limits"} | _LIMITS,
        ("title", "licence", "format"),
        where,
    )
    limits = _limits({key: content.pop(key) for key in _LIMITS & set(content)}, where)
    sources = read_sources(content.pop("sources", []), where, path.parent)
    stated = read_stated(content.pop("stated", None), where)
    recipe = Recipe(
        name=path.stem,
        sources=sources,
        limits=limits,
        stated=stated,
        **{key: _as_tuple(value) for key, value in content.items()},
    )
    _check(recipe, where)
    return recipe


def _limits(given: dict[str, Any], where: str) -> TextLimits:
    for key, value in given.items():
        if type(value) is not int or value < 1:
            raise InputError(f"{where}: {key} is {value!r}", "it must be a whole number of at least 1")
    return TextLimits(**given)


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check(recipe: Recipe, where: str) -> None:
    for key in ("title", "licence", "format", "about"):
        if not isinstance(getattr(recipe, key), str):
            raise InputError(f"{where}: {key} is not a string", f'write {key} = "..."')
    for key in ("fields", "packages"):
        value = getattr(recipe, key)
        if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
            raise InputError(f"{where}: {key} is not a list of strings", f'write {key} = ["..."]')
    if recipe.format not in FORMATS:
        raise InputError(f"{where}: unknown format {recipe.format}", f"the formats are {', '.join(FORMATS)}")
    if recipe.sample_by not in get_args(SampleBy):
        raise InputError(
            f"{where}: sample_by is {recipe.sample_by!r}", f"it must be one of {', '.join(get_args(SampleBy))}"
        )
    if (recipe.format == "pydocs") == bool(recipe.sources):
        raise InputError(
            f"{where}: format {recipe.format} with {counted(len(recipe.sources), 'source')}",
            "pydocs has none, every other format needs one",
        )
    refuse_same_names(recipe.sources, where)


def require_file(path: Path) -> None:
    """Raise ``MissingError`` where nothing is at ``path``, ``InputError`` if it is neither a file nor a folder."""
    if not path.exists():
        raise MissingError(f"{path} does not exist", "check the path")
    if not path.is_file() and not path.is_dir() and not path.samefile(os.devnull):
        raise InputError(
            f"{path} is a pipe or a device, not a file or a folder", "pipe its text to standard input, and give -"
        )
