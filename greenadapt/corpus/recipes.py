"""Recipes: the name of a corpus, the sources of its text, and their format.

Text that is in no file (standard input, records of a Python program) is saved and named by its content.
"""

import difflib
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import IO, Any, get_args
from urllib.parse import urlsplit
from uuid import uuid4

from greenadapt.config import SampleBy, TextLimits
from greenadapt.corpus.opening import open_binary, require_names
from greenadapt.errors import InputError, MissingError, UsageError, byte_size, counted
from greenadapt.progress import Bar, Progress
from greenadapt.storage.files import own_folder, path_name, read_toml, short
from greenadapt.storage.outputs import COMPRESSIONS

LISTING, PMC = "listing", "pmc"
"""Kinds of index: a web page that lists the files of a folder; PMC's bucket with one folder per article version."""


_MOST_NUMBERED = 100_000
"""Limit of numbered sources per entry; the largest published corpora have a few thousand files."""


_NUMBER = re.compile(r"\{number(?::(0\dd))?\}")


_OF_INDEX = {LISTING: {"files", "md5_beside"}, PMC: {"licences", "share", "rate"}}


@dataclass(frozen=True)
class Source:
    """A file or folder on disk, a file to download, or an index of files to download into a folder."""

    url: str
    sha256: str = ""
    md5: str = ""
    """Of files that an index names; no key of a recipe."""
    size: int = 0
    """In bytes, as published; 0: unknown."""
    md5_beside: bool = False
    """Whether the publisher provides each file's MD5 at its address + ``.md5``."""
    index: str = ""
    """What is at ``url`` if it is not the file itself: ``LISTING`` or ``PMC``."""
    files: str = ""
    """``LISTING``: a regular expression for the names of the files."""
    licences: tuple[str, ...] = ()
    """``PMC``: only articles whose ``license_code`` is one of these."""
    share: float = 1.0
    """``PMC``: the share of the articles to take, always the same ones."""
    rate: float = 10.0
    """``PMC``: at most so many requests per second."""

    @property
    def is_remote(self) -> bool:
        """Whether it has to be downloaded."""
        return "://" in self.url


@dataclass(frozen=True)
class Stated:
    """How large a corpus is according to ``source``; None is unknown."""

    on: date
    source: str
    documents: int | None = None
    bytes: int | None = None
    """To download."""
    words: int | None = None
    at_most: bool = False
    """Whether the corpus has only some of these documents."""


def file_name(url: str) -> str:
    """The file name that a download gets: the last part of its URL, letters, digits and ``._-`` only, never hidden."""
    last = PurePosixPath(url.partition("?")[0].partition("#")[0].rstrip("/")).name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip(".-") or "download"


def refuse_same_names(sources: Iterable[Source], where: str) -> None:
    """Raise ``InputError`` if two downloads would get the same file name."""
    names = Counter(file_name(source.url) for source in sources if source.is_remote)
    if twice := sorted(name for name, n in names.items() if n > 1):
        raise InputError(f"{where}: two sources have the file name {twice[0]}", "make two recipes of them")


def refuse_password(url: str, where: str) -> None:
    """Raise ``InputError``, which does not repeat it, for an address with a password: manifests and logs have it."""
    try:
        user, _, host = urlsplit(url).netloc.rpartition("@") if "://" in url else ("", "", "")
    except ValueError as error:
        raise InputError(f"{where}: an address is not valid ({error})", "correct it") from None
    if user:
        raise InputError(
            f"{where}: the address at {host} holds a user or a password, which would be kept",
            "leave it out, and give the login in ~/.netrc",
        )


def check_keys(table: Mapping[str, Any], known: Iterable[str], required: Iterable[str], where: str) -> None:
    """Raise ``InputError`` for a key of ``table`` that is not known, and for a required one that is missing."""
    known = sorted(known)
    for key in table:
        if key not in known:
            raise InputError(f"{where}: unknown key {key}", f"the keys are {', '.join(known)}")
    for key in required:
        if key not in table:
            raise InputError(f"{where}: key {key} is missing", f"the keys are {', '.join(known)}")


def read_stated(table: Any, where: str) -> Stated | None:
    """The table ``stated`` of a recipe; ``InputError`` if it is invalid."""
    if table is None:
        return None
    if not isinstance(table, dict):
        raise InputError(f"{where}: stated is not a table", "write [stated] with on, source and numbers")
    check_keys(table, (f.name for f in fields(Stated)), ("on", "source"), f"{where}, stated")
    _check_types(
        table,
        {"on": date, "source": str, "documents": int, "bytes": int, "words": int, "at_most": bool},
        where,
        "stated",
    )
    return Stated(**table)


def read_sources(tables: Any, where: str, folder: Path) -> tuple[Source, ...]:
    """The sources of a recipe, whose relative paths begin in ``folder``; ``InputError`` if one is invalid."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{where}: sources is not a list of tables", "write each as [[sources]] with a url")
    return tuple(source for table in tables for source in _expand(table, where, folder))


def _expand(table: Mapping[str, Any], where: str, folder: Path) -> list[Source]:
    """A source, or the numbered ones of a URL with ``{number:04d}`` from ``first`` to ``last``."""
    check_keys(table, {*(f.name for f in fields(Source)), "first", "last"} - {"md5"}, ("url",), where)
    kinds = {
        "url": str, "sha256": str, "size": int, "md5_beside": bool, "first": int, "last": int, "index": str,
        "files": str, "licences": list, "share": (int, float), "rate": (int, float),
    }  # fmt: skip
    _check_types(table, kinds, where, "a source")
    rest = {key: value for key, value in table.items() if key not in ("url", "first", "last")}
    url = str(table["url"])
    if not url:
        raise InputError(f"{where}: url of a source is empty", "give a file, a folder or a URL")
    if "sha256" in rest and not re.fullmatch(r"[0-9a-fA-F]{64}", rest["sha256"]):
        raise InputError(
            f"{where}: sha256 of {url} is {rest['sha256']!r}, {counted(len(rest['sha256']), 'character')}",
            "it must be 64 hexadecimal digits, as sha256sum prints them",
        )
    if "://" not in url:
        url = str((folder / url).resolve())
    refuse_password(url, where)
    if "index" in table or set(table) & (_OF_INDEX[LISTING] | _OF_INDEX[PMC]) - {"md5_beside"}:
        return [_indexed(url, table, where)]
    if "first" not in table and "last" not in table:
        return [Source(url, **rest)]
    if not {"first", "last"} <= set(table) or not _NUMBER.search(url):
        raise InputError(f"{where}: {url} is not a numbered source", "give first, last and a url with {number:04d}")
    n = table["last"] + 1 - table["first"]
    if not 1 <= n <= _MOST_NUMBERED:
        raise InputError(
            f"{where}: {url} from first = {table['first']} to last = {table['last']} is {counted(max(n, 0), 'source')}",
            f"need from 1 to {_MOST_NUMBERED:,}",
        )
    return [Source(_numbered(url, number), **rest) for number in range(table["first"], table["last"] + 1)]


def _numbered(url: str, number: int) -> str:
    """Not by ``str.format``, which would evaluate whatever else stands in braces."""
    return _NUMBER.sub(lambda match: format(number, match[1] or ""), url)


def _indexed(url: str, table: Mapping[str, Any], where: str) -> Source:
    kind = table.get("index")
    if kind not in _OF_INDEX:
        raise InputError(f"{where}: index of {url} is {kind!r}", f"it must be one of {', '.join(_OF_INDEX)}")
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{where}: {url} with an index is not an http(s) address", "leave out index")
    needed = "files" if kind == LISTING else "licences"
    check_keys(table, {"url", "index", *_OF_INDEX[kind]}, (needed,), f"{where}, index {kind}")
    try:
        re.compile(table.get("files", ""))
    except re.error as error:
        raise InputError(f"{where}: files of {url} is no regular expression ({error})", "correct it") from None
    source = Source(**{**table, "url": url.rstrip("/") + "/", "licences": tuple(table.get("licences", ()))})
    if not 0 < source.share <= 1 or not source.rate > 0:
        raise InputError(
            f"{where}: share is {source.share} and rate {source.rate}",
            "share must be above 0 and at most 1, rate above 0 requests per second",
        )
    if not all(isinstance(licence, str) for licence in source.licences):
        raise InputError(f"{where}: licences is not a list of strings", 'write licences = ["CC BY", ...]')
    return source


def _check_types(table: Mapping[str, Any], kinds: Mapping[str, Any], where: str, what: str) -> None:
    for key, value in table.items():
        allowed = kinds[key] if isinstance(kinds[key], tuple) else (kinds[key],)
        if type(value) not in allowed:
            names = " or ".join(kind.__name__ for kind in allowed)
            raise InputError(f"{where}: {key} of {what} is {value!r}", f"it must be of type {names}")


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


def _may_have_fields(name_or_path: str, format: str | None = None) -> bool:  # noqa: A002  (the option's name)
    """Whether documents of a corpus, a file or a folder may have fields with names; ``format`` is that of the user."""
    known = {recipe.name: recipe.format for recipe in list_recipes()}
    kind = format or known.get(name_or_path) or format_of(name_or_path)
    return not kind or kind in _WITH_FIELDS or Path(name_or_path).is_dir()


def why_no_fields(sources: Sequence[str], format: str | None = None) -> str | None:  # noqa: A002
    """Why --field has no effect on documents of these ``sources``; ``None`` if one of them may have fields."""
    if not sources or any(_may_have_fields(source, format) for source in sources):
        return None
    return f"is for JSON lines and tables, and {sources[0]} is neither: leave it out, or say what it is with --format"


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


_BLOCK = 1 << 20
_NAME = re.compile(r"(stdin|records)-[0-9a-f]{8}")
# The others infer formats from file names, or read no files.
_FORMATS = tuple(name for name in FORMATS if name not in ("auto", "pmc", "pydocs"))


def keep_input(stream: IO[bytes], root: Path, said: Mapping[str, Any], progress: Progress) -> Recipe:
    """The recipe of the content of ``stream``, copied to ``NAME/.sources/stdin`` in the workspace ``root``, block by
    block.

    ``NAME`` is ``stdin-`` and eight digits of the SHA-256 of the content, so that the same text is the same corpus and
    another text never replaces it. ``said`` may have ``format``, ``fields`` and ``sample_by``; a text that begins with
    a JSON object is read as JSON lines. Raises ``UsageError`` for a format that needs file names, ``InputError`` for no
    input.
    """
    kind = said.get("format")
    if kind is not None and kind not in _FORMATS:
        raise UsageError(f"{kind!r} is not a format for standard input", f"the formats are {', '.join(_FORMATS)}")
    with progress.bar("reading standard input", None, "bytes") as bar:
        path, size = _keep(_blocks(stream, bar), root, "stdin")
    if path is None:
        raise InputError("standard input is empty", "pipe text into it, or give --corpus or --text a file")
    name = _name_of(path)
    progress.note(f"standard input is corpus {name}, {byte_size(size)}, kept in {path}")
    return _recipe(name, path, said)


def keep_records(lines: Iterable[bytes], root: Path) -> tuple[str, Path] | None:
    """The name of records, ``records-`` and eight digits of the SHA-256 of their JSON ``lines``, and the file they are
    written to, ``NAME/.sources/NAME.jsonl`` in the workspace ``root``; ``None`` if there are none.
    """
    path, _ = _keep(lines, root, "records")
    return None if path is None else (_name_of(path), path)


def _blocks(stream: IO[bytes], bar: Bar) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block
        bar.advance(len(block))


def _keep(blocks: Iterable[bytes], root: Path, kind: str) -> tuple[Path | None, int]:
    """Write ``blocks`` to a file that is named by their content, complete or not at all; the file and its size."""
    root.mkdir(parents=True, exist_ok=True)
    part = root / f".{kind}-{uuid4().hex}"  # a file of tempfile could be read by its owner only
    try:
        digest, size = hashlib.sha256(), 0
        with open(part, "xb") as file:
            for block in blocks:
                file.write(block)
                digest.update(block)
                size += len(block)
        if not size:
            return None, 0
        path = _kept(root, f"{kind}-{digest.hexdigest()[:8]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)
        return path, size
    finally:
        part.unlink(missing_ok=True)


def kept_input(root: Path, name: str, said: Mapping[str, Any]) -> Recipe | None:
    """The recipe of what ``keep_input`` or ``keep_records`` kept under ``name``; ``None`` if there is none."""
    path = _kept(root, name)
    return _recipe(name, path, said) if _NAME.fullmatch(name) and path.is_file() else None


def _kept(root: Path, name: str) -> Path:
    return root / name / ".sources" / ("stdin" if name.startswith("stdin-") else f"{name}.jsonl")


def _name_of(path: Path) -> str:
    return path.parent.parent.name


def _recipe(name: str, path: Path, said: Mapping[str, Any]) -> Recipe:
    with open(path, "rb") as file:
        begins = file.read(2)
    kind = said.get("format") or ("jsonl" if begins == b'{"' else "text")
    fields = tuple(said.get("fields") or Recipe.fields)
    title, given = ("standard input", "-") if path.name == "stdin" else ("records of a Python program", name)
    by = said.get("sample_by") or Recipe.sample_by
    return Recipe(name, title, "unknown", kind, (Source(str(path)),), fields, by, given=given, asked=name)
