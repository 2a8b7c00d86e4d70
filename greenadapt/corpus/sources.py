"""The sources of a recipe: files and folders on disk, files to download, and indexes that say what to download."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from greenadapt.errors import InputError, counted

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
