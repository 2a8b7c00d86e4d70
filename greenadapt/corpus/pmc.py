"""Articles of PubMed Central from its bucket of open data, one folder per article version.

The bucket has ``metadata/PMC1.1.json`` and ``PMC1.1/PMC1.1.xml`` for version 1 of the article PMC1, and every day a new
inventory (S3's own, in CSV) of the metadata. The inventory of the first run is kept, so that a later run goes on with
the same articles.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import index
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import numpy as np

from greenadapt.corpus.download import ATTEMPTS, download_session, fetch, get, refused
from greenadapt.corpus.opening import input_errors
from greenadapt.corpus.sources import PMC, Source
from greenadapt.errors import InputError, counted
from greenadapt.progress import Progress
from greenadapt.storage.arrays import Int64Array
from greenadapt.storage.files import Json, naming, write_json
from greenadapt.storage.own_json import read_own_object

REQUESTS_PER_ARTICLE = 2
"""At most: its metadata, and its XML if the licence is asked for."""
_PER_ARCHIVE = 1000  # articles; what a killed run loses
_WORKERS = 8  # requests under way at once
_INVENTORY = "inventory-reports/pmc-oa-opendata/metadata/"
_DAY = re.compile(rf"<Prefix>({_INVENTORY}\d{{4}}-\d\d-\d\dT\d\d-\d\dZ/)</Prefix>")
_KEY = re.compile(r"metadata/PMC(\d+)\.(\d+)\.json")
_VERSION_BITS = 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
_SETTINGS, _CHOSEN = ".settings.json", ".articles.npy"  # hidden from the reader of a folder


def fetch_articles(source: Source, work: Path, progress: Progress) -> None:
    """Download the articles with one of the licences of ``source`` into archives of 1,000 in the folder ``work``.

    An archive that is there is complete. Raises ``InputError`` if the server refuses, or if ``work`` was begun with
    other licences or another share.
    """
    check_begun(source, work)
    chosen = _chosen(source, work, progress)
    requests = REQUESTS_PER_ARTICLE * len(chosen)
    most = max(requests / source.rate / 3600, 0.1)
    progress.note(
        f"{counted(len(chosen), 'article')} of PMC, at most {counted(requests, 'request')}, "
        f"{source.rate:g} a second: up to {most:,.1f} hours, in {work}"
    )
    left_out: Counter[str] = Counter()
    with (
        progress.bar("articles", len(chosen), "articles") as bar,
        _Bucket(source) as bucket,
        ThreadPoolExecutor(_WORKERS) as pool,
    ):
        for start in range(0, len(chosen), _PER_ARCHIVE):
            names = [_name(each) for each in chosen[start : start + _PER_ARCHIVE].tolist()]
            archive = work / f"{start // _PER_ARCHIVE:05d}.tar.gz"
            if archive.exists():
                bar.advance(len(names))
                continue
            contents = []
            for name, content in zip(names, pool.map(bucket.article, names), strict=True):
                bar.advance(1)
                if isinstance(content, str):
                    left_out[content] += 1
                else:
                    contents.append((f"{name}.xml", content))
            _write_archive(archive, contents)
    for why, n in sorted(left_out.items()):
        progress.note(f"left out {counted(n, 'article')}: {why}")


def check_begun(source: Source, folder: Path) -> None:
    """Raise ``InputError`` if ``folder`` was begun with other settings than those of ``source``."""
    path = folder / _SETTINGS
    if source.index == PMC and path.exists():
        begun = read_own_object(path, dict[str, Any], "settings of a download")
        if begun != _settings(source):
            raise InputError(
                f"{folder} was downloaded with {begun}, the recipe has {_settings(source)}",
                "remove it, or undo the change of the recipe",
            )


def _settings(source: Source) -> Json:
    return {"licences": sorted(source.licences), "share": source.share}


def _chosen(source: Source, work: Path, progress: Progress) -> Int64Array:
    """The numbers of the article versions to download; from the newest inventory in the first run."""
    path = work / _CHOSEN
    if not path.exists():
        files = _inventory_files(source)
        kept = work / ".inventory"
        fetch(files, kept, progress)
        numbers = choose((key for file in files for key in _keys(kept / file.url.rpartition("/")[2])), source.share)
        write_json(work / _SETTINGS, _settings(source))
        part = work / f"{_CHOSEN}.part"
        with naming(part), open(part, "wb") as stream:
            np.save(stream, numbers)
        part.replace(path)
        shutil.rmtree(kept)
    chosen: Int64Array = np.load(path)
    return chosen


def choose(keys: Iterable[str], share: float) -> Int64Array:
    """The last version of each article among the keys of the bucket: number of the article × 65,536 + version, sorted.

    Of a ``share`` below 1 the same articles are taken whatever else is in the inventory.
    """
    numbers = array("q")
    for key in keys:
        if match := _KEY.fullmatch(key):
            numbers.append(int(match[1]) << _VERSION_BITS | int(match[2]))
    if not numbers:
        raise InputError("the inventory of PMC's bucket names no article", "its layout may have changed: report it")
    found = np.unique(np.frombuffer(numbers, np.int64))
    articles = found >> _VERSION_BITS
    is_last = np.append(articles[1:] != articles[:-1], True)
    scattered = (articles.astype(np.uint64) * _GOLDEN) / 2.0**64  # evenly over 0 to 1
    return found[is_last & ((scattered < share) | (share == 1))]


def _name(number: int) -> str:
    return f"PMC{number >> _VERSION_BITS}.{number & ((1 << _VERSION_BITS) - 1)}"


def _inventory_files(source: Source) -> list[Source]:
    """The files of the newest complete inventory."""
    with _Bucket(source) as bucket:
        page = bucket.read(f"?list-type=2&delimiter=/&prefix={_INVENTORY}") or b""
        for day in sorted(_DAY.findall(page.decode("utf-8", "replace")), reverse=True):
            if (content := bucket.read(f"{day}manifest.json")) is None:
                continue  # S3 is still writing it
            try:
                manifest = json.loads(content)
                if [name.strip() for name in manifest["fileSchema"].split(",")][:2] != ["Bucket", "Key"]:
                    raise ValueError(manifest["fileSchema"])
                return [
                    Source(source.url + each["key"], size=index(each["size"]), md5=each["MD5checksum"].lower())
                    for each in manifest["files"]
                ]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(f"{source.url}{day}manifest.json is no inventory in CSV ({error})", _REPORT) from None
    raise InputError(f"{source.url}{_INVENTORY} has no inventory", _REPORT)


_REPORT = "the layout of the bucket may have changed: report it"


def _keys(path: Path) -> Iterator[str]:
    with input_errors(str(path)), gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream):
            yield unquote(row[1])


class _Bucket:
    """Requests to the bucket from several threads, at most so many a second in all."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._session = download_session()
        self._lock = threading.Lock()
        self._next = 0.0

    def __enter__(self) -> "_Bucket":
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def read(self, key: str) -> bytes | None:
        """An object of the bucket; ``None`` if it does not exist."""
        return get(self._session, self._source.url + key, before=self._wait)

    def article(self, name: str) -> bytes | str:
        """The XML of an article version, or why it is left out."""
        for _ in range(ATTEMPTS):
            metadata = self.read(f"metadata/{name}.json")
            if metadata is None:
                return "no longer there"
            facts = self._facts(name, metadata)
            if facts.get("license_code") not in self._source.licences:
                return "with another licence, or none"
            if not facts.get("xml_url"):
                return "without XML"
            where = self._place(name, str(facts["xml_url"]))
            content = self.read(where.path.lstrip("/"))
            if content is None:
                return "without XML"
            if where.query == f"md5={hashlib.md5(content, usedforsecurity=False).hexdigest()}":
                return content
            # The article changed since its metadata were read.
        raise refused(f"{self._source.url}{where.path.lstrip('/')}", "its MD5 is not that of its metadata")

    def _facts(self, name: str, metadata: bytes) -> dict[str, Any]:
        try:
            facts = json.loads(metadata)
        except (ValueError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            raise InputError(f"{self._source.url}metadata/{name}.json is not a JSON object", _REPORT)
        return facts

    def _place(self, name: str, url: str) -> SplitResult:
        try:
            return urlsplit(url)
        except ValueError:
            raise InputError(f"{self._source.url}metadata/{name}.json has an xml_url that is none", _REPORT) from None

    def _wait(self) -> None:
        """Until the next request may be made."""
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            self._next = at + 1 / self._source.rate
        time.sleep(at - now)


def _write_archive(path: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """A tar archive that depends on its members only."""
    part = path.with_name(f"{path.name}.part")
    with (
        naming(part),
        open(part, "wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, content in contents:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    part.replace(path)
