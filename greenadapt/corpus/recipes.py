"""Recipes: the name of a corpus, the sources of its text, and their format.

Text from standard input or from records of a Python program is saved and named by its content.
"""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import IO, Any, get_args
from urllib.parse import urlsplit
from uuid import uuid4

from greenadapt.config import SampleBy
from greenadapt.corpus.opening import data_suffix, open_binary, refuse_zip, require_names
from greenadapt.errors import InputError, MissingError, UsageError, byte_size, counted
from greenadapt.progress import Bar, Progress
from greenadapt.storage.files import own_folder, path_name, read_toml, short

FOLDER = "{folder}"
"""Stands in a ``command`` for the folder that it fetches."""
_MOST_NUMBERED = 100_000
"""Limit of numbered sources per entry; the largest published corpora have a few thousand files."""
_NUMBER = re.compile(r"\{number(?::(0\dd))?\}")
_KINDS: dict[str, Any] = {
    "url": str, "sha256": str, "size": int, "md5_beside": bool, "first": int, "last": int, "files": str, "command": str,
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A file or folder on disk, a file to download, or a page that lists files to download into a folder."""

    url: str
    sha256: str = ""
    size: int = 0
    """In bytes, as published; 0: unknown."""
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
class Stated:
    """The size of a corpus according to ``source``; None if unknown."""

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


def check_keys(table: Mapping[str, Any], allowed: Iterable[str], required: Iterable[str], where: str) -> None:
    """Raise ``InputError`` if ``table`` has a key that is not allowed, or lacks a required key."""
    allowed = sorted(allowed)
    for key in table:
        if key not in allowed:
            raise InputError(f"{where}: unknown key {key}", f"the keys are {', '.join(allowed)}")
    for key in required:
        if key not in table:
            raise InputError(f"{where}: key {key} is missing", f"the keys are {', '.join(allowed)}")


def read_stated(table: Any, where: str) -> Stated | None:
    """Read the table ``stated`` of a recipe; ``InputError`` if it is invalid."""
    if table is None:
        return None
    if not isinstance(table, dict):
        raise InputError(f"{where}: stated is not a table", "write [stated] with on, source and numbers")
    check_keys(table, (f.name for f in fields(Stated)), ("on", "source"), f"{where}, stated")
    kinds = {"on": date, "source": str, "documents": int, "bytes": int, "words": int, "at_most": bool}
    _check_types(table, kinds, where, "stated")
    return Stated(**table)


def read_sources(tables: Any, where: str, folder: Path) -> tuple[Source, ...]:
    """Read the sources of a recipe; paths are relative to ``folder``. ``InputError`` if a source is invalid."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{where}: sources is not a list of tables", "write each as [[sources]] with a url")
    return tuple(source for table in tables for source in _expand(table, where, folder))


def _expand(table: Mapping[str, Any], where: str, folder: Path) -> list[Source]:
    """Read a source, or the numbered sources of a URL with ``{number:04d}`` from ``first`` to ``last``."""
    check_keys(table, _KINDS, ("url",), where)
    _check_types(table, _KINDS, where, "a source")
    options = {key: value for key, value in table.items() if key not in ("url", "first", "last")}
    url = str(table["url"])
    if not url:
        raise InputError(f"{where}: url of a source is empty", "give a file, a folder or a URL")
    if "sha256" in options and not re.fullmatch(r"[0-9a-fA-F]{64}", options["sha256"]):
        raise InputError(
            f"{where}: sha256 of {url} is {options['sha256']!r}, {counted(len(options['sha256']), 'character')}",
            "it must be 64 hexadecimal digits, as sha256sum prints them",
        )
    if "://" not in url:
        url = str((folder / url).resolve())
    refuse_password(url, where)
    if "files" in table:
        return [_listing(url, table, where)]
    if "command" in table:
        check_keys(table, ("url", "command"), (), f"{where}, a source with a command")
        if FOLDER not in table["command"]:
            raise InputError(
                f"{where}: command of {url} names no {FOLDER}", "write it where the command has the folder"
            )
    if "first" not in table and "last" not in table:
        return [Source(url, **options)]
    if not {"first", "last"} <= set(table) or not _NUMBER.search(url):
        raise InputError(f"{where}: {url} is not a numbered source", "give first, last and a url with {number:04d}")
    n = table["last"] + 1 - table["first"]
    if not 1 <= n <= _MOST_NUMBERED:
        raise InputError(
            f"{where}: {url} from first = {table['first']} to last = {table['last']} is {counted(max(n, 0), 'source')}",
            f"need from 1 to {_MOST_NUMBERED:,}",
        )
    return [Source(_numbered(url, number), **options) for number in range(table["first"], table["last"] + 1)]


def _numbered(url: str, number: int) -> str:
    """Insert ``number``; ``str.format`` would evaluate any other braces."""
    return _NUMBER.sub(lambda match: format(number, match[1] or ""), url)


def _listing(url: str, table: Mapping[str, Any], where: str) -> Source:
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{where}: {url} with files is not an http(s) address", "leave out files")
    check_keys(table, ("url", "files", "md5_beside"), (), f"{where}, a source with files")
    try:
        re.compile(table["files"])
    except re.error as error:
        raise InputError(f"{where}: files of {url} is no regular expression ({error})", "correct it") from None
    return Source(**{**table, "url": url.rstrip("/") + "/"})


def _check_types(table: Mapping[str, Any], kinds: Mapping[str, Any], where: str, owner: str) -> None:
    for key, value in table.items():
        if type(value) is not kinds[key]:
            raise InputError(f"{where}: {key} of {owner} is {value!r}", f"it must be of type {kinds[key].__name__}")


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
    stated: Stated | None = None
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


def find_recipe(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Find a recipe by name or ``.toml`` file, or create one for a file, folder or URL.

    ``overrides`` replaces ``format``, ``fields`` or ``sample_by``. The name of a corpus from a path is the last part
    and eight digits of the hash of the whole path. Raises ``MissingError``, with similar names, if there is no such
    recipe or file, and ``InputError`` if the recipe is invalid or the suffix does not tell the format.
    """
    recipe = _find(name_or_path, dict(overrides or {}))
    values = {key: _as_tuple(value) for key, value in (overrides or {}).items()}
    recipe = replace(recipe, public_argument=short(name_or_path), argument=name_or_path, **values)
    _check(recipe, name_or_path)
    return recipe


def _find(name_or_path: str, overrides: dict[str, Any]) -> Recipe:
    recipes = {recipe.name: recipe for recipe in list_recipes()}
    if name_or_path in recipes:
        return recipes[name_or_path]
    path = Path(name_or_path)
    if path.suffix == ".toml" and path.is_file():
        return replace(read_recipe(path), name=path_name(str(path.resolve())))
    is_url = re.match(r"(https?|s3)://", name_or_path)
    if not is_url:
        require_names(name_or_path)
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
    url = name_or_path if is_url else str(path.resolve())
    guessed = "auto" if path.is_dir() else format_of(url)
    if not guessed and not overrides.get("format"):
        refuse_zip(url)
        raise InputError(
            f"{name_or_path}: the format cannot be inferred from the name",
            f"give --format, one of {', '.join(FORMATS)}",
        )
    if guessed == "text" and not overrides.get("format") and path.is_file() and _begins_like_json(path):
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
    if re.match(r"(https?|s3)://", name_or_path):
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
    content = read_toml(path, f"see {own_folder('corpora') / 'README.md'} for the format")
    where = str(path)
    check_keys(
        content,
        {f.name for f in fields(Recipe)} - {"name", "public_argument", "argument"},
        ("title", "licence", "format"),
        where,
    )
    sources = read_sources(content.pop("sources", []), where, path.parent)
    stated = read_stated(content.pop("stated", None), where)
    values = {key: _as_tuple(value) for key, value in content.items()}
    recipe = Recipe(name=path.stem, sources=sources, stated=stated, **values)
    _check(recipe, where)
    return recipe


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


_BLOCK = 1 << 20
_NAME = re.compile(r"(stdin|records)-[0-9a-f]{8}")
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
        saved = _keep(_blocks(stream, bar), root, "stdin")
    if saved is None:
        raise InputError("standard input is empty", "pipe text into it, or give --corpus or --text a file")
    name, path = saved
    progress.note(f"standard input is corpus {name}, {byte_size(path.stat().st_size)}, kept in {path}")
    return _recipe(name, path, options)


def keep_records(lines: Iterable[bytes], root: Path) -> tuple[str, Path] | None:
    """Write records, as JSON ``lines``, to ``inputs/NAME.jsonl`` in the workspace ``root``.

    Returns ``NAME``, ``records-`` and eight digits of the SHA-256 of the lines, and the file; ``None`` for no records.
    """
    return _keep(lines, root, "records")


def _blocks(stream: IO[bytes], bar: Bar) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block
        bar.advance(len(block))


def _keep(blocks: Iterable[bytes], root: Path, kind: str) -> tuple[str, Path] | None:
    """Write ``blocks`` atomically to a file named by their hash; returns the name and the file, ``None`` if empty."""
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


def kept_input(root: Path, name: str, options: Mapping[str, Any]) -> Recipe | None:
    """The recipe of text that ``keep_input`` or ``keep_records`` saved as ``name``; ``None`` if there is none."""
    path = _kept_path(root, name)
    return _recipe(name, path, options) if _NAME.fullmatch(name) and path.is_file() else None


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
