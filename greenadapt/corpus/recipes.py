"""Recipes: the name of a corpus, the sources of its text, and their format.

Text from standard input or from records of a Python program is saved and named by its content.
"""

import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, Literal
from urllib.parse import urlsplit
from uuid import uuid4

from greenadapt.config import SampleBy
from greenadapt.corpus.opening import data_suffix, open_binary, refuse_zip, require_names
from greenadapt.errors import InputError, MissingError, UsageError, byte_size, pluralize
from greenadapt.progress import Bar, Progress
from greenadapt.store.files import own_folder, parse_own, path_name, read_toml, shorten_path
from greenadapt.store.workspace import INPUT

FOLDER = "{folder}"
"""Stands in a ``command`` for the folder that it fetches."""
_KNOWN_KEYS = {"extra": "forbid"}


@dataclass(frozen=True)
class Source:
    """A file or folder on disk, a file to download, or a page that lists files to download into a folder."""

    __pydantic_config__: ClassVar[dict[str, str]] = _KNOWN_KEYS

    url: str
    sha256: str = ""
    md5_beside: bool = False
    """Whether the publisher has the MD5 of each file at its URL + ``.md5``."""
    files: str = ""
    """A regular expression for the names of the files that the page ``url`` lists; empty if ``url`` is a file."""
    command: str = ""
    """What the user runs to fetch the folder at ``url``; empty if ``--download`` fetches it."""

    @property
    def is_remote(self) -> bool:
        """Whether the source has to be downloaded."""
        return "://" in self.url


@dataclass(frozen=True)
class StatedSize:
    """The size of a corpus according to ``source``; None if unknown."""

    __pydantic_config__: ClassVar[dict[str, str]] = _KNOWN_KEYS

    on: date
    source: str
    documents: int | None = None
    bytes: int | None = None
    """Size of the download."""
    words: int | None = None
    at_most: bool = False
    """Whether the numbers are upper bounds."""


def file_name(url: str) -> str:
    """The file name of a download: the last part of its URL, reduced to letters, digits and ``._-``; never hidden."""
    name = PurePosixPath(url.partition("?")[0].partition("#")[0].rstrip("/")).name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".-") or "download"


def refuse_same_names(sources: Iterable[Source], where: str) -> None:
    """Raise ``InputError`` if two downloads would get the same file name."""
    names = Counter(file_name(source.url) for source in sources if source.is_remote)
    if twice := sorted(name for name, n in names.items() if n > 1):
        raise InputError(f"{where}: two sources have the file name {twice[0]}", "make two recipes of them")


def refuse_password(url: str, where: str) -> None:
    """Raise ``InputError`` for an address with a password, which manifests and logs would store."""
    try:
        user, _, host = urlsplit(url).netloc.rpartition("@") if "://" in url else ("", "", "")
    except ValueError as error:
        raise InputError(f"{where}: an address is not valid ({error})", "correct it") from None
    if user:
        raise InputError(
            f"{where}: the address at {host} holds a user or a password, which would be kept",
            "leave it out, and give the login in ~/.netrc",
        )


FORMATS = ("text", "jsonl", "json", "csv", "tsv", "cord19", "xml", "pmc", "pydocs", "auto")
"""``json`` is an array, lines or a CORD-19 parse, ``xml`` PubMed or JATS, detected by content; ``auto`` uses the suffix
of each file.
"""
_SUFFIXES = {
    ".txt": "text", ".text": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv",
    ".json": "json", ".xml": "xml", ".nxml": "xml", ".tar": "auto", ".tgz": "auto",
}  # fmt: skip
_WITH_FIELDS = ("jsonl", "json", "csv", "tsv", "auto")
"""Formats whose documents may have named fields."""


@dataclass(frozen=True)
class Recipe:
    """A corpus: its name in a workspace, its format and its sources."""

    __pydantic_config__: ClassVar[dict[str, str]] = _KNOWN_KEYS

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
    """pydocs: the packages, or ``name[extra]`` for the dependencies of an extra; empty means all."""
    about: str = ""
    stated: StatedSize | None = None
    """The published size of the corpus."""
    public_argument: str = ""
    """The value of ``--corpus``, without private paths; for the command in a model card."""
    argument: str = ""
    """The value of ``--corpus`` as given on this machine."""

    @property
    def is_local(self) -> bool:
        """Whether the corpus needs no network."""
        return not any(source.is_remote for source in self.sources)


def list_recipes() -> list[Recipe]:
    """The recipes that come with greenadapt, by name."""
    return [read_recipe(path) for path in sorted(own_folder("corpora").glob("*.toml"))]


def find_recipe(name_or_path: str, overrides: Mapping[str, Any] = {}) -> Recipe:
    """Find a recipe by name or ``.toml`` file, or create one for a file, folder or URL.

    ``overrides`` replaces ``format``, ``fields`` or ``sample_by``. The name of a corpus from a path is the last part
    and eight digits of the hash of the whole path. Raises ``MissingError``, with similar names, if there is no such
    recipe or file, and ``InputError`` if the recipe is invalid or the suffix does not tell the format.
    """
    recipe = _find(name_or_path, overrides.get("format"))
    recipe = replace(recipe, public_argument=shorten_path(name_or_path), argument=name_or_path, **overrides)
    _check(recipe, name_or_path)
    return recipe


def _find(name_or_path: str, given_format: str | None) -> Recipe:
    recipes = {recipe.name: recipe for recipe in list_recipes()}
    if name_or_path in recipes:
        return recipes[name_or_path]
    path = Path(name_or_path)
    if path.suffix == ".toml" and path.is_file():
        return replace(read_recipe(path), name=path_name(str(path.resolve())))
    is_url = re.match(r"https?://", name_or_path)
    if not is_url and not path.exists():
        similar = difflib.get_close_matches(name_or_path, recipes, n=3, cutoff=0.4)
        raise MissingError(
            f"no corpus or file is called {name_or_path}",
            f"did you mean {' or '.join(similar)}?"
            if similar
            else f"choose among {', '.join(recipes)}, or give a path",
        )
    if is_url:
        refuse_password(name_or_path, "--corpus")
    else:
        require_names(name_or_path)
    url = name_or_path if is_url else str(path.resolve())
    guessed = "auto" if path.is_dir() else format_of(url)
    if not guessed and not given_format:
        refuse_zip(url)
        raise InputError(
            f"{name_or_path}: the format cannot be inferred from the name",
            f"give --format, one of {', '.join(FORMATS)}",
        )
    if guessed == "text" and not given_format and path.is_file() and _begins_like_json(path):
        raise InputError(f"{name_or_path} looks like JSON, not text", "give --format jsonl, or --format text")
    return Recipe(path_name(url), PurePosixPath(name_or_path).name, "unknown", guessed, (Source(url),))


def _begins_like_json(path: Path) -> bool:
    with open_binary(str(path)) as stream:
        return re.match(rb'(\[\s*)?\{\s*"', stream.read(64)) is not None


def corpus_name(name_or_path: str) -> str:
    """The workspace name for a value of ``--corpus``, even if it does not exist."""
    path = Path(name_or_path)
    if name_or_path in {recipe.name for recipe in list_recipes()}:
        return name_or_path
    if re.match(r"https?://", name_or_path):
        return path_name(name_or_path)
    return path_name(str(path.resolve())) if path.exists() else name_or_path


def why_no_fields(sources: Sequence[str], format: str | None = None) -> str | None:  # noqa: A002  (the option's name)
    """Explain why --field has no effect on ``sources``, corpora or paths; ``None`` if one of them may have fields."""
    formats = {recipe.name: recipe.format for recipe in list_recipes()}
    kinds = {format or formats.get(source) or format_of(source) for source in sources}
    if not sources or kinds & {"", *_WITH_FIELDS} or any(Path(source).is_dir() for source in sources):  # "": unknown
        return None
    return f"is for JSON lines and tables, and {sources[0]} is neither: leave it out, or give its format with --format"


def format_of(name: str) -> str:
    """The format for a file's suffix, without the compression suffix; "" if unknown."""
    return _SUFFIXES.get(data_suffix(name.partition("?")[0] if "://" in name else name), "")


def read_recipe(path: Path) -> Recipe:
    """Read the recipe in a TOML file; paths are relative to the file.

    Raises InputError naming the file and the key that is unknown, missing or of the wrong type.
    """
    content = read_toml(path, _SEE)
    content["name"] = path.stem
    recipe = parse_own(json.dumps(content, default=str), Recipe, path, _SEE)
    recipe = replace(recipe, sources=tuple(_resolve(source, path) for source in recipe.sources))
    _check(recipe, str(path))
    return recipe


_SEE = f"see {own_folder('corpora') / 'README.md'} for the format"


def _resolve(source: Source, recipe: Path) -> Source:
    """``source`` with the whole path of a file; raises ``InputError`` for a wrong address or pattern."""
    if not source.is_remote:
        return replace(source, url=str((recipe.parent / source.url).resolve()))
    refuse_password(source.url, str(recipe))
    try:
        re.compile(source.files)
    except re.error as error:
        raise InputError(f"{recipe}: files of {source.url} is no regular expression ({error})", "correct it") from None
    return replace(source, url=source.url.rstrip("/") + "/") if source.files else source


def _check(recipe: Recipe, where: str) -> None:
    if recipe.format not in FORMATS:
        raise InputError(f"{where}: unknown format {recipe.format}", f"the formats are {', '.join(FORMATS)}")
    if (recipe.format == "pydocs") == bool(recipe.sources):
        raise InputError(
            f"{where}: format {recipe.format} with {pluralize(len(recipe.sources), 'source')}",
            "pydocs has none, every other format needs one",
        )
    refuse_same_names(recipe.sources, where)


_BLOCK = 1 << 20
# The other formats need file names, or read no files.
_FORMATS = tuple(name for name in FORMATS if name not in ("auto", "pmc", "pydocs"))


def keep_input(stream: IO[bytes], root: Path, options: Mapping[str, Any], progress: Progress) -> Recipe:
    """Copy ``stream`` to ``inputs/NAME`` in the workspace ``root``, in blocks, and return its recipe.

    ``NAME`` is ``stdin-`` and eight digits of the SHA-256 of the content, so that the same text is the same corpus and
    no other text replaces it. ``options`` may have ``format``, ``fields`` and ``sample_by``; text that begins with a
    JSON object is read as JSON lines. Raises ``UsageError`` for a format that needs file names, ``InputError`` for
    empty input.
    """
    kind = options.get("format")
    if kind is not None and kind not in _FORMATS:
        raise UsageError(f"{kind!r} is not a format for standard input", f"the formats are {', '.join(_FORMATS)}")
    with progress.bar("reading standard input", None, "bytes") as bar:
        saved = keep(_blocks(stream, bar), root, "stdin")
    if saved is None:
        raise InputError("standard input is empty", "pipe text into it, or give --corpus or --text a file")
    name, path = saved
    progress.note(f"standard input is corpus {name}, {byte_size(path.stat().st_size)}, kept in {path}")
    return _recipe(name, path, options)


def _blocks(stream: IO[bytes], bar: Bar) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block
        bar.advance(len(block))


def keep(blocks: Iterable[bytes], root: Path, kind: Literal["stdin", "records"]) -> tuple[str, Path] | None:
    """Write ``blocks``, of ``records`` JSON lines, atomically to ``inputs`` in the workspace ``root``.

    Returns the name, ``kind-`` and eight digits of their SHA-256, and the file; ``None`` if there is nothing.
    """
    folder = root / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{kind}-{uuid4().hex}"  # a file of tempfile would be readable only by its owner
    try:
        digest = hashlib.sha256()
        with open(part, "xb") as file:
            for block in blocks:
                file.write(block)
                digest.update(block)
        if not part.stat().st_size:
            return None
        name = f"{kind}-{digest.hexdigest()[:8]}"
        path = _kept_path(root, name)
        if not path.exists():  # the same text keeps its time
            part.replace(path)
        return name, path
    finally:
        part.unlink(missing_ok=True)


def find_kept_input(root: Path, name: str, options: Mapping[str, Any]) -> Recipe | None:
    """The recipe of text that ``keep`` saved as ``name``; ``None`` if there is none."""
    path = _kept_path(root, name)
    is_kept = path.parent == root / "inputs" and INPUT.fullmatch(path.name) and path.is_file()
    return _recipe(name, path, options) if is_kept else None


def _kept_path(root: Path, name: str) -> Path:
    return root / "inputs" / (name if name.startswith("stdin-") else f"{name}.jsonl")


def _recipe(name: str, path: Path, options: Mapping[str, Any]) -> Recipe:
    kind = options.get("format") or ("jsonl" if _begins_like_json(path) else "text")
    fields = tuple(options.get("fields") or Recipe.fields)
    title, public_argument = (
        ("standard input", "-") if path.name.startswith("stdin-") else ("records of a Python program", name)
    )
    sample_by = options.get("sample_by") or Recipe.sample_by
    sources = (Source(str(path)),)
    return Recipe(
        name, title, "unknown", kind, sources, fields, sample_by, public_argument=public_argument, argument=name
    )
