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
from greenadapt.errors import InputError, MissingError, ResourceError, byte_size, pluralize
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.store.files import naming

if TYPE_CHECKING:
    import requests


_BLOCK = 1 << 16  # bytes; a dropped connection loses at most one block
_TIMEOUT = (10, 60)  # seconds to connect, and between two packets
ATTEMPTS = 5
"""How often a request is sent before the download fails."""
_LINK = re.compile(r"""href\s*=\s*["']([^"'?#]+)["']""", re.IGNORECASE)


def local_path(source: Source, folder: Path) -> Path:
    """The path of a source: in the download ``folder`` if it is remote, on disk if it is local."""
    return folder / file_name(source.url) if source.is_remote else Path(source.url)


def is_fetched(recipe: Recipe, folder: Path) -> bool:
    """Whether ``folder`` has every remote source; only complete files and folders have their final name."""
    return all(local_path(source, folder).exists() for source in recipe.sources if source.is_remote)


def require_folders(recipe: Recipe, folder: Path) -> None:
    """Raise ``MissingError`` if ``folder`` lacks one that the user has to fetch; the error names the command."""
    for source in recipe.sources:
        target = local_path(source, folder)
        if source.command and not target.is_dir():
            command = source.command.replace(FOLDER, shlex.quote(str(target)))
            raise MissingError(f"corpus {recipe.name} needs the folder {target}", f"fetch it: {command}")


def fetch(sources: Iterable[Source], folder: Path, progress: Progress | None = None) -> None:
    """Download the missing ``sources`` into ``folder``; for each page, a folder with the files that it lists.

    Until a file or folder is complete, and matches its checksum if there is one, it is called ``NAME.part``; a later
    run resumes it. Raises ``ResourceError`` if the disk is too small. Raises ``InputError`` if the server refuses, if
    a page lists no file, or if a checksum is wrong; that file is then removed.
    """
    missing = [source for source in sources if source.is_remote and not local_path(source, folder).exists()]
    if not missing:
        return
    progress = progress or Silent()
    with _open_session() as session:
        _fetch_files(session, [source for source in missing if not source.files], folder, progress)
        for source in missing:
            if source.files:
                target = local_path(source, folder)
                work = target.with_name(f"{target.name}.part")
                _fetch_listed(session, source, work, progress)
                work.replace(target)


def _open_session() -> "requests.Session":
    """Open a session that retries with increasing delays, or after Retry-After, if the server fails."""
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


def _fetch_listed(session: "requests.Session", page: Source, folder: Path, progress: Progress) -> None:
    """Download the files that ``page`` lists into ``folder``; remove those that only an earlier list had."""
    content = _get(session, page.url).decode("utf-8", "replace")
    links = {unquote(unescape(link)) for link in _LINK.findall(content)}
    names = sorted(link for link in links if re.fullmatch(page.files, link) and "/" not in link)
    if not names:
        raise InputError(f"{page.url} lists no file called {page.files}", "correct files or url in the recipe")
    files = [Source(page.url + quote(name), md5_beside=page.md5_beside) for name in names]
    refuse_same_names(files, page.url)
    _fetch_files(session, files, folder, progress)
    listed = {file_name(file.url) for file in files}
    for path in folder.iterdir():
        if path.name not in listed:
            path.unlink()


def _fetch_files(session: "requests.Session", files: Iterable[Source], folder: Path, progress: Progress) -> None:
    """Download the missing ``files`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [file for file in files if not local_path(file, folder).exists()]
    sizes = {file.url: _announced_size(session, file.url) for file in missing}
    if missing:
        _report_sizes(sizes, folder, progress)
    for file in missing:
        target = local_path(file, folder)
        with progress.bar(target.name, sizes[file.url] or None, "bytes") as bar:
            _fetch_file(session, file, target, bar)


def _announced_size(session: "requests.Session", url: str) -> int:
    """The file's size in bytes as announced by the server; 0 if unknown."""
    with _request(session, "HEAD", url) as response:
        announced = response.headers.get("Content-Length", "")
        return int(announced) if response.ok and re.fullmatch("[0-9]{1,18}", announced) else 0


def _report_sizes(sizes: dict[str, int], folder: Path, progress: Progress) -> None:
    """Report the size of the download; ``ResourceError`` if it does not fit on the disk, without partial files."""
    present = sum(_size(_partial_files(folder / file_name(url))[0]) for url, size in sizes.items() if size)
    needed, free = sum(sizes.values()) - present, shutil.disk_usage(folder).free
    unknown = sum(not size for size in sizes.values())
    amounts = [pluralize(len(sizes), "file")]
    amounts += [byte_size(needed)] if unknown < len(sizes) else []
    amounts += [f"{pluralize(unknown, 'file')} of unknown size"] if unknown else []
    progress.note(f"downloading {', '.join(amounts)}, to {folder}")
    if needed > free:
        raise ResourceError(
            f"the download needs {byte_size(needed)} in {folder}, which has {byte_size(free)} free",
            "free some space, or use a workspace on another disk",
        )


def _fetch_file(session: "requests.Session", source: Source, target: Path, bar: Bar) -> None:
    part, version = _partial_files(target)
    _download(session, source.url, (part, version), bar)
    md5 = _read_md5(session, source) if source.md5_beside else ""
    for algorithm, expected in (("SHA256", source.sha256.lower()), ("MD5", md5)):
        if expected and (actual := _digest(part, algorithm)) != expected:
            part.unlink()
            version.unlink(missing_ok=True)
            raise InputError(
                f"{source.url}: {algorithm} is {actual}, must be {expected}",
                "the bad file is removed: download it again, or correct the recipe",
            )
    part.replace(target)
    version.unlink(missing_ok=True)


def _partial_files(target: Path) -> tuple[Path, Path]:
    """The files of an incomplete download of ``target``: its first bytes, and their version on the server."""
    return target.with_name(f"{target.name}.part"), target.with_name(f".{target.name}.part.version")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _request(
    session: "requests.Session", method: str, url: str, headers: Mapping[str, str] = {}
) -> "requests.Response":
    """Send a request and return the response with unread content; ``InputError`` if the server cannot be reached."""
    import requests

    try:
        return session.request(method, url, headers=headers, stream=True, allow_redirects=True, timeout=_TIMEOUT)
    except (requests.RequestException, ValueError) as error:  # ValueError: redirected to an invalid address
        raise _download_error(url, str(error)) from error


def _download_error(url: str, why: str) -> InputError:
    return InputError(f"{url} cannot be downloaded ({why})", "check the address and the network, then run it again")


def _get(session: "requests.Session", url: str) -> bytes:
    """Download a small file into memory; raises ``InputError`` if the server refuses or the connection fails."""
    import requests

    with _request(session, "GET", url) as response:
        if not response.ok:
            raise _download_error(url, f"{response.status_code} {response.reason}")
        try:
            return response.content
        except requests.RequestException as error:
            raise _download_error(url, str(error)) from error


def _read_md5(session: "requests.Session", source: Source) -> str:
    """The MD5 in the file URL.md5; raises ``InputError`` if it holds none."""
    match = re.search(rb"\b[0-9a-fA-F]{32}\b", _get(session, f"{source.url}.md5"))
    if not match:
        raise InputError(f"{source.url}.md5 holds no MD5", "take md5_beside out of the recipe")
    return match[0].decode().lower()


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        # MD5 detects damage, not attacks.
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


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
                raise _download_error(url, str(error)) from error


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
        begin = response.headers.get("Content-Range", "")
        if response.status_code == 416 or (is_rest and not begin.startswith(f"bytes {n_present}-")):
            part.unlink()
            bar.advance(-n_present)
            raise requests.ConnectionError(f"the answer does not continue the first {n_present} bytes")
        if not response.ok:
            raise _download_error(url, f"{response.status_code} {response.reason}")
        if not is_rest:
            bar.advance(-n_present)
        is_decoded = "Content-Encoding" in response.headers and not is_compressed(part.stem)
        version.write_text("" if is_decoded else _version(response.headers))  # ranges count the encoded bytes
        with naming(part), open(part, "ab" if is_rest else "wb") as file:
            for block in _content(response, part.stem):
                file.write(block)
                bar.advance(len(block))


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
