"""An index of documents: what is found, what changes, and what a killed run leaves."""

import json
import math
import os
import stat
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.search.index import Index
from tests.conftest import Run, json_lines, last_line
from tests.integration.test_full_disk import full_at
from tests.support.processes import Forked
from tests.support.small_tasks import adapted, sentences

pytestmark = pytest.mark.usefixtures("one_thread")
TinyModel = Callable[..., Path]
Json = dict[str, Any]
WHOLE = "--sample-by", "document"
JATS = (
    "<article><front><article-meta><title-group><article-title>Naïve <i>cells</i></article-title></title-group>"
    "</article-meta></front><body><p>They were isolated.</p></body></article>"
)


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """Four documents of several paragraphs each."""
    folder = tmp_path / "papers"
    folder.mkdir()
    for number in range(4):
        blocks = [" ".join(words) + "." for words in sentences(6, seed=number)]
        (folder / f"{number}.txt").write_text("\n\n".join(blocks), "utf-8")
    return folder


@pytest.fixture
def index(run_alone: Run) -> Callable[..., Json]:
    """Runs ``index`` into a place."""

    def run(out: str, *arguments: object) -> Json:
        return json.loads(run_alone("index", *WHOLE, "-o", out, *arguments, "--json").stdout)

    return run


def changes(row: Json) -> tuple[int, ...]:
    return tuple(row["counts"][name] for name in ("added", "changed", "removed", "unchanged"))


def test_bm25_is_okapis_over_the_words_of_the_model(
    papers: Path, index: Callable[..., Json], tiny_model: TinyModel
) -> None:
    model = tiny_model()
    index("px", "--documents", papers, "-m", model, "--paragraph-chars", 100)
    passages = Index("px").search("Virus, isolated: CORONAVIRUS virus?", top=1000)
    all_words = " ".join(word for words in sentences(24, seed=0) for word in words)
    texts = {(passage.document, passage.start): passage.text for passage in Index("px").search(all_words, top=1000)}
    words = {at: Counter(text.lower().replace(".", " ").split()) for at, text in texts.items()}
    n, mean = len(words), np.mean([count.total() for count in words.values()])
    expected = {}
    for at, count in words.items():
        score = 0.0
        for word in ("virus", "isolated", "coronavirus"):
            n_with = sum(word in counts for counts in words.values())
            idf = math.log(1 + (n - n_with + 0.5) / (n_with + 0.5))
            score += idf * count[word] * 2.2 / (count[word] + 1.2 * (0.25 + 0.75 * count.total() / mean))
        if score:
            expected[at] = score
    assert len(Index("px")) == n
    assert {(passage.document, passage.start): passage.score for passage in passages} == pytest.approx(
        expected, rel=1e-5
    )
    assert [passage.score for passage in passages] == sorted((passage.score for passage in passages), reverse=True)


def test_paragraphs_have_their_place_in_the_document_and_titles_are_searched(
    tmp_path: Path, index: Callable[..., Json], tiny_model: TinyModel, run_alone: Run
) -> None:
    (tmp_path / "a.xml").write_text(JATS, "utf-8")
    rows = [{"id": "p1", "title": "A study of hearts", "text": "Nobody\n\nwas ill."}, {"text": "Viruses."}]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = tiny_model()
    index("px", "--documents", "a.xml", "--documents", "b.jsonl", "-m", model)
    [row] = json_lines(run_alone("search", "px", "naive", "--json"))
    assert row["title"] == "Naïve cells"
    assert (row["document"], row["start"], row["end"], row["text"]) == ("a.xml", 0, 19, "They were isolated.")
    [passages] = Index("px").search("HEARTS")
    assert (passages.document, passages.text) == ("p1", "Nobody\n\nwas ill.")
    assert "A study of hearts" in run_alone("search", "px", "hearts").stdout
    assert [passage.document for passage in Index("px").search("viruses")] == ["b.jsonl:2"]
    assert Index("px").search("?") == []
    empty = run_alone("search", "px", "aardvark")
    assert (empty.stdout, "nothing found" in empty.stderr) == ("", True)
    forgotten = run_alone("index", *WHOLE, "--documents", "a.xml", "--documents", "b.jsonl", "-o", "px", code=1)
    assert f"--model {model}" in last_line(forgotten)


def test_the_same_command_takes_what_is_new_or_changed_and_removes_what_is_gone(
    papers: Path, index: Callable[..., Json], run_alone: Run
) -> None:
    first = index("px", "--documents", "papers/")
    assert (first["status"], changes(first)) == ("done", (4, 0, 0, 0))
    opened = Index("px")
    again = index("px", "--documents", papers)  # the same folder, named otherwise
    assert (again["status"], changes(again)) == ("up to date", (0, 0, 0, 4))
    (papers / "0.txt").unlink()
    (papers / "1.txt").write_text("An aardvark.")
    (papers / "4.txt").write_text("Two aardvarks and one aardvark.")
    row = index("px", "--documents", "papers")
    assert (row["status"], changes(row)) == ("done", (1, 1, 1, 2))
    assert {passage.document for passage in opened.search("aardvark")} == {"papers/1.txt", "papers/4.txt"}
    assert row["counts"]["paragraphs"] == len(opened)
    remaining = {passage.document for passage in opened.search((papers / "2.txt").read_text(), top=100)}
    assert "papers/0.txt" not in remaining
    assert "papers/2.txt" in remaining

    refused = run_alone("index", *WHOLE, "--documents", papers / "4.txt", "-o", "px", code=1)
    assert "--update" in last_line(refused)
    assert len(Index("px")) == row["counts"]["paragraphs"]
    (papers.parent / "more.txt").write_text("Three aardvarks.")
    merged = index("px", "--documents", papers, "--documents", "more.txt", "--update")
    assert changes(merged) == (1, 0, 0, 4)
    assert changes(index("px", "--documents", "more.txt", "--update")) == (0, 0, 4, 1)
    assert [passage.text for passage in opened.search("aardvarks")] == ["Three aardvarks."]


def test_only_changed_bytes_are_read_again(papers: Path, index: Callable[..., Json]) -> None:
    index("px", "--documents", "papers")
    before = Path("px", "index.json").stat().st_ino
    assert changes(index("px", "--documents", "papers")) == (0, 0, 0, 4)
    assert Path("px", "index.json").stat().st_ino == before
    file = papers / "0.txt"
    times, text = file.stat(), file.read_text()
    file.write_text("aardvark".ljust(len(text), "."))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert changes(index("px", "--documents", "papers")) == (0, 1, 0, 3)
    assert [passage.document for passage in Index("px").search("aardvark")] == ["papers/0.txt"]


def test_what_would_surprise_is_refused(papers: Path, run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    run_alone("index", *WHOLE, "--documents", papers, "-o", "px")
    for options, message in (
        (["-m", tiny_model()], "another model"),
        (["--paragraph-chars", "500"], "paragraph_chars: 1000 → 500"),
    ):
        assert message in last_line(run_alone("index", *WHOLE, "--documents", papers, "-o", "px", *options, code=1))
    assert (
        "done"
        in run_alone("index", *WHOLE, "--documents", papers, "-o", "px", "--paragraph-chars", 500, "--force").stdout
    )
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").touch()
    assert "is no index" in last_line(run_alone("index", *WHOLE, "--documents", papers, "-o", "own", code=1))
    assert "lies in" in last_line(run_alone("index", *WHOLE, "--documents", papers, "-o", papers / "px", code=2))
    with pytest.raises(MissingError, match="not a search index"):
        Index(papers)
    with pytest.raises(UsageError, match="is an address, an index is a folder"):
        Index("https://localhost:9200/papers")
    with pytest.raises(UsageError, match="at least 1"):
        Index("px").search("heart", top=0)
    assert len(Index("px").search("virus heart", top=10**18)) == len(Index("px").search("virus heart", top=1000)) > 0
    for file in (tmp_path / "px" / "words").glob("meta.json"):
        file.write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        Index("px")


def test_no_model_is_needed_to_search(papers: Path, index: Callable[..., Json], tiny_model: TinyModel) -> None:
    (papers / "x.txt").write_text("TACHYCARDIA, x-ray")
    model = adapted(tiny_model)
    index("px", "--documents", papers, "-m", model)
    model.rename(model.with_name("elsewhere"))
    opened = Index("px")
    assert opened.search("X-Ray")[0].text == "TACHYCARDIA, x-ray"
    (papers / "x.txt").write_text("snake_case")  # one word without the model
    index("px", "--documents", papers, "--force")
    assert opened.search("snake_case")[0].text == "snake_case"


def test_sources_of_the_same_name_elsewhere_are_kept_apart(
    papers: Path, index: Callable[..., Json], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "px"
    index(str(out), "--documents", "papers")
    (tmp_path / "elsewhere" / "papers").mkdir(parents=True)
    (tmp_path / "elsewhere" / "papers" / "0.txt").write_text("An aardvark.")
    monkeypatch.chdir(tmp_path / "elsewhere")
    options = ("--documents", papers, "--documents", "papers", "--update")
    assert changes(index(str(out), *options)) == (1, 0, 0, 4)
    assert index(str(out), *options)["status"] == "up to date"


def test_what_a_killed_writer_deleted_is_in_nobodys_way(
    papers: Path, index: Callable[..., Json], tmp_path: Path
) -> None:
    for out in ("px", "other"):
        index(out, "--documents", "papers")
    (papers / "0.txt").unlink()
    index("other", "--documents", "papers")
    (deleted,) = Path("other").rglob("*.del")
    leftover = next(Path("px").rglob("*.idx")).with_suffix(deleted.suffixes[0] + ".del")
    leftover.write_bytes(deleted.read_bytes())  # written, and killed before the commit
    assert changes(index("px", "--documents", "papers")) == (0, 0, 1, 3)
    assert changes(index("px", "--documents", "papers")) == (0, 0, 0, 3)


def test_files_of_others_in_an_index_stay(papers: Path, index: Callable[..., Json]) -> None:
    index("px", "--documents", papers)
    words = Path("px", "words")
    segment = next(words.glob("*.idx")).stem
    foreign = [words / name for name in ("mine.del", f"{segment}.del", f"{'0' * 32}.7.del")]
    for file in foreign:
        file.write_text("mine")
    (papers / "new.txt").write_text("An aardvark.")
    assert changes(index("px", "--documents", papers)) == (1, 0, 0, 4)
    assert [file.read_text() for file in foreign] == ["mine"] * len(foreign)


def test_who_may_read_the_folder_may_search(papers: Path, index: Callable[..., Json]) -> None:
    before = os.umask(0o027)
    try:
        index("px", "--documents", papers)
        (papers / "0.txt").write_text("An aardvark.")
        index("px", "--documents", papers)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path("px", "words").iterdir()}
    # tantivy opens this lock for writing, and no other file, to read
    assert modes.pop(".tantivy-meta.lock") == 0o660
    assert {*modes.values()} == {0o640}


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(tmp_path: Path, run_alone: Run) -> None:
    text = "\n".join(" ".join(words) for words in sentences(3000, seed=0))
    (tmp_path / "long.txt").write_text(text)
    options = ("--documents", "long.txt", "-o", "px", "--paragraph-chars", 100)
    with full_at(20_000):
        assert "the disk may be full" in last_line(run_alone("index", *WHOLE, *options, code=1))
    assert "done" in run_alone("index", *WHOLE, *options).stdout


_WAITING = """
import time
from contextlib import contextmanager
from pathlib import Path
import greenadapt.inference.search.index
from greenadapt.progress import Silent
from greenadapt.stages.index import IndexRequest, index
from greenadapt.stages.session import Session
from greenadapt.storage.workspace import Workspace

class Waiting(Silent):
    @contextmanager
    def bar(self, *_):
        yield self

    def advance(self, *_):
        Path("committed").touch()
        time.sleep(300)

greenadapt.inference.search.index.COMMIT_SECONDS = 0
index(Session(Workspace(Path("ws")), Waiting(), out=Path("px")), IndexRequest(("all.jsonl",), sample_by="document"))
"""
"""Makes an index, and waits after the first commit."""


@pytest.mark.slow
def test_a_killed_run_answers_from_what_was_committed_and_goes_on(tmp_path: Path, run_alone: Run) -> None:
    total = 6000
    rows = [{"id": f"d{i}", "text": " ".join(words)} for i, words in enumerate(sentences(100, seed=0) * (total // 100))]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    process = Forked(["-c", _WAITING], tmp_path)
    while not (tmp_path / "committed").exists():
        assert process.poll() is None, process.completed().stderr
        time.sleep(0.02)
    committed = len(Index("px"))  # while it is being written
    process.kill()
    assert process.completed().returncode == -9
    assert 0 < committed < total
    assert len(Index("px")) == committed
    result = run_alone("search", "px", "virus", "--top", 3, "--json")
    assert len(result.stdout.splitlines()) == 3
    assert "not finished" in result.stderr
    row = json.loads(run_alone("index", *WHOLE, "--documents", "all.jsonl", "-o", "px", "--json").stdout)
    assert changes(row) == (total - committed, 0, 0, committed)
    assert len(Index("px")) == total
    assert run_alone("search", "px", "virus").stderr == ""
