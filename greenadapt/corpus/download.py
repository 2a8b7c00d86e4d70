"""Download corpora: report the size, resume, verify checksums, and read pages that list files."""

import hashlib
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from greenadapt.corpus.opening import is_compressed
from greenadapt.corpus.recipes import FOLDER, Recipe, Source, file_name, refuse_same_names
from greenadapt.errors import (
    InputError,
    MissingError,
    ResourceError,
    byte_size,
    counted,
)
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.store.files import naming

if TYPE_CHECKING:
    import requests


_BLOCK = 1 << 16  # bytes; a dropped connection loses at most one block
_TIMEOUT = (10, 60)  # seconds to connect, and between two packets
ATTEMPTS = 5
"""How often a request is sent before the download fails."""


def local_path(source: Source, folder: Path) -> Path:
    """The path of a source: in the download ``folder`` if it is remote, on disk if it is local."""
    return folder / file_name(source.url) if source.is_remote else Path(source.url)


def is_fetched(recipe: Recipe, folder: Path) -> bool:
    """Whether ``folder`` has every remote source; only complete files and folders have their final name."""
    return all(local_path(source, folder).exists() for source in recipe.sources if source.is_remote)


def require_folders(recipe: Recipe, folder: Path) -> None:
    """Raise ``MissingError``, with the command that fetches it, for a folder that is missing in ``folder``."""
    for source in recipe.sources:
        target = local_path(source, folder)
        if source.command and not target.is_dir():
            command = source.command.replace(FOLDER, shlex.quote(str(target)))
            raise MissingError(f"corpus {recipe.name} needs the folder {target}", f"fetch it: {command}")


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


def get(session: "requests.Session", url: str) -> bytes | None:
    """Download a small file into memory; ``None`` for a 404.

    Raises ``InputError`` if the server refuses or the connection fails.
    """
    import requests

    with _request(session, "GET", url) as response:
        if response.status_code == 404:
            return None
        if not response.ok:
            raise download_error(url, f"{response.status_code} {response.reason}")
        try:
            return response.content
        except requests.RequestException as error:
            raise download_error(url, str(error)) from error


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
    _download(session, source.url, (part, version), bar)
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
    """The files of an incomplete download of ``target``: its first bytes, and their version on the server."""
    return target.with_name(f"{target.name}.part"), target.with_name(f".{target.name}.part.version")


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
    """Request the missing bytes, or the whole file if the server does not support ranges or the file has changed.

    An answer that does not continue the first bytes removes them, so that the next request begins anew.
    """
    import requests

    part, version = files
    validator = version.read_text() if part.exists() and version.is_file() else ""
    n_present = _size(part)
    headers = {"Range": f"bytes={n_present}-", "If-Range": validator} if validator else {}
    with _request(session, "GET", url, headers) as response:
        is_rest = response.status_code == 206
        if response.status_code == 416 or (is_rest and not _continues(response, n_present)):
            part.unlink()
            bar.advance(-n_present)
            raise requests.ConnectionError(f"the answer does not continue the first {n_present} bytes")
        if not response.ok:
            raise download_error(url, f"{response.status_code} {response.reason}")
        if not is_rest:
            bar.advance(-n_present)
        is_decoded = "Content-Encoding" in response.headers and not is_compressed(part.stem)
        version.write_text("" if is_decoded else _version(response.headers))  # ranges count the encoded bytes
        with naming(part), open(part, "ab" if is_rest else "wb") as file:
            for block in _content(response, part.stem):
                file.write(block)
                bar.advance(len(block))


def _continues(response: "requests.Response", n_present: int) -> bool:
    return response.headers.get("Content-Range", "").startswith(f"bytes {n_present}-")


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
    checksums = (("SHA256", source.sha256.lower()), ("MD5", md5_beside))
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


_LINK = re.compile(r"""href\s*=\s*["']([^"'?#]+)["']""", re.IGNORECASE)


def fetch_corpus(recipe: Recipe, folder: Path, progress: Progress | None = None) -> None:
    """Download the missing files into ``folder``, and for each page a folder with the files that it lists.

    Such a folder is called ``NAME.part``, which a later run resumes, until it is complete. Raises ``InputError`` and
    ``ResourceError`` like ``fetch``, and ``InputError`` if a page lists no file.
    """
    progress = progress or Silent()
    fetch([source for source in recipe.sources if not source.files], folder, progress)
    for source in recipe.sources:
        target = local_path(source, folder)
        if not source.files or target.exists():
            continue
        work = target.with_name(f"{target.name}.part")
        work.mkdir(parents=True, exist_ok=True)
        _fetch_listed(source, work, progress)
        work.replace(target)


def _fetch_listed(source: Source, work: Path, progress: Progress) -> None:
    """Download the files that the page lists; remove downloads that only an earlier list had."""
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
    listed = {name for file in files for name in _names_of(local_path(file, work))}
    for path in work.iterdir():  # an earlier list may have had others
        if path.name not in listed:
            path.unlink()
    fetch(files, work, progress)


def _names_of(file: Path) -> list[str]:
    """The name of a file, and of its unfinished download."""
    return [file.name, *(path.name for path in partial_files(file))]
