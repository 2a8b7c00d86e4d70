"""Downloads from a server on this machine: with ranges and without, cut, wrong, too large."""

import gzip
import hashlib
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from greenadapt.corpus import download
from greenadapt.corpus.download import fetch, is_fetched
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import Recipe, Source, find_recipe
from greenadapt.errors import InputError, MissingError, ResourceError
from tests.support.file_server import Heard, Server, serving

DATA = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({"/data.bin": DATA}) as state:
        yield state


def source(server: Server, **more: object) -> Source:
    return Source(f"{server.address}/data.bin", **more)  # type: ignore[arg-type]


def test_a_download_says_its_size_first_and_is_done_once(server: Server, tmp_path: Path) -> None:
    heard = Heard()
    fetch([source(server, sha256=SHA256, size=len(DATA))], tmp_path / "new", heard)
    assert (tmp_path / "new" / "data.bin").read_bytes() == DATA
    assert heard.notes == [f"downloading 1 file, 1.0 MB, to {tmp_path / 'new'}"]
    assert (heard.amount, heard.total) == (len(DATA), len(DATA))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["data.bin"]
    server.requests.clear()
    fetch([source(server, sha256=SHA256)], tmp_path / "new")
    assert server.requests == []


def test_a_cut_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut_after, server.cuts = 300_000, 2
    heard = Heard()
    fetch([source(server, sha256=SHA256)], tmp_path, heard)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    ranges = [wanted for command, wanted in server.requests if command == "GET"]
    assert len(ranges) == 3
    assert ranges[0] == ""
    assert all(wanted.startswith("bytes=") for wanted in ranges[1:])
    assert heard.amount == len(DATA)


def test_a_later_run_goes_on(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(DATA[:1000])
    fetch([source(server, sha256=SHA256)], tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert server.requests == [("HEAD", ""), ("GET", "bytes=1000-")]


def test_a_part_that_is_complete_already(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(DATA)
    fetch([source(server, sha256=SHA256)], tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == DATA


def test_a_part_of_a_longer_file_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(DATA + b"more")
    fetch([source(server, sha256=SHA256)], tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == DATA


def test_a_server_without_ranges(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cut_after, server.cuts = False, 300_000, 1
    heard = Heard()
    fetch([source(server, sha256=SHA256)], tmp_path, heard)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert heard.amount == len(DATA)


def test_a_server_that_is_unavailable_for_a_moment(server: Server, tmp_path: Path) -> None:
    server.unavailable = 1
    fetch([source(server, sha256=SHA256, size=len(DATA))], tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == DATA


def test_a_server_that_brings_nothing_is_given_up(server: Server, tmp_path: Path) -> None:
    server.cut_after, server.cuts = 0, 100
    with pytest.raises(InputError, match=r"data\.bin cannot be downloaded"):
        fetch([source(server)], tmp_path)
    assert not (tmp_path / "data.bin").exists()
    assert len(server.requests) == 1 + download.ATTEMPTS


def test_a_server_that_does_not_answer_is_given_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib3.util.retry.Retry.get_backoff_time", lambda _: 0)
    server.before = lambda _: "gone" if len(server.requests) > 1 else ""
    with pytest.raises(InputError, match=r"data\.bin cannot be downloaded"):
        fetch([source(server)], tmp_path)
    assert len(server.requests) == 1 + download.ATTEMPTS
    with download.download_session() as session, pytest.raises(InputError, match="cannot be downloaded"):
        download.get(session, f"{server.address}/data.bin")
    assert len(server.requests) == 1 + 2 * download.ATTEMPTS


def test_a_compressed_file_that_is_called_encoded_is_kept_as_it_is(server: Server, tmp_path: Path) -> None:
    packed = gzip.compress(DATA, 0)
    server.files.update({"/a.txt.gz": packed, "/a.txt": gzip.compress(DATA)})
    server.encoding, server.cut_after, server.cuts = "gzip", 300_000, 1
    fetch([Source(f"{server.address}/a.txt.gz", sha256=hashlib.sha256(packed).hexdigest())], tmp_path)
    assert (tmp_path / "a.txt.gz").read_bytes() == packed
    assert server.requests[2] == ("GET", "bytes=300000-")
    fetch([Source(f"{server.address}/a.txt")], tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == DATA


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sha256": "0" * 64}, f"SHA256 is {SHA256}, must be {'0' * 64}"),
        ({"size": 5}, f"bytes is {len(DATA)}, must be 5"),
    ],
)
def test_a_wrong_file_is_refused_and_removed(
    server: Server, tmp_path: Path, more: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fetch([source(server, **more)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_changed_since_a_killed_run_is_fetched_from_its_beginning(server: Server, tmp_path: Path) -> None:
    server.version = '"1"'
    server.cut_after, server.cuts = 1000, 1000  # no checksum, no size
    one = [Source(f"{server.address}/data.bin")]
    with pytest.raises(InputError, match="cannot be downloaded"):
        fetch(one, tmp_path)
    server.files["/data.bin"], server.version, server.cuts = bytes(reversed(DATA)), '"2"', 0
    fetch(one, tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == bytes(reversed(DATA))
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def test_the_md5_beside_a_file(server: Server, tmp_path: Path) -> None:
    digest = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
    server.files["/data.bin.md5"] = f"MD5(data.bin)= {digest}\n".encode()
    fetch([source(server, md5_beside=True)], tmp_path / "right")
    assert (tmp_path / "right" / "data.bin").exists()
    server.files["/data.bin.md5"] = f"MD5(data.bin)= {'0' * 32}\n".encode()
    with pytest.raises(InputError, match=f"MD5 is {digest}, must be 0000"):
        fetch([source(server, md5_beside=True)], tmp_path / "wrong")
    assert list((tmp_path / "wrong").iterdir()) == []
    del server.files["/data.bin.md5"]
    with pytest.raises(InputError, match=r"data\.bin\.md5 holds no MD5"):
        fetch([source(server, md5_beside=True)], tmp_path / "none")
    assert [path.name for path in (tmp_path / "none").iterdir()] == ["data.bin.part"]  # nothing is wrong with it


def test_not_there(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/gone cannot be downloaded \(404 Not Found\)"):
        fetch([Source(f"{server.address}/gone")], tmp_path)


@pytest.mark.parametrize("length", ["x", "-5", "\u00b2", "9" * 5000])
def test_a_length_that_is_no_number_is_an_unknown_one(tmp_path: Path, length: str) -> None:
    class Odd(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"text")

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd) as odd:
        threading.Thread(target=odd.serve_forever, args=(0.05,), daemon=True).start()
        source = Source(f"http://127.0.0.1:{odd.server_address[1]}/a.txt")
        with suppress(InputError):
            fetch([source], tmp_path / "here")
            assert (tmp_path / "here" / "a.txt").read_bytes() == b"text"
        odd.shutdown()


def test_a_redirect_to_no_address_is_refused(tmp_path: Path) -> None:
    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/"))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        for place in ("http://[", "http://a:b/", "/again", "http://.x/", "file:///etc/passwd"):
            source = Source(f"http://127.0.0.1:{server.server_address[1]}/{place}")
            with pytest.raises(InputError, match="cannot be downloaded"):
                fetch([source], tmp_path / "here")
        server.shutdown()


def test_a_disk_that_is_too_small(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: SimpleNamespace(free=len(DATA) - 1))
    assert shutil.disk_usage is download.shutil.disk_usage
    with pytest.raises(ResourceError, match=r"needs 1\.0 MB in .* which has 1\.0 MB free"):
        fetch([source(server)], tmp_path)
    assert [command for command, _ in server.requests] == ["HEAD"]


def test_a_url_is_read_after_it_was_fetched(server: Server, tmp_path: Path) -> None:
    server.files["/texts.txt"] = b"one line\n"
    recipe = find_recipe(f"{server.address}/texts.txt")
    assert not is_fetched(recipe, tmp_path)
    with pytest.raises(MissingError, match="--download"):
        open_corpus(recipe, tmp_path)
    assert server.requests == []
    fetch(recipe.sources, tmp_path)
    assert is_fetched(recipe, tmp_path)
    reading = open_corpus(recipe, tmp_path)
    assert [document.lines for document in reading.documents()] == [("one line",)]
    assert list(reading.fingerprint()) == [f"{server.address}/texts.txt"]


def test_other_stores_are_copied_as_they_are(tmp_path: Path) -> None:
    """s3 goes the same way; a file address is what needs no network."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "a.txt.gz").write_bytes(DATA)
    address = (tmp_path / "store" / "a.txt.gz").as_uri()
    fetch([Source(address, sha256=SHA256)], tmp_path / "here")
    assert (tmp_path / "here" / "a.txt.gz").read_bytes() == DATA
    with pytest.raises(InputError, match="cannot be downloaded"):
        fetch([Source(f"{address}.gone")], tmp_path / "here")


def test_s3_without_boto3_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)  # as where it is not installed
    with pytest.raises(MissingError, match=r's3://bucket/a\.txt needs boto3, .* pip install "greenadapt\[s3\]"'):
        fetch([Source("s3://bucket/a.txt")], tmp_path)


def test_a_half_downloaded_corpus_is_not_fetched(server: Server, tmp_path: Path) -> None:
    sources = (source(server), Source(f"{server.address}/gone"))
    recipe = Recipe("two", "T", "L", "auto", sources)
    with pytest.raises(InputError):
        fetch(recipe.sources, tmp_path)
    fetch(recipe.sources[:1], tmp_path)
    assert not is_fetched(recipe, tmp_path)
