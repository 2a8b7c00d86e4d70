"""Downloads from a server on this machine: with ranges and without, cut, wrong, too large."""

import csv
import gzip
import hashlib
import io
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from greenadapt.corpus import download
from greenadapt.corpus.download import fetch, fetch_corpus, is_fetched
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import Recipe, Source, find_recipe
from greenadapt.errors import ConflictError, InputError, MissingError, ResourceError
from tests.support.file_server import Heard, Server, answering, serving

DATA = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(DATA).hexdigest()
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({"/data.bin": DATA}) as state:
        yield state


def source(server: Server, **options: object) -> Source:
    return Source(f"{server.address}/data.bin", **options)  # type: ignore[arg-type]


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
    ranges = [byte_range for command, byte_range in server.requests if command == "GET"]
    assert len(ranges) == 3
    assert ranges[0] == ""
    assert all(byte_range.startswith("bytes=") for byte_range in ranges[1:])
    assert heard.amount == len(DATA)


@pytest.mark.parametrize("part", [DATA[:1000], DATA, DATA + b"more"], ids=["begun", "complete", "longer"])
def test_a_later_run_resumes_the_file(server: Server, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "data.bin.part").write_bytes(part)
    fetch([source(server, sha256=SHA256)], tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert server.requests[:2] == [("HEAD", ""), ("GET", f"bytes={len(part)}-")]


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
    ("options", "message"),
    [
        ({"sha256": "0" * 64}, f"SHA256 is {SHA256}, must be {'0' * 64}"),
        ({"size": 5}, f"bytes is {len(DATA)}, must be 5"),
        ({"md5": "A" * 32}, f"MD5 is {MD5}, must be {'a' * 32}"),
    ],
)
def test_a_wrong_file_is_refused_and_removed(
    server: Server, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fetch([source(server, **options)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def begin(server: Server, folder: Path) -> None:
    """Leave the first quarter of the file, without checksum."""

    def cut_all(_: str) -> str:
        server.cut_after = 0 if len(server.requests) > 2 else 1 << 18
        return ""

    server.before, server.cuts = cut_all, 1000
    with pytest.raises(InputError, match="cannot be downloaded"):
        fetch([source(server)], folder)
    server.cuts = 0
    assert (folder / "data.bin.part").read_bytes() == DATA[: 1 << 18]


@pytest.mark.parametrize("is_heeded", [True, False])
@pytest.mark.parametrize(("version", "size"), [('"2"', len(DATA)), ("", len(DATA) + 5)])
def test_a_file_that_changed_since_a_killed_run_is_fetched_from_its_beginning(
    server: Server, tmp_path: Path, version: str, size: int, is_heeded: bool
) -> None:
    """Of a server that heeds ``If-Range`` and one that does not, with another version and with another size."""
    server.heeds_version, server.version = is_heeded, version and '"1"'
    begin(server, tmp_path)
    changed = (bytes(reversed(DATA)) * 2)[:size]
    server.files["/data.bin"], server.version = changed, version
    fetch([source(server)], tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == changed
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


@pytest.mark.parametrize(
    "content_range",
    ["-", "bytes 0-{last}/{size}", "bytes 999-{last}/{size}", "bytes {start}-{last}/7", "bytes */{size}", "{start}"],
)
def test_a_range_that_was_not_asked_for_is_not_appended(server: Server, tmp_path: Path, content_range: str) -> None:
    """RFC 9110, section 14.4: what a 206 encloses is said by ``Content-Range`` alone."""
    server.content_range, server.cut_after, server.cuts = content_range, 1 << 18, 1
    heard = Heard()
    fetch([Source(f"{server.address}/data.bin")], tmp_path, heard)  # no checksum
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert [byte_range for command, byte_range in server.requests if command == "GET"] == ["", "bytes=262144-", ""]
    assert heard.amount == len(DATA)


def test_a_server_that_cuts_and_sends_wrong_ranges_is_given_up(server: Server, tmp_path: Path) -> None:
    server.content_range, server.cut_after, server.cuts = "-", 1000, 1000
    with pytest.raises(InputError, match=r"data\.bin cannot be downloaded"):
        fetch([source(server)], tmp_path)
    assert not (tmp_path / "data.bin").exists()


def test_a_range_that_ends_early_is_not_the_whole_file(tmp_path: Path) -> None:
    headers = {"Content-Range": "bytes 0-3/8", "Content-Length": "4"}
    with answering(206, b"text", headers) as address, pytest.raises(InputError, match="cannot be downloaded"):
        fetch([Source(f"{address}/a.txt")], tmp_path)
    assert not (tmp_path / "a.txt").exists()


def test_the_md5_beside_a_file(server: Server, tmp_path: Path) -> None:
    server.files["/data.bin.md5"] = f"MD5(data.bin)= {MD5}\n".encode()
    fetch([source(server, md5_beside=True)], tmp_path / "right")
    assert (tmp_path / "right" / "data.bin").exists()
    server.files["/data.bin.md5"] = f"MD5(data.bin)= {'0' * 32}\n".encode()
    for of_recipe in ("", MD5.upper()):
        with pytest.raises(InputError, match=f"MD5 is {MD5}, must be 0000"):
            fetch([source(server, md5=of_recipe, md5_beside=True)], tmp_path / "wrong")
        assert list((tmp_path / "wrong").iterdir()) == []
    del server.files["/data.bin.md5"]
    with pytest.raises(InputError, match=r"data\.bin\.md5 holds no MD5"):
        fetch([source(server, md5_beside=True)], tmp_path / "none")
    assert (tmp_path / "none" / "data.bin.part").read_bytes() == DATA  # nothing is wrong with it


def test_not_there(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/gone cannot be downloaded \(404 Not Found\)"):
        fetch([Source(f"{server.address}/gone")], tmp_path)


@pytest.mark.parametrize("length", ["x", "-5", "\u00b2", "9" * 5000])
def test_a_length_that_is_no_number_is_unknown(tmp_path: Path, length: str) -> None:
    with answering(200, b"text", {"Content-Length": length}) as address, suppress(InputError):
        fetch([Source(f"{address}/a.txt")], tmp_path / "new")
        assert (tmp_path / "new" / "a.txt").read_bytes() == b"text"


def test_a_redirect_to_no_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib3.util.retry.Retry.get_backoff_time", lambda _: 0)
    with answering(302, b"text", {"Location": "{path}", "Content-Length": "0"}) as address:
        for target in ("http://[", "http://a:b/", "/again", "http://.x/", "file:///etc/passwd"):
            with pytest.raises(InputError, match="cannot be downloaded"):
                fetch([Source(f"{address}/{target}")], tmp_path / "new")


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


INVENTORY = "inventory-reports/pmc-oa-opendata/metadata/"
LISTING = f"/?list-type=2&delimiter=/&prefix={INVENTORY}"
LICENCES = {
    "PMC13901.1": "CC BY", "PMC13901.2": "CC BY", "PMC10009416.1": "CC0", "PMC10000002.1": "CC BY-NC",
    "PMC12788873.1": "TDM", "PMC12788874.1": None, "PMC12788875.1": "CC BY",
}  # fmt: skip


def article(text: str) -> bytes:
    return (
        '<?xml version="1.0"?><!DOCTYPE article PUBLIC "-//NLM//DTD JATS 1.4//EN" "JATS-archivearticle1-4.dtd">'
        f"<article><front><article-meta><abstract><p>About {text}.</p></abstract></article-meta></front>"
        f"<body><sec><title>Introduction</title><p>Text of {text}.</p></sec></body></article>"
    ).encode()


def put(files: dict[str, bytes], name: str, licence: str | None, xml: bytes) -> None:
    """An article version in the bucket, with its metadata."""
    pmcid, version = name.split(".")
    base = f"s3://pmc-oa-opendata/{name}/{name}"
    facts = {
        "pmcid": pmcid, "version": int(version), "pmid": None, "title": name, "is_pmc_openaccess": licence != "TDM",
        "is_manuscript": licence == "TDM", "is_retracted": False, "license_code": licence,
        "xml_url": f"{base}.xml?md5={hashlib.md5(xml, usedforsecurity=False).hexdigest()}",
    }  # fmt: skip
    files[f"/metadata/{name}.json"] = json.dumps(facts).encode()
    files[f"/{name}/{name}.xml"] = xml


def inventory(files: dict[str, bytes], day: str, shards: list[list[str]]) -> None:
    """The inventory of a day, in files of gzipped CSV, and the page that lists the days."""
    entries = []
    for number, keys in enumerate(shards):
        text = io.StringIO()
        rows = [
            ["pmc-oa-opendata", key, "2026-01-08T11:47:59.000Z", "f25d9c5f5b85338f62156faeedfc1e95"] for key in keys
        ]
        csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
        key, content = f"{INVENTORY}data/{day}-{number}.csv.gz", gzip.compress(text.getvalue().encode())
        files[f"/{key}"] = content
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        entries.append({"key": key, "size": len(content), "MD5checksum": digest})
    manifest = {
        "sourceBucket": "pmc-oa-opendata", "destinationBucket": "arn:aws:s3:::pmc-oa-opendata",
        "version": "2016-11-30", "creationTimestamp": "1768701600000", "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, LastModifiedDate, ETag", "files": entries,
    }  # fmt: skip
    files[f"/{INVENTORY}{day}/manifest.json"] = json.dumps(manifest).encode()
    folders = ["2026-01-17T01-00Z", "2026-01-18T01-00Z", "2026-01-19T01-00Z", "data", "hive"]
    prefixes = "".join(f"<CommonPrefixes><Prefix>{INVENTORY}{folder}/</Prefix></CommonPrefixes>" for folder in folders)
    files[LISTING] = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>pmc-oa-opendata</Name><Prefix>{INVENTORY}</Prefix><IsTruncated>false</IsTruncated>{prefixes}"
        "</ListBucketResult>"
    ).encode()


@pytest.fixture
def bucket() -> Iterator[Server]:
    files: dict[str, bytes] = {}
    for name, licence in LICENCES.items():
        put(files, name, licence, article(name))
    keys = [f"metadata/{name}.json" for name in LICENCES]
    inventory(files, "2026-01-17T01-00Z", [["metadata/PMC1.1.json"]])
    inventory(files, "2026-01-18T01-00Z", [["README.txt", *keys[:3]], [*keys[3:], "PMC13901.1/PMC13901.1.xml"]])
    with serving(files) as server:  # the inventory of the 19th is not complete yet
        yield server


def recipe_at(server: Server, tmp_path: Path, settings: str = 'licences = ["CC0", "CC BY"]\nrate = 1000\n') -> Recipe:
    path = tmp_path / "articles.toml"
    source = f'[[sources]]\nurl = "{server.address}/"\nindex = "pmc"\n'
    path.write_text(f'title = "T"\nlicence = "L"\nformat = "pmc"\n{source}{settings}', encoding="utf-8")
    return find_recipe(str(path))


def texts(recipe: Recipe, folder: Path) -> list[tuple[str, ...]]:
    return [document.lines for document in open_corpus(recipe, folder).documents()]


def lines(*names: str) -> list[tuple[str, ...]]:
    return [(f"About {name}.", f"Text of {name}.") for name in names]


WANTED = ("PMC13901.2", "PMC10009416.1", "PMC12788875.1")
"""The last versions with a licence of the recipe, by number."""


def test_the_articles_of_the_newest_inventory_with_a_licence_are_read(bucket: Server, tmp_path: Path) -> None:
    recipe, heard = recipe_at(bucket, tmp_path), Heard()
    assert not is_fetched(recipe, tmp_path / "here")
    fetch_corpus(recipe, tmp_path / "here", heard)
    assert is_fetched(recipe, tmp_path / "here")
    assert texts(recipe, tmp_path / "here") == lines(*WANTED)
    assert heard.total == 6
    assert any("6 articles" in note and "12 requests" in note and "1000 a second" in note for note in heard.notes)
    assert any("3 articles: with another licence" in note for note in heard.notes)
    assert not any(name in path for path in bucket.paths for name in ("PMC13901.1", "PMC10000002.1/", "PMC12788873.1/"))
    bucket.paths.clear()
    fetch_corpus(recipe, tmp_path / "here")
    assert bucket.paths == []


def test_a_later_run_goes_on_with_the_same_articles(
    bucket: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_PER_ARCHIVE", 2)
    recipe = recipe_at(bucket, tmp_path)
    metadata = bucket.files["/metadata/PMC12788873.1.json"]
    bucket.files["/metadata/PMC12788873.1.json"] = metadata[:20]  # in the second archive
    with pytest.raises(InputError, match=r"PMC12788873\.1\.json is not a JSON object"):
        fetch_corpus(recipe, tmp_path / "here")
    assert not is_fetched(recipe, tmp_path / "here")
    bucket.files["/metadata/PMC12788873.1.json"] = metadata
    bucket.files[LISTING] = b""
    bucket.paths.clear()
    fetch_corpus(recipe, tmp_path / "here")
    assert texts(recipe, tmp_path / "here") == lines(*WANTED)
    assert not any(name in path for path in bucket.paths for name in ("inventory", "PMC13901", "PMC10000002"))


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(bucket: Server, tmp_path: Path, status: int) -> None:
    times: dict[str, list[float]] = {}

    def before(path: str) -> str:
        times.setdefault(path, []).append(time.monotonic())
        return "busy" if path == "/metadata/PMC12788875.1.json" and len(times[path]) == 1 else ""

    bucket.before, bucket.status, bucket.retry_after = before, status, "1"
    fetch_corpus(recipe_at(bucket, tmp_path), tmp_path / "here")
    waits = [later - earlier for path_times in times.values() for earlier, later in pairwise(path_times)]
    assert len(waits) == 1
    assert waits[0] >= 1
    assert texts(recipe_at(bucket, tmp_path), tmp_path / "here") == lines(*WANTED)


def test_a_truncated_article_is_fetched_again(bucket: Server, tmp_path: Path) -> None:
    path = "/PMC12788875.1/PMC12788875.1.xml"

    def before(url: str) -> str:
        return "cut" if url == path and bucket.paths.count(path) == 1 else ""

    bucket.before, bucket.cut_after = before, 10
    recipe = recipe_at(bucket, tmp_path)
    fetch_corpus(recipe, tmp_path / "here")
    assert bucket.paths.count(path) == 2
    assert texts(recipe, tmp_path / "here") == lines(*WANTED)


def test_an_article_that_changes_meanwhile_is_read_as_it_is_then(bucket: Server, tmp_path: Path) -> None:
    name = "PMC12788875.1"

    def before(url: str) -> str:
        if url == f"/{name}/{name}.xml" and bucket.paths.count(url) == 1:
            put(bucket.files, name, "CC BY", article("something new"))
        return ""

    bucket.before = before
    recipe = recipe_at(bucket, tmp_path)
    fetch_corpus(recipe, tmp_path / "here")
    assert texts(recipe, tmp_path / "here") == lines(*WANTED[:-1], "something new")


def test_an_article_that_never_is_what_its_metadata_say_is_refused(bucket: Server, tmp_path: Path) -> None:
    bucket.files["/PMC12788875.1/PMC12788875.1.xml"] += b" "
    with pytest.raises(InputError, match=r"PMC12788875\.1\.xml cannot be downloaded .*MD5"):
        fetch_corpus(recipe_at(bucket, tmp_path), tmp_path / "here")


def test_articles_that_were_removed_are_left_out(bucket: Server, tmp_path: Path) -> None:
    del bucket.files["/metadata/PMC10009416.1.json"], bucket.files["/PMC12788875.1/PMC12788875.1.xml"]
    recipe, heard = recipe_at(bucket, tmp_path), Heard()
    fetch_corpus(recipe, tmp_path / "here", heard)
    assert texts(recipe, tmp_path / "here") == lines("PMC13901.2")
    assert any("no longer there" in note for note in heard.notes)
    assert any("without XML" in note for note in heard.notes)


def test_requests_keep_to_the_rate(bucket: Server, tmp_path: Path) -> None:
    recipe = recipe_at(bucket, tmp_path, 'licences = ["CC0", "CC BY"]\nrate = 15\n')
    start = time.monotonic()
    fetch_corpus(recipe, tmp_path / "here")
    seconds = time.monotonic() - start
    requests = [path for path in bucket.paths if path.startswith(("/metadata", "/PMC"))]
    assert len(requests) == 9
    assert seconds >= 8 / 15


def test_a_damaged_inventory_is_refused(bucket: Server, tmp_path: Path) -> None:
    path = f"/{INVENTORY}data/2026-01-18T01-00Z-0.csv.gz"
    content = bytearray(bucket.files[path])
    content[-5] ^= 1
    bucket.files[path] = bytes(content)
    with pytest.raises(InputError, match="MD5 is"):
        fetch_corpus(recipe_at(bucket, tmp_path), tmp_path / "here")
    bucket.files[LISTING] = b"<ListBucketResult></ListBucketResult>"
    with pytest.raises(InputError, match="has no inventory"):
        fetch_corpus(recipe_at(bucket, tmp_path), tmp_path / "there")


@pytest.mark.parametrize(
    "content",
    [
        b"[1, 2]",
        b"[" * 100_000,
        b"<html>",
        b'{"fileSchema": 5}',
        b'{"fileSchema": "Bucket, Key", "files": 5}',
        b'{"fileSchema": "Bucket, Key", "files": [{"key": "a", "size": "5", "MD5checksum": "a"}]}',
        b'{"fileSchema": "Bucket, Key", "files": [{"key": "a", "size": 5, "MD5checksum": 5}]}',
    ],
)
def test_what_is_no_inventory_is_one_line(bucket: Server, tmp_path: Path, content: bytes) -> None:
    bucket.files[f"/{INVENTORY}2026-01-18T01-00Z/manifest.json"] = content
    with pytest.raises(InputError, match=r"manifest\.json is no inventory"):
        fetch_corpus(recipe_at(bucket, tmp_path), tmp_path / "here")


@pytest.mark.parametrize(
    "content", [b"[1, 2]", b"[" * 100_000, b"\xff", b'{"license_code": "CC0", "xml_url": "http://["}']
)
def test_what_are_no_metadata_of_an_article_is_one_line(bucket: Server, tmp_path: Path, content: bytes) -> None:
    bucket.files["/metadata/PMC13901.2.json"] = content
    with pytest.raises(InputError, match=r"metadata/PMC13901\.2\.json"):
        fetch_corpus(recipe_at(bucket, tmp_path), tmp_path / "here")


def test_a_list_that_does_not_end_is_not_read(bucket: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenadapt.corpus.download._MOST_IN_MEMORY", 1 << 20)
    bucket.files[LISTING] = gzip.compress(b" " * (100 << 20))
    bucket.encoding = "gzip"
    with pytest.raises(InputError, match="larger than"):
        fetch_corpus(recipe_at(bucket, tmp_path), tmp_path / "here")


def test_another_licence_asks_for_another_download(bucket: Server, tmp_path: Path) -> None:
    fetch_corpus(recipe_at(bucket, tmp_path), tmp_path / "here")
    wider = recipe_at(bucket, tmp_path, 'licences = ["CC0", "CC BY", "CC BY-NC"]\nrate = 1000\n')
    with pytest.raises(InputError, match=r"CC BY-NC.*remove it"):
        fetch_corpus(wider, tmp_path / "here")


def test_a_share_is_the_same_articles_in_another_inventory() -> None:
    keys = [f"metadata/PMC{number}.1.json" for number in range(1_000_000, 1_010_000)]
    chosen = download.choose(keys, 0.1)
    assert 900 < len(chosen) < 1100
    later = download.choose([*keys[::2], "metadata/PMC1000002.2.json", "metadata/PMC7.1.json"], 0.1)
    ids = {number >> 16 for number in chosen.tolist()}
    assert {number >> 16 for number in later.tolist()} - {7} == {
        article_id for article_id in ids if article_id % 2 == 0
    }
    assert download.choose([*keys[:3], "metadata/PMC1000001.12.json"], 1).tolist() == [
        1_000_000 << 16 | 1, 1_000_001 << 16 | 12, 1_000_002 << 16 | 1,
    ]  # fmt: skip


PUBMED = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2026//EN" "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_260101.dtd">
<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version="1">1</PMID><Article><ArticleTitle>{}.</ArticleTitle>
</Article></MedlineCitation></PubmedArticle></PubmedArticleSet>"""


def baseline(year: int, n: int) -> dict[str, bytes]:
    """The folder of a year's baseline, as NLM's server lists it."""
    files, rows = {}, ['<a href="/pubmed/">Parent Directory</a>', '<a href="README.txt">README.txt</a> 2026-01-30 4.5K']
    for number in range(1, n + 1):
        name = f"pubmed{year}n{number:04d}.xml.gz"
        content = gzip.compress(PUBMED.format(f"Title {number} of {year}").encode(), mtime=0)
        files[f"/baseline/{name}"] = content
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        files[f"/baseline/{name}.md5"] = f"MD5({name})= {digest}\n".encode()
        rows += [f'<a href="{file}">{file}</a>     2026-01-29 14:48   19M' for file in (name, f"{name}.md5")]
    listing = "\n".join(rows)
    files["/baseline/"] = f"<html><body><h1>Index of /pubmed/baseline</h1><pre>{listing}</pre>".encode()
    return files


def pubmed_at(server: Server, tmp_path: Path) -> Recipe:
    text = (Path(__file__).parents[2] / "corpora" / "pubmed.toml").read_text("utf-8")
    path = tmp_path / "pubmed.toml"
    path.write_text(text.replace("https://ftp.ncbi.nlm.nih.gov/pubmed", server.address), encoding="utf-8")
    return find_recipe(str(path))


def test_the_files_of_the_year_are_found_in_the_listing(tmp_path: Path) -> None:
    with serving(baseline(26, 3)) as server:
        recipe = pubmed_at(server, tmp_path)
        gone = server.files.pop("/baseline/pubmed26n0002.xml.gz.md5")
        with pytest.raises(InputError, match=r"pubmed26n0002\.xml\.gz\.md5 holds no MD5"):
            fetch_corpus(recipe, tmp_path / "here")
        assert not is_fetched(recipe, tmp_path / "here")
        server.files["/baseline/pubmed26n0002.xml.gz.md5"] = gone
        server.paths.clear()
        fetch_corpus(recipe, tmp_path / "here")
        assert not any("0001" in path for path in server.paths)
        assert texts(recipe, tmp_path / "here") == [(f"Title {number} of 26.",) for number in (1, 2, 3)]


def test_a_download_that_a_new_year_overtakes_has_files_of_the_new_year_only(tmp_path: Path) -> None:
    with serving(baseline(26, 2)) as server:
        recipe = pubmed_at(server, tmp_path)
        del server.files["/baseline/pubmed26n0002.xml.gz.md5"]
        with pytest.raises(InputError):
            fetch_corpus(recipe, tmp_path / "here")
        server.files.clear()
        server.files.update(baseline(27, 2))
        fetch_corpus(recipe, tmp_path / "here")
        assert texts(recipe, tmp_path / "here") == [("Title 1 of 27.",), ("Title 2 of 27.",)]


@pytest.mark.parametrize("marked", [True, False])
def test_a_file_of_others_in_a_download_stays(tmp_path: Path, marked: bool) -> None:
    with serving(baseline(26, 2)) as server:
        recipe = pubmed_at(server, tmp_path)
        del server.files["/baseline/pubmed26n0002.xml.gz.md5"]
        with pytest.raises(InputError):
            fetch_corpus(recipe, tmp_path / "here")
        [work] = (tmp_path / "here").glob("*.part")
        if not marked:  # as somebody else's folder, or one of an early version
            shutil.rmtree(work)
            work.mkdir()
        foreign = [work / name for name in (".notes", "notes.txt", "pubmed25n0001.xml.gz")]
        for path in foreign:
            path.write_text("mine")
        server.files.clear()
        server.files.update(baseline(27, 2))
        for number in (1, 2):
            with pytest.raises(ConflictError, match=f"{foreign[number].name}, which .* does not list"):
                fetch_corpus(recipe, tmp_path / "here")
            assert [path.read_text() for path in (foreign[0], *foreign[number:])] == ["mine"] * (4 - number)
            foreign[number].unlink()
        fetch_corpus(recipe, tmp_path / "here")
        assert texts(recipe, tmp_path / "here") == [("Title 1 of 27.",), ("Title 2 of 27.",)]


def listing_at(server: Server, tmp_path: Path) -> Recipe:
    path = tmp_path / "listed.toml"
    source = f'[[sources]]\nurl = "{server.address}/"\nindex = "listing"\nfiles = ".+txt"\n'
    path.write_text(f'title = "T"\nlicence = "L"\nformat = "text"\n{source}', encoding="utf-8")
    return find_recipe(str(path))


def test_a_listed_file_that_changes_between_two_runs_is_of_one_version(tmp_path: Path) -> None:
    def before(url: str) -> str:
        if server.paths.count("/x.txt") == 3:
            server.files.pop("/x.txt", None)
        return "cut" if url == "/x.txt" else ""

    with serving({"/": b'<a href="x.txt">', "/x.txt": b"1" * 200_000}) as server:
        recipe = listing_at(server, tmp_path)
        server.version, server.cut_after, server.before = '"1"', 70_000, before
        with pytest.raises(InputError, match="404"):
            fetch_corpus(recipe, tmp_path / "here")
        server.version, server.before, server.files["/x.txt"] = '"2"', lambda _: "", b"2" * 200_000
        fetch_corpus(recipe, tmp_path / "here")
        assert texts(recipe, tmp_path / "here") == [("2" * 200_000,)]


def test_odd_names_in_a_listing_are_files_of_their_own(tmp_path: Path) -> None:
    def before(url: str) -> str:
        if server.paths.count("/c%23d.txt") == 2:
            server.files.pop(url, None)
        return ""

    with serving({"/a%20b.txt": b"one", "/a%2Bb.txt": b"two", "/c%23d.txt": b"three"}) as server:
        server.files["/"] = b'<a href="a%20b.txt"><a href="a+b.txt"><a href="c%23d.txt">'
        recipe = listing_at(server, tmp_path)
        server.before = before
        with pytest.raises(InputError, match="404"):
            fetch_corpus(recipe, tmp_path / "here")
        server.before, server.files["/c%23d.txt"] = lambda _: "", b"three"
        server.paths.clear()
        fetch_corpus(recipe, tmp_path / "here")
        assert server.paths == ["/", "/c%23d.txt", "/c%23d.txt"]
        assert sorted(texts(recipe, tmp_path / "here")) == [("one",), ("three",), ("two",)]
        server.files["/"] = b'<a href="a~b.txt"><a href="a-b.txt">'
        with pytest.raises(InputError, match=r"a-b\.txt"):
            fetch_corpus(recipe, tmp_path / "there")


def test_files_that_lie_beside_are_not_downloaded_again(tmp_path: Path) -> None:
    with serving(baseline(26, 2)) as server:
        recipe = pubmed_at(server, tmp_path)
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "pubmed26n0001.xml.gz").write_bytes(server.files["/baseline/pubmed26n0001.xml.gz"])
        fetch_corpus(recipe, tmp_path / "here")
        assert "/baseline/pubmed26n0001.xml.gz" not in server.paths
        assert len(texts(recipe, tmp_path / "here")) == 2


def test_a_moved_download_that_the_list_drops_is_removed(tmp_path: Path) -> None:
    with serving({"/x.txt": b"old", "/": b'<a href="x.txt"><a href="y.txt">'}) as server:
        named = Recipe("listed", "T", "L", "text", (Source(f"{server.address}/x.txt"),))
        fetch_corpus(named, tmp_path / "here")
        recipe = listing_at(server, tmp_path)
        with pytest.raises(InputError, match="404"):
            fetch_corpus(recipe, tmp_path / "here")
        assert not (tmp_path / "here" / "x.txt").exists()
        server.files |= {"/y.txt": b"new", "/": b'<a href="y.txt">'}
        fetch_corpus(recipe, tmp_path / "here")
        assert texts(recipe, tmp_path / "here") == [("new",)]


def test_a_listing_without_such_files_is_refused(tmp_path: Path) -> None:
    with (
        serving({"/baseline/": b'<a href="README.txt">README.txt</a>'}) as server,
        pytest.raises(InputError, match=r"/baseline/ lists no file called pubmed"),
    ):
        fetch_corpus(pubmed_at(server, tmp_path), tmp_path / "here")
