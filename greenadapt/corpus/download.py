"""Downloads that announce their size, resume, and are verified."""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenadapt.corpus.opening import is_compressed
from greenadapt.corpus.recipes import Recipe
from greenadapt.corpus.sources import Source, file_name
from greenadapt.errors import InputError, MissingError, ResourceError, byte_size, counted
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.storage.files import naming

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
        if find_spec("boto3") is None:
            raise MissingError(f"{url} needs boto3, which is not installed", 'pip install "greenadapt[s3]"')
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
