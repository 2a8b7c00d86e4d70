"""Download corpora: report the size, resume, verify checksums, and read indexes that list files.

PubMed Central has one folder per article version in its bucket of open data. The bucket has ``metadata/PMC1.1.json``
and ``PMC1.1/PMC1.1.xml`` for version 1 of the article PMC1, and every day S3 writes a new inventory
of the metadata, in CSV. The first run saves the article numbers, so that later runs download the same articles.
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from html import unescape
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

import numpy as np

from greenadapt.corpus.opening import input_errors, is_compressed, is_hidden
from greenadapt.corpus.recipes import LISTING, PMC, Recipe, Source, file_name, refuse_same_names
from greenadapt.errors import ConflictError, InputError, ResourceError, byte_size, counted, require
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.storage.arrays import Int64Array
from greenadapt.storage.files import Json, naming, read_own_object, write_json
from greenadapt.storage.ownership import is_noted, is_own, new_folder, note_files, noted_files, write_noted

if TYPE_CHECKING:
    import requests


_BLOCK = 1 << 16  # bytes; a dropped connection loses at most one block
_MOST_IN_MEMORY = 256 << 20  # bytes of a list of files, or of an article
_TIMEOUT = (10, 60)  # seconds to connect, and between two packets
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-[0-9]{1,18}|\*)/([0-9]{1,18}|\*)")
"""The first byte and the size of the file, which may be unknown."""
ATTEMPTS = 5
"""How often a request is sent before the download fails."""


def local_path(source: Source, folder: Path) -> Path:
    """The path of a source: in the download ``folder`` if it is remote, on disk if it is local."""
    return folder / file_name(source.url) if source.is_remote else Path(source.url)


def is_fetched(recipe: Recipe, folder: Path) -> bool:
    """Whether ``folder`` has every remote source; only complete files and folders have their final name."""
    return all(local_path(source, folder).exists() for source in recipe.sources if source.is_remote)


def fetch(sources: Iterable[Source], folder: Path, progress: Progress | None = None) -> None:
    """Download the missing ``sources`` into ``folder``.

    A file is called ``NAME.part``, which a later run resumes, until it is complete and matches its checksum. Raises
    ``ResourceError`` if the disk is too small, ``InputError`` if the server refuses or a checksum or size is wrong (the
    file is then removed).
    """
    progress = progress or Silent()
    missing = [source for source in sources if source.is_remote and not local_path(source, folder).exists()]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with download_session() as session:
        sizes = {source.url: source.size or _announced_size(session, source.url) for source in missing}
        _report_sizes(sizes, folder, progress)
        for source in missing:
            target = local_path(source, folder)
            with progress.bar(target.name, sizes[source.url] or None, "bytes") as bar:
                _fetch_file(session, source, target, bar)


def download_session() -> "requests.Session":
    """Create a session that retries with increasing delays, or after Retry-After, if the server fails."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    retry = Retry(
        total=ATTEMPTS - 1, backoff_factor=1, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False
    )
    session = requests.Session()
    # Sizes, ranges and checksums are of the file, not of a compressed transfer.
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _announced_size(session: "requests.Session", url: str) -> int:
    """The file's size in bytes as announced by the server; 0 if unknown."""
    if not url.startswith("http"):
        return 0
    with _request(session, "HEAD", url) as response:
        if response.status_code == 404:
            raise download_error(url, "404 Not Found")
        return (_content_length(response) or 0) if response.ok else 0


def _content_length(response: "requests.Response") -> int | None:
    """The size in bytes that the server announces; ``None`` if it announces no valid number."""
    announced = response.headers.get("Content-Length", "")
    return int(announced) if re.fullmatch("[0-9]{1,18}", announced) else None


def download_error(url: str, why: str) -> InputError:
    """The error of a download that failed."""
    return InputError(f"{url} cannot be downloaded ({why})", "check the address and the network, then run it again")


def _request(
    session: "requests.Session", method: str, url: str, headers: Mapping[str, str] = {}
) -> "requests.Response":
    """Send a request and return the response with unread content; ``InputError`` if the server cannot be reached."""
    import requests

    try:
        return session.request(method, url, headers=headers, stream=True, allow_redirects=True, timeout=_TIMEOUT)
    except (requests.RequestException, ValueError) as error:  # ValueError: redirected to an invalid address
        raise download_error(url, str(error)) from error


def get(session: "requests.Session", url: str, before: Callable[[], None] = lambda: None) -> bytes | None:
    """Download a small file into memory; ``None`` for a 404. Calls ``before`` before each request.

    Raises ``InputError`` if the server refuses, the connection keeps failing, or the file is too large.
    """
    import requests

    failures = 0
    while True:
        before()
        with _request(session, "GET", url) as response:
            if response.status_code == 404:
                return None
            if not response.ok:
                raise download_error(url, f"{response.status_code} {response.reason}")
            try:
                return _read_small(response, url)
            except requests.RequestException as error:
                failures += 1
                if failures == ATTEMPTS:
                    raise download_error(url, str(error)) from error


def _read_small(response: "requests.Response", url: str) -> bytes:
    content = bytearray()
    for block in response.iter_content(_BLOCK):
        content += block
        if len(content) > _MOST_IN_MEMORY:
            raise download_error(
                url, f"it is larger than {byte_size(_MOST_IN_MEMORY)}, too large for this kind of file"
            )
    return bytes(content)


def _report_sizes(sizes: dict[str, int], folder: Path, progress: Progress) -> None:
    """Report the size of the download; ``ResourceError`` if it does not fit on the disk, without partial files."""
    present = sum(_size(partial_files(folder / file_name(url))[0]) for url, size in sizes.items() if size)
    needed, free = sum(sizes.values()) - present, shutil.disk_usage(folder).free
    unknown = sum(not size for size in sizes.values())
    amounts = [counted(len(sizes), "file")]
    amounts += [byte_size(needed)] if unknown < len(sizes) else []
    amounts += [f"{counted(unknown, 'file')} of unknown size"] if unknown else []
    progress.note(f"downloading {', '.join(amounts)}, to {folder}")
    if needed > free:
        raise ResourceError(
            f"the download needs {byte_size(needed)} in {folder}, which has {byte_size(free)} free",
            "free some space, or use a workspace on another disk",
        )


def _fetch_file(session: "requests.Session", source: Source, target: Path, bar: Bar) -> None:
    part, version = partial_files(target)
    if source.url.startswith("http"):
        _download(session, source.url, (part, version), bar)
    else:
        _copy(source.url, part, bar)
    md5 = _md5_beside(session, source) if source.md5_beside else ""
    try:
        _verify(source, part, md5)
    except InputError:
        part.unlink()
        version.unlink(missing_ok=True)
        raise
    part.replace(target)
    version.unlink(missing_ok=True)


def partial_files(target: Path) -> tuple[Path, Path]:
    """The files of an incomplete download of ``target``: its first bytes; the version on the server and its size.

    Only bytes of the same version and size are appended.
    """
    return target.with_name(f"{target.name}.part"), target.with_name(f".{target.name}.part.version")


def _copy(url: str, part: Path, bar: Bar) -> None:
    """Copy from another store, such as S3, without resuming."""
    import smart_open

    refusals: tuple[type[Exception], ...] = (ValueError, ImportError, NotImplementedError)
    if url.startswith("s3://"):
        require("s3", "boto3", by=url)
        from botocore.exceptions import BotoCoreError, ClientError

        refusals = (*refusals, BotoCoreError, ClientError)
    try:
        stream = smart_open.open(url, "rb", compression="disable")
    except OSError as error:
        raise download_error(url, str(error)) from error
    except refusals as error:
        raise download_error(url, str(error)) from error
    with stream, naming(part), open(part, "wb") as file:
        try:
            while block := stream.read(_BLOCK):
                file.write(block)
                bar.advance(len(block))
        except refusals as error:  # a full disk is an OSError, not the server's fault
            raise download_error(url, str(error)) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _download(session: "requests.Session", url: str, files: tuple[Path, Path], bar: Bar) -> None:
    """Download ``url`` into ``files``, resuming after dropped connections as long as the file grows."""
    import requests

    part, _ = files
    largest = _size(part)
    bar.advance(largest)
    failures = 0
    while True:
        try:
            return _receive(session, url, files, bar)
        except requests.RequestException as error:
            failures = 0 if _size(part) > largest else failures + 1
            largest = max(largest, _size(part))
            if failures == ATTEMPTS:
                raise download_error(url, str(error)) from error


def _receive(session: "requests.Session", url: str, files: tuple[Path, Path], bar: Bar) -> None:
    """Request the missing bytes; if the server does not support ranges, the whole file.

    An answer that does not continue the first bytes removes them, so that the next request begins anew.
    """
    import requests

    part, version = files
    n_present = _size(part)
    validator, _, size = version.read_text().partition("\n") if n_present and version.is_file() else ("", "", "")
    headers = {"Range": f"bytes={n_present}-"} if n_present else {}
    if validator:
        headers["If-Range"] = validator  # a file that has changed is sent whole
    with _request(session, "GET", url, headers) as response:
        status = response.status_code
        if not response.ok and status != 416:
            raise download_error(url, f"{status} {response.reason}")
        encoding = response.headers.get("Content-Encoding", "identity")
        is_decoded = encoding != "identity" and not is_compressed(part.stem)  # ranges count the encoded bytes
        if status in (206, 416):
            match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            start, announced = match.groups() if match else (None, "")
            tag = response.headers.get("ETag" if validator.startswith('"') else "Last-Modified", validator)
            is_same = (not validator or tag == validator) and announced in ("*", size or announced)
            if status == 416 and is_same and announced == str(n_present):
                return  # complete
            if status == 416 or not is_same or start != str(n_present) or is_decoded:
                part.unlink(missing_ok=True)
                bar.advance(-n_present)
                raise requests.ConnectionError(f"the answer {status} does not continue the first {n_present} bytes")
            size = size or announced
        else:
            bar.advance(-n_present)
            validator, size = "", "" if is_decoded else str(_content_length(response) or "")
        version.write_text(f"{_version(response.headers) or validator}\n{size}")
        with naming(part), open(part, "ab" if status == 206 else "wb") as file:
            for block in _content(response, part.stem):
                file.write(block)
                bar.advance(len(block))
        if size.isdecimal() and _size(part) != int(size):
            raise requests.ConnectionError(f"{_size(part)} of {size} bytes received")


def _content(response: "requests.Response", name: str) -> Iterator[bytes]:
    """Yield the file ``name`` as stored; some servers declare a compressed file's compression as Content-Encoding."""
    import requests
    from urllib3.exceptions import HTTPError

    try:
        yield from response.raw.stream(_BLOCK, decode_content=not is_compressed(name))
    except HTTPError as error:
        raise requests.ConnectionError(error) from error


def _version(headers: Mapping[str, str]) -> str:
    """The strong ETag or the modification date of a file; "" if the server sends neither."""
    tag = headers.get("ETag", "W/")
    return headers.get("Last-Modified", "") if tag.startswith("W/") else tag


def _md5_beside(session: "requests.Session", source: Source) -> str:
    """The MD5 in the file URL.md5; raises ``InputError`` if it holds none."""
    content = get(session, f"{source.url}.md5") or b""
    match = re.search(rb"\b[0-9a-fA-F]{32}\b", content)
    if not match:
        raise InputError(f"{source.url}.md5 holds no MD5", "take md5_beside out of the recipe")
    return match[0].decode().lower()


def _verify(source: Source, path: Path, md5_beside: str) -> None:
    """Raise ``InputError`` if the file's size or a known checksum does not match."""
    checksums = (("SHA256", source.sha256.lower()), ("MD5", source.md5.lower()), ("MD5", md5_beside))
    for name, expected in (("bytes", source.size), *checksums):
        if not expected:
            continue
        actual = path.stat().st_size if name == "bytes" else _digest(path, name)
        if actual != expected:
            raise InputError(
                f"{source.url}: {name} is {actual}, must be {expected}",
                "the bad file is removed: download it again, or correct the recipe",
            )


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        # MD5 detects damage, not attacks.
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def check_local(source: Source, sha256: str) -> None:
    """Raise ``InputError`` if a local file, whose SHA-256 is ``sha256``, does not match the recipe."""
    path = Path(source.url)
    if source.is_remote or path.is_dir():  # downloads are verified on arrival
        return
    size = ("size in bytes", path.stat().st_size, source.size)
    for name, actual, expected in (("SHA-256", sha256, source.sha256.lower()), size):
        if expected and actual != expected:
            raise InputError(
                f"{path}: {name} is {actual}, the recipe has {expected}", "give the right file, or correct the recipe"
            )


REQUESTS_PER_ARTICLE = 2
"""At most: the metadata, and the XML if its licence is in the recipe."""
_PER_ARCHIVE = 1000  # articles; a killed run loses at most one archive
_WORKERS = 8  # concurrent requests
_INVENTORY = "inventory-reports/pmc-oa-opendata/metadata/"
_DAY = re.compile(rf"<Prefix>({_INVENTORY}\d{{4}}-\d\d-\d\dT\d\d-\d\dZ/)</Prefix>")
_KEY = re.compile(r"metadata/PMC(\d+)\.(\d+)\.json")
_VERSION_BITS = 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
_SETTINGS, _CHOSEN = ".settings.json", ".articles.npy"  # hidden from the reader of a folder


def fetch_articles(source: Source, work: Path, progress: Progress) -> None:
    """Download the articles with one of the licences of ``source`` into archives of 1,000 in the folder ``work``.

    An existing archive is complete. Raises ``InputError`` if the server refuses, or if ``work`` has other licences or
    another share.
    """
    check_begun(source, work)
    chosen = _select_articles(source, work, progress)
    requests = REQUESTS_PER_ARTICLE * len(chosen)
    max_hours = max(requests / source.rate / 3600, 0.1)
    progress.note(
        f"{counted(len(chosen), 'article')} of PMC, at most {counted(requests, 'request')}, "
        f"{source.rate:g} a second: up to {max_hours:,.1f} hours, in {work}"
    )
    skipped: Counter[str] = Counter()
    with (
        progress.bar("articles", len(chosen), "articles") as bar,
        closing(_Bucket(source)) as bucket,
        ThreadPoolExecutor(_WORKERS) as pool,
    ):
        for start in range(0, len(chosen), _PER_ARCHIVE):
            versions = (divmod(number, 1 << _VERSION_BITS) for number in chosen[start : start + _PER_ARCHIVE].tolist())
            names = [f"PMC{article}.{version}" for article, version in versions]
            archive = work / f"{start // _PER_ARCHIVE:05d}.tar.gz"
            if archive.exists():
                bar.advance(len(names))
                continue
            contents = []
            for name, content in zip(names, pool.map(bucket.article, names), strict=True):
                bar.advance(1)
                if isinstance(content, str):
                    skipped[content] += 1
                else:
                    contents.append((f"{name}.xml", content))
            _write_archive(archive, contents)
    for why, n in sorted(skipped.items()):
        progress.note(f"left out {counted(n, 'article')}: {why}")


def check_begun(source: Source, folder: Path) -> None:
    """Raise ``InputError`` if the download in ``folder`` has other settings than ``source``."""
    path = folder / _SETTINGS
    if source.index == PMC and path.exists():
        settings = read_own_object(path, dict[str, Any], "settings of a download")
        if settings != _settings(source):
            raise InputError(
                f"{folder} was downloaded with {settings}, the recipe has {_settings(source)}",
                "remove it, or undo the change of the recipe",
            )


def _settings(source: Source) -> Json:
    return {"licences": sorted(source.licences), "share": source.share}


def _select_articles(source: Source, work: Path, progress: Progress) -> Int64Array:
    """The numbers of the article versions to download; the first run takes them from the newest inventory."""
    path = work / _CHOSEN
    if not path.exists():
        files = _inventory_files(source)
        inventory = work / ".inventory"
        fetch(files, inventory, progress)
        numbers = choose(
            (key for file in files for key in _read_keys(inventory / file.url.rpartition("/")[2])), source.share
        )
        write_json(work / _SETTINGS, _settings(source))
        part = work / f"{_CHOSEN}.part"
        with naming(part), open(part, "wb") as stream:
            np.save(stream, numbers)
        part.replace(path)
        shutil.rmtree(inventory)
    return np.load(path)


def choose(keys: Iterable[str], share: float) -> Int64Array:
    """Select the last version of each article among the keys of the bucket: article number × 65,536 + version, sorted.

    Whether a ``share`` below 1 includes an article depends only on the number of the article.
    """
    numbers = array("q")
    for key in keys:
        if match := _KEY.fullmatch(key):
            numbers.append(int(match[1]) << _VERSION_BITS | int(match[2]))
    if not numbers:
        raise InputError("the inventory of PMC's bucket names no article", "its layout may have changed: report it")
    versions = np.unique(np.frombuffer(numbers, np.int64))
    articles = versions >> _VERSION_BITS
    is_last = np.append(articles[1:] != articles[:-1], True)
    scattered = (articles.astype(np.uint64) * _GOLDEN) / 2.0**64  # evenly over 0 to 1
    return versions[is_last & ((scattered < share) | (share == 1))]


def _inventory_files(source: Source) -> list[Source]:
    """The files of the newest complete inventory."""
    with closing(_Bucket(source)) as bucket:
        page = bucket.read(f"?list-type=2&delimiter=/&prefix={_INVENTORY}") or b""
        for day in sorted(_DAY.findall(page.decode("utf-8", "replace")), reverse=True):
            if (content := bucket.read(f"{day}manifest.json")) is None:
                continue  # S3 is still writing it
            try:
                manifest = json.loads(content)
                if [name.strip() for name in manifest["fileSchema"].split(",")][:2] != ["Bucket", "Key"]:
                    raise ValueError(manifest["fileSchema"])
                return [
                    Source(source.url + entry["key"], size=index(entry["size"]), md5=entry["MD5checksum"].lower())
                    for entry in manifest["files"]
                ]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(f"{source.url}{day}manifest.json is no inventory in CSV ({error})", _REPORT) from None
    raise InputError(f"{source.url}{_INVENTORY} has no inventory", _REPORT)


_REPORT = "the layout of the bucket may have changed: report it"


def _read_keys(path: Path) -> Iterator[str]:
    with input_errors(str(path)), gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream):
            yield unquote(row[1])


class _Bucket:
    """Requests to the bucket, from several threads, limited to ``source.rate`` per second in total."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._session = download_session()
        self._lock = threading.Lock()
        self._next = 0.0

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def read(self, key: str) -> bytes | None:
        """Download an object; ``None`` if it does not exist."""
        return get(self._session, self._source.url + key, before=self._wait)

    def article(self, name: str) -> bytes | str:
        """Download the XML of an article version; returns the reason if there is none."""
        for _ in range(ATTEMPTS):
            metadata = self.read(f"metadata/{name}.json")
            if metadata is None:
                return "no longer there"
            facts = self._facts(name, metadata)
            if facts.get("license_code") not in self._source.licences:
                return "with another licence, or none"
            if not facts.get("xml_url"):
                return "without XML"
            address = self._split_url(name, str(facts["xml_url"]))
            content = self.read(address.path.lstrip("/"))
            if content is None:
                return "without XML"
            if address.query == f"md5={hashlib.md5(content, usedforsecurity=False).hexdigest()}":
                return content
            # The article changed since its metadata were read.
        raise download_error(f"{self._source.url}{address.path.lstrip('/')}", "its MD5 is not that of its metadata")

    def _facts(self, name: str, metadata: bytes) -> dict[str, Any]:
        try:
            facts = json.loads(metadata)
        except (ValueError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            raise InputError(f"{self._source.url}metadata/{name}.json is not a JSON object", _REPORT)
        return facts

    def _split_url(self, name: str, url: str) -> SplitResult:
        try:
            return urlsplit(url)
        except ValueError:
            raise InputError(f"{self._source.url}metadata/{name}.json has an invalid xml_url", _REPORT) from None

    def _wait(self) -> None:
        """Wait until the rate allows the next request."""
        with self._lock:
            time_now = time.monotonic()
            request_time = max(time_now, self._next)
            self._next = request_time + 1 / self._source.rate
        time.sleep(request_time - time_now)


def _write_archive(path: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """Write a tar archive whose bytes depend only on its members."""
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
    """Download the missing files into ``folder``, and for each index a folder with the files that it lists.

    Such a folder is called ``NAME.part``, which a later run resumes, until it is complete. Raises ``InputError`` and
    ``ResourceError`` like ``fetch``, and ``InputError`` if an index lists no file.
    """
    progress = progress or Silent()
    _fetch_files([source for source in recipe.sources if not source.index], folder, progress)
    for source in recipe.sources:
        if not source.index:
            continue
        target = local_path(source, folder)
        if target.exists():
            check_begun(source, target)
            continue
        work = target.with_name(f"{target.name}.part")
        if not work.exists():
            new_folder(work)
        (_fetch_listed if source.index == LISTING else fetch_articles)(source, work, progress)
        work.replace(target)


def _fetch_files(sources: Sequence[Source], folder: Path, progress: Progress) -> None:
    """Download the missing files, and note them in the folder's mark."""
    files = {path.name: path for source in sources if source.is_remote if (path := local_path(source, folder))}
    incomplete = {name for name, size in noted_files(folder).items() if size is None}
    incomplete |= {name for name, path in files.items() if not path.exists()}
    if incomplete:
        folder.mkdir(parents=True, exist_ok=True)
        note_files(folder, dict.fromkeys(incomplete))
    fetch(sources, folder, progress)
    if incomplete:
        note_files(folder, {name: files[name].stat().st_size for name in incomplete & files.keys()})


def _fetch_listed(source: Source, work: Path, progress: Progress) -> None:
    """Download the files that the page lists; remove downloads that only an earlier list had.

    Raises ``ConflictError`` if another file is there: the folder would be read with it.
    """
    with download_session() as session:
        page = get(session, source.url)
    if page is None:
        raise download_error(source.url, "404 Not Found")
    links = {unquote(unescape(link)) for link in _LINK.findall(page.decode("utf-8", "replace"))}
    names = sorted(link for link in links if re.fullmatch(source.files, link) and "/" not in link)
    if not names:
        raise InputError(f"{source.url} lists no file called {source.files}", "correct files or url in the recipe")
    files = [Source(source.url + quote(name), md5_beside=source.md5_beside) for name in names]
    refuse_same_names(files, source.url)
    targets = {local_path(file, work) for file in files}
    _remove_unlisted(work, targets)
    listed = {path for target in targets for path in (target, *partial_files(target))}
    unlisted = sorted(path.name for path in work.iterdir() if path not in listed and not is_hidden(path.name))
    if unlisted:
        raise ConflictError(
            f"{work} holds {unlisted[0]}, which {source.url} does not list", "move it away, or remove the folder"
        )
    # A recipe may have named each file before.
    files_before = [path for target in targets if (path := work.parent / target.name).is_file()]
    is_marked = is_own(work)
    if is_marked:
        note_files(work, {path.name: path.stat().st_size for path in files_before if is_noted(path)})
    for path in files_before:
        path.replace(work / path.name)
    # Without a mark, somebody else or an early version made the folder; notes would mark it as greenadapt's.
    (_fetch_files if is_marked else fetch)(files, work, progress)


def _remove_unlisted(work: Path, targets: Collection[Path]) -> None:
    """Remove what greenadapt itself downloaded into ``work`` beside the ``targets``."""
    files = noted_files(work)
    unlisted = files.keys() - {target.name for target in targets}
    for name in unlisted:
        part, version = partial_files(work / name)
        for path in filter(is_noted, (work / name, part)):
            path.unlink()
            version.unlink(missing_ok=True)
    if unlisted:
        write_noted(work, {name: size for name, size in files.items() if name not in unlisted})
