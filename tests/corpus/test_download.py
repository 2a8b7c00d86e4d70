"""Downloads from a server on this machine: with ranges and without, cut, wrong, too large."""

import gzip
import hashlib
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from greenadapt.corpus import download
from greenadapt.corpus.download import fetch, is_fetched
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import Recipe, Source, file_name, find_recipe
from greenadapt.errors import InputError, MissingError, ResourceError
from tests.conftest import Watcher
from tests.support.file_server import Server, serving

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
    watcher = Watcher()
    fetch([source(server, sha256=SHA256)], tmp_path / "new", watcher)
    assert (tmp_path / "new" / "data.bin").read_bytes() == DATA
    assert watcher.notes == [f"downloading 1 file, 1.0 MB, to {tmp_path / 'new'}"]
    assert (watcher.amount, watcher.totals) == (len(DATA), [len(DATA)])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["data.bin"]
    server.requests.clear()
    fetch([source(server, sha256=SHA256)], tmp_path / "new")
    assert server.requests == []


def test_a_cut_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.cut_after, server.cuts = 300_000, 2
    watcher = Watcher()
    fetch([source(server, sha256=SHA256)], tmp_path, watcher)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    ranges = [byte_range for command, byte_range in server.requests if command == "GET"]
    assert len(ranges) == 3
    assert ranges[0] == ""
    assert all(byte_range.startswith("bytes=") for byte_range in ranges[1:])
    assert watcher.amount == len(DATA)


@pytest.mark.parametrize("part", [DATA[:1000], DATA + b"more"], ids=["begun", "longer"])
def test_a_later_run_resumes_the_file(server: Server, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "data.bin.part").write_bytes(part)
    (tmp_path / ".data.bin.part.version").write_text(server.version)
    fetch([source(server, sha256=SHA256)], tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert server.requests[:2] == [("HEAD", ""), ("GET", f"bytes={len(part)}-")]


def test_a_server_without_ranges(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cut_after, server.cuts = False, 300_000, 1
    watcher = Watcher()
    fetch([source(server, sha256=SHA256)], tmp_path, watcher)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert watcher.amount == len(DATA)


def test_a_server_that_does_not_answer_is_given_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib3.util.retry.Retry.get_backoff_time", lambda _: 0)
    server.answers = 1
    with pytest.raises(InputError, match=r"data\.bin cannot be downloaded"):
        fetch([source(server)], tmp_path)
    assert len(server.requests) == 1 + download.ATTEMPTS


def test_a_compressed_file_that_is_called_encoded_is_kept_as_it_is(server: Server, tmp_path: Path) -> None:
    packed = gzip.compress(DATA, 0)
    server.files.update({"/a.txt.gz": packed, "/a.txt": gzip.compress(DATA)})
    server.encoding, server.cut_after, server.cuts = "gzip", 300_000, 1
    fetch([Source(f"{server.address}/a.txt.gz", sha256=hashlib.sha256(packed).hexdigest())], tmp_path)
    assert (tmp_path / "a.txt.gz").read_bytes() == packed
    assert server.requests[2] == ("GET", "bytes=300000-")
    fetch([Source(f"{server.address}/a.txt")], tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == DATA


def test_a_wrong_file_is_refused_and_removed(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"SHA256 is {SHA256}, must be {'0' * 64}"):
        fetch([source(server, sha256="0" * 64)], tmp_path)
    server.files["/data.bin.md5"] = f"MD5(data.bin)= {'0' * 32}\n".encode()
    with pytest.raises(InputError, match=f"MD5 is {MD5}, must be 0000"):
        fetch([source(server, md5_beside=True)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_changed_since_a_killed_run_is_fetched_from_its_beginning(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(DATA[:1000])
    (tmp_path / ".data.bin.part.version").write_text('"0"')
    fetch([source(server)], tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def test_a_range_that_was_not_asked_for_is_not_appended(server: Server, tmp_path: Path) -> None:
    """RFC 9110, section 14.4: what a 206 encloses is said by ``Content-Range`` alone."""
    server.content_range, server.cut_after, server.cuts = "bytes 0-{last}/{size}", 1 << 18, 1
    watcher = Watcher()
    fetch([Source(f"{server.address}/data.bin")], tmp_path, watcher)  # no checksum
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert [byte_range for command, byte_range in server.requests if command == "GET"] == ["", "bytes=262144-", ""]
    assert watcher.amount == len(DATA)


def test_a_disk_that_is_too_small(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: SimpleNamespace(free=len(DATA) - 1))
    assert shutil.disk_usage is download.shutil.disk_usage
    with pytest.raises(ResourceError, match=r"needs 1\.0 MB in .* which has 1\.0 MB free"):
        fetch([source(server)], tmp_path)
    assert [command for command, _ in server.requests] == ["HEAD"]


def texts(recipe: Recipe, folder: Path) -> list[tuple[str, ...]]:
    return [document.lines for document in open_corpus(recipe, folder).documents()]


ARTICLE = "<article><front><article-meta><abstract><p>{}</p></abstract></article-meta></front></article>"


def test_a_folder_that_another_program_fetches(tmp_path: Path) -> None:
    """The bucket's own layout, https://pmc.ncbi.nlm.nih.gov/tools/pmcaws/: a folder for each version of an article."""
    recipe, folder = find_recipe("pmc"), tmp_path / "with space" / "pmc-oa-opendata"
    with pytest.raises(MissingError) as caught:
        open_corpus(recipe, folder.parent)
    program, *words = shlex.split(caught.value.hint.removeprefix("fetch it: "))
    assert (program, words[:2]) == ("aws", ["s3", "sync"])
    assert words[words.index("s3://pmc-oa-opendata/") + 1] == str(folder)
    files = {"PMC2.1/PMC2.1.xml": "Two.", "PMC13.2/PMC13.2.xml": "Thirteen.", ".aws/PMC3.1.xml": "Hidden."}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(ARTICLE.format(text))
    assert is_fetched(recipe, folder.parent)
    assert texts(recipe, folder.parent) == [("Thirteen.",), ("Two.",)]


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
        gone, server.files["/baseline/pubmed26n0002.xml.gz.md5"] = (
            server.files["/baseline/pubmed26n0002.xml.gz.md5"],
            b"",
        )
        with pytest.raises(InputError, match=r"pubmed26n0002\.xml\.gz\.md5 holds no MD5"):
            fetch(recipe.sources, tmp_path / "here")
        assert not is_fetched(recipe, tmp_path / "here")
        server.files["/baseline/pubmed26n0002.xml.gz.md5"] = gone
        server.paths.clear()
        fetch(recipe.sources, tmp_path / "here")
        assert not any("0001" in path for path in server.paths)
        assert texts(recipe, tmp_path / "here") == [(f"Title {number} of 26.",) for number in (1, 2, 3)]


def listing_at(server: Server, tmp_path: Path) -> Recipe:
    path = tmp_path / "listed.toml"
    source = f'[[sources]]\nurl = "{server.address}/"\nfiles = ".+txt"\n'
    path.write_text(f'title = "T"\nlicence = "L"\nformat = "text"\n{source}', encoding="utf-8")
    return find_recipe(str(path))


def test_names_in_a_listing(tmp_path: Path) -> None:
    with serving({"/a%20b.txt": b"one", "/c%23d.txt": b"two"}) as server:
        server.files["/"] = b'<a href="a%20b.txt"><a href="c%23d.txt">'
        recipe, old = listing_at(server, tmp_path), tmp_path / "here" / f"{file_name(server.address)}.part" / "old.txt"
        old.parent.mkdir(parents=True)
        old.touch()  # of an earlier list
        fetch(recipe.sources, tmp_path / "here")
        assert sorted(texts(recipe, tmp_path / "here")) == [("one",), ("two",)]
        for listing, message in ((b'<a href="a~b.txt"><a href="a-b.txt">', r"a-b\.txt"), (b"", "lists no file called")):
            server.files["/"] = listing
            with pytest.raises(InputError, match=message):
                fetch(recipe.sources, tmp_path / "there")
        with pytest.raises(InputError, match=r"/gone cannot be downloaded \(404 Not Found\)"):
            fetch([Source(f"{server.address}/gone")], tmp_path)
