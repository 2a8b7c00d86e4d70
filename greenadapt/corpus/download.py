"""Downloads that announce their size, resume and are verified, and the indexes that list what to download.

PubMed Central has one folder per article version in its bucket of open data. The bucket has ``metadata/PMC1.1.json``
and ``PMC1.1/PMC1.1.xml`` for version 1 of the article PMC1, and every day a new inventory (S3's own, in CSV) of the
metadata. The inventory of the first run is kept, so that a later run goes on with the same articles.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

import numpy as np

from greenadapt.corpus.opening import input_errors, is_compressed
from greenadapt.corpus.recipes import LISTING, PMC, Recipe, Source, file_name, refuse_same_names
from greenadapt.errors import ConflictError, InputError, ResourceError, byte_size, counted, require
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.storage.arrays import Int64Array
from greenadapt.storage.files import Json, naming, write_json
from greenadapt.storage.own_json import read_own_object
from greenadapt.storage.ownership import MARK, is_own, new_folder, note_files, noted_files

if TYPE_CHECKING:
    import requests


_BLOCK = 1 << 16  # bytes; the most that a dropped connection can lose
_MOST_IN_MEMORY = 256 << 20  # of a list of files, or an article
_TIMEOUT = (10, 60)  # seconds to connect, and between two packets
ATTEMPTS = 5
"""How often a request is made in vain before it is given up."""


def local_path(source: Source, folder: Path) -> Path:
    """The path of a source: in the download folder if it is remote, else its own."""
    return folder / file_name(source.url) if source.is_remote else Path(source.url)


def is_fetched(recipe: Recipe, folder: Path) -> bool:
    """Whether every remote source lies in ``folder`` complete (files and folders get their final name only then)."""
    return all(local_path(source, folder).exists() for source in recipe.sources if source.is_remote)


def fetch(sources: Iterable[Source], folder: Path, progress: Progress | None = None) -> None:
    """Download what is missing into ``folder``.

    A file is written as ``NAME.part``, which a later run resumes, and renamed when it is complete and its checksum, if
    known, matches. Raises ``ResourceError`` if the disk is too small, ``InputError`` if the server refuses or a
    checksum or size is wrong (the file is then removed).
    """
    progress = progress or Silent()
    missing = [source for source in sources if source.is_remote and not local_path(source, folder).exists()]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with download_session() as session:
        sizes = {source.url: source.size or _announced_size(session, source.url) for source in missing}
        _say_sizes(sizes, folder, progress)
        for source in missing:
            target = local_path(source, folder)
            with progress.bar(target.name, sizes[source.url] or None, "bytes") as bar:
                _fetch_one(session, source, target, bar)


def download_session() -> "requests.Session":
    """Tries again if the server is busy or cannot be reached, after longer and longer waits, or Retry-After."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    retry = Retry(
        total=ATTEMPTS - 1, backoff_factor=1, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False
    )
    session = requests.Session()
    # Sizes, ranges and checksums are those of the file itself.
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _announced_size(session: "requests.Session", url: str) -> int:
    """The file's size in bytes as announced by the server; 0 if unknown."""
    if not url.startswith("http"):
        return 0
    with _request(session, "HEAD", url) as answer:
        if answer.status_code == 404:
            raise refused(url, "404 Not Found")
        return (_length(answer) or 0) if answer.ok else 0


def _length(answer: "requests.Response") -> int | None:
    """The bytes that the server announces; ``None`` if it does not, or says what is no number."""
    said = answer.headers.get("Content-Length", "")
    return int(said) if re.fullmatch("[0-9]{1,18}", said) else None


def refused(url: str, why: str) -> InputError:
    """The error of a download that failed."""
    return InputError(f"{url} cannot be downloaded ({why})", "check the address and the network, then run it again")


def _request(
    session: "requests.Session", method: str, url: str, headers: Mapping[str, str] = {}
) -> "requests.Response":
    """The answer, its content still to be read; ``InputError`` if the server cannot be reached."""
    import requests

    try:
        return session.request(method, url, headers=headers, stream=True, allow_redirects=True, timeout=_TIMEOUT)
    except (requests.RequestException, ValueError) as error:  # ValueError: redirected to what is no address
        raise refused(url, str(error)) from error


def get(session: "requests.Session", url: str, before: Callable[[], None] = lambda: None) -> bytes | None:
    """A small file in memory; ``None`` if there is none at ``url``. ``before`` is called before each request.

    Raises ``InputError`` if the server refuses, the connection is cut again and again, or the file is not small.
    """
    import requests

    failures = 0
    while True:
        before()
        with _request(session, "GET", url) as answer:
            if answer.status_code == 404:
                return None
            if not answer.ok:
                raise refused(url, f"{answer.status_code} {answer.reason}")
            try:
                return _small(answer, url)
            except requests.RequestException as error:
                failures += 1
                if failures == ATTEMPTS:
                    raise refused(url, str(error)) from error


def _small(answer: "requests.Response", url: str) -> bytes:
    content = bytearray()
    for block in answer.iter_content(_BLOCK):
        content += block
        if len(content) > _MOST_IN_MEMORY:
            raise refused(url, f"it is larger than {byte_size(_MOST_IN_MEMORY)}, too large for what it should be")
    return bytes(content)


def _say_sizes(sizes: dict[str, int], folder: Path, progress: Progress) -> None:
    """Report the size of the download; ``ResourceError`` if the disk has less room, counting partial files."""
    parts = (folder / f"{file_name(url)}.part" for url, size in sizes.items() if size)
    present = sum(part.stat().st_size for part in parts if part.exists())
    needed, free = sum(sizes.values()) - present, shutil.disk_usage(folder).free
    unknown = sum(not size for size in sizes.values())
    more = f", {counted(unknown, 'file')} of unknown size" if unknown else ""
    known = [byte_size(needed)] if unknown < len(sizes) else []
    progress.note(f"downloading {', '.join([counted(len(sizes), 'file'), *known])}{more}, to {folder}")
    if needed > free:
        raise ResourceError(
            f"the download needs {byte_size(needed)} in {folder}, which has {byte_size(free)} free",
            "free some space, or use a workspace on another disk",
        )


def _fetch_one(session: "requests.Session", source: Source, target: Path, bar: Bar) -> None:
    part, version = unfinished(target)
    if source.url.startswith("http"):
        _download(session, source.url, part, bar)
    else:
        _copy(source.url, part, bar)
    beside = _md5_beside(session, source) if source.md5_beside else ""
    try:
        _verify(source, part, beside)
    except InputError:
        part.unlink()
        version.unlink(missing_ok=True)
        raise
    part.replace(target)
    version.unlink(missing_ok=True)


def unfinished(target: Path) -> tuple[Path, Path]:
    """The files of an unfinished download: the beginning of ``target``, and the version that it is of."""
    part = target.with_name(f"{target.name}.part")
    return part, _version_file(part)


def _copy(url: str, part: Path, bar: Bar) -> None:
    """From other stores, such as s3, without resuming."""
    import smart_open

    refusals: tuple[type[Exception], ...] = (ValueError, ImportError, NotImplementedError)
    if url.startswith("s3://"):
        require("s3", "boto3", by=url)
        from botocore.exceptions import BotoCoreError, ClientError

        refusals = (*refusals, BotoCoreError, ClientError)
    try:
        stream = smart_open.open(url, "rb", compression="disable")
    except OSError as error:
        raise refused(url, str(error)) from error
    except refusals as error:
        raise refused(url, str(error)) from error
    with stream, naming(part), open(part, "wb") as file:
        try:
            while block := stream.read(_BLOCK):
                file.write(block)
                bar.advance(len(block))
        except refusals as error:  # a full disk is an OSError, not the server's fault
            raise refused(url, str(error)) from error


def _download(session: "requests.Session", url: str, part: Path, bar: Bar) -> None:
    """Download ``url`` into ``part``, resuming after dropped connections as long as each attempt makes progress."""
    import requests

    start = part.stat().st_size if part.exists() else 0
    bar.advance(start)
    failures = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            return _receive(session, url, part, bar)
        except requests.RequestException as error:
            after = part.stat().st_size if part.exists() else 0
            failures = 0 if after > before else failures + 1
            if failures == ATTEMPTS:
                raise refused(url, str(error)) from error


def _receive(session: "requests.Session", url: str, part: Path, bar: Bar) -> None:
    """One request: the rest of the file, or all of it if the server does not support ranges."""
    import requests

    have = part.stat().st_size if part.exists() else 0
    version = _version_file(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and version.is_file():
        headers["If-Range"] = version.read_text()  # the server sends all of it if the file is another one now
    with _request(session, "GET", url, headers) as answer:
        if answer.status_code == 416 and answer.headers.get("Content-Range") == f"bytes */{have}":
            return  # complete already
        if answer.status_code == 416:
            part.unlink()
            raise requests.ConnectionError(f"{url} has changed since the download began")
        if not answer.ok:
            raise refused(url, f"{answer.status_code} {answer.reason}")
        resumed = answer.status_code == 206
        if have and not resumed:
            bar.advance(-have)
        if not resumed and (stated := _version(answer.headers)):
            version.write_text(stated)
        expected = _length(answer)
        received = 0
        with naming(part), open(part, "ab" if resumed else "wb") as file:
            for block in _content(answer, part.stem):
                file.write(block)
                received += len(block)
                bar.advance(len(block))
        if expected is not None and received < expected:
            raise requests.ConnectionError(f"{received} of {expected} bytes received")


def _content(answer: "requests.Response", name: str) -> Iterator[bytes]:
    """The file ``name`` as it is stored; some servers call a compressed file's own compression that of the transfer."""
    import requests
    from urllib3.exceptions import HTTPError

    try:
        yield from answer.raw.stream(_BLOCK, decode_content=not is_compressed(name))
    except HTTPError as error:
        raise requests.ConnectionError(error) from error


def _version_file(part: Path) -> Path:
    """Keeps the version of an unfinished file, so that only the rest of the same one is added to it."""
    return part.with_name(f".{part.name}.version")


def _version(headers: Mapping[str, str]) -> str:
    """What tells a file from a later one of the same address; "" if the server does not say."""
    tag = headers.get("ETag", "W/")
    return headers.get("Last-Modified", "") if tag.startswith("W/") else tag


def _md5_beside(session: "requests.Session", source: Source) -> str:
    """The MD5 that a file beside the source holds; raises ``InputError`` if there is none."""
    content = get(session, f"{source.url}.md5") or b""
    found = re.search(rb"\b[0-9a-fA-F]{32}\b", content)
    if not found:
        raise InputError(f"{source.url}.md5 holds no MD5", "take md5_beside out of the recipe")
    return found[0].decode().lower()


def _verify(source: Source, path: Path, md5_beside: str) -> None:
    """Raise ``InputError`` if the file's size or a known checksum does not match."""
    if source.size and path.stat().st_size != source.size:
        raise _mismatch(source.url, "bytes", path.stat().st_size, source.size)
    if source.sha256:
        _compare(source.url, path, "sha256", source.sha256.lower())
    if source.md5:
        _compare(source.url, path, "md5", source.md5.lower())
    if md5_beside:
        _compare(source.url, path, "md5", md5_beside)


def check_local(source: Source, sha256: str) -> None:
    """Raise ``InputError`` if a local file, whose SHA-256 is ``sha256``, does not match the recipe."""
    path = Path(source.url)
    if source.is_remote or path.is_dir():  # downloads are verified on arrival
        return
    for what, actual, expected in (
        ("SHA-256", sha256, source.sha256.lower()),
        ("size in bytes", path.stat().st_size, source.size),
    ):
        if expected and actual != expected:
            raise InputError(
                f"{path}: {what} is {actual}, the recipe has {expected}", "give the right file, or correct the recipe"
            )


def _compare(url: str, path: Path, algorithm: str, expected: str) -> None:
    with open(path, "rb") as file:
        # MD5 is the publisher's choice and only guards against damage.
        actual = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    if actual != expected:
        raise _mismatch(url, algorithm.upper(), actual, expected)


def _mismatch(url: str, what: str, actual: Any, expected: Any) -> InputError:
    return InputError(
        f"{url}: {what} is {actual}, must be {expected}",
        "the bad file is removed: download it again, or correct the recipe",
    )


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


_LINK = re.compile(r"""href\s*=\s*["']([^"'?#]+)["']""", re.IGNORECASE)


def fetch_corpus(recipe: Recipe, folder: Path, progress: Progress | None = None) -> None:
    """Download what is missing into ``folder``: files, and for each index a folder of the files that it names.

    Such a folder is called ``NAME.part`` until it is complete; a later run goes on with it. Raises ``InputError`` and
    ``ResourceError`` as ``fetch``, ``InputError`` also if an index names no file.
    """
    progress = progress or Silent()
    _fetch_files([source for source in recipe.sources if not source.index], folder, progress)
    for source in recipe.sources:
        target = local_path(source, folder)
        if not source.index:
            continue
        if target.exists():
            check_begun(source, target)
            continue
        work = target.with_name(f"{target.name}.part")
        if not work.exists():
            new_folder(work)
        (_fetch_listed if source.index == LISTING else fetch_articles)(source, work, progress)
        work.replace(target)


def _fetch_files(sources: Sequence[Source], folder: Path, progress: Progress) -> None:
    """Download what is missing, and note in the folder's mark what it is."""
    files = {path.name: path for source in sources if source.is_remote if (path := local_path(source, folder))}
    begun = {name for name, size in noted_files(folder).items() if size is None}
    begun |= {name for name, path in files.items() if not path.exists()}
    if begun:
        folder.mkdir(parents=True, exist_ok=True)
        note_files(folder, dict.fromkeys(begun))
    fetch(sources, folder, progress)
    if begun:
        note_files(folder, {name: files[name].stat().st_size for name in begun & files.keys()})


def _fetch_listed(source: Source, work: Path, progress: Progress) -> None:
    """The files that the page lists now; those of an earlier list, such as last year's, are removed."""
    with download_session() as session:
        page = get(session, source.url)
    if page is None:
        raise refused(source.url, "404 Not Found")
    links = {unquote(unescape(link)) for link in _LINK.findall(page.decode("utf-8", "replace"))}
    names = sorted(link for link in links if re.fullmatch(source.files, link) and "/" not in link)
    if not names:
        raise InputError(f"{source.url} lists no file called {source.files}", "correct files or url in the recipe")
    files = [Source(source.url + quote(name), md5_beside=source.md5_beside) for name in names]
    refuse_same_names(files, source.url)
    targets = {local_path(file, work) for file in files}
    known = {each for target in targets for each in (target, *unfinished(target))}
    others = [path for path in work.iterdir() if path not in known and path.name != MARK]
    if others and not is_own(work):
        raise ConflictError(
            f"{work} holds {others[0].name}, which {source.url} does not list", "move it away, or remove the folder"
        )
    for path in others:
        path.unlink()
    for target in targets:
        if (before := work.parent / target.name).is_file():  # of a recipe that named each file
            before.replace(target)
    fetch(files, work, progress)
