"""An index of documents, and what is found in it."""

import json
import math
import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.errors import MissingError, UsageError
from greenadapt.inference.search.index import Index
from tests.conftest import Run, json_lines, last_line
from tests.support.small_tasks import sentences

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


def test_the_same_command_finds_the_index_and_another_one_is_refused(
    papers: Path, run_alone: Run, index: Callable[..., Json], tiny_model: TinyModel, tmp_path: Path
) -> None:
    first = index("px", "--documents", "papers/")
    assert (first["status"], first["counts"]["documents"]) == ("done", 4)
    assert index("px", "--documents", "papers")["status"] == "up to date"
    command = ("index", *WHOLE, "--documents", "papers", "-o")
    for options, message in (
        (["-m", tiny_model()], "model: none → "),
        (["--paragraph-chars", "500"], "paragraph_chars: 1000 → 500"),
    ):
        assert message in last_line(run_alone(*command, "px", *options, code=1))
    (papers / "4.txt").write_text("An aardvark.")
    assert "documents papers changed" in last_line(run_alone(*command, "px", code=1))
    index("py", "--documents", "papers")
    assert [passage.document for passage in Index("py").search("aardvark")] == ["papers/4.txt"]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").touch()
    assert "holds no result of greenadapt" in last_line(run_alone(*command, "own", code=1))


def test_what_is_no_index_or_no_number_is_refused(papers: Path, index: Callable[..., Json]) -> None:
    index("px", "--documents", papers)
    with pytest.raises(MissingError, match="holds no greenadapt result"):
        Index(papers)
    with pytest.raises(UsageError, match="equal to 1"):
        Index("px").search("heart", top=0)
    assert len(Index("px").search("virus heart", top=10**18)) == len(Index("px").search("virus heart", top=1000)) > 0


def test_words_in_both_unicode_forms_are_the_same(tmp_path: Path, index: Callable[..., Json]) -> None:
    texts = [unicodedata.normalize(form, "Die Größe des Cafés") for form in ("NFC", "NFD")]
    rows = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index("px", "--documents", "a.jsonl")
    for query in ("cafés", unicodedata.normalize("NFD", "größe")):
        passages = Index("px").search(query)
        assert [(passage.document, passage.text) for passage in passages] == [("0", texts[0]), ("1", texts[1])]
        assert [(passage.start, passage.end) for passage in passages] == [(0, len(text)) for text in texts]


def test_questions_to_a_damaged_index_are_refused_in_one_line(
    papers: Path, index: Callable[..., Json], run_alone: Run, tiny_model: TinyModel
) -> None:
    index("px", "--documents", papers)
    [damaged, *_] = sorted(Path("px", "words").glob("*.store"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    ended = run_alone("qa", "-m", tiny_model("BertForQuestionAnswering"), "--index", "px", "-q", "virus", code=1)
    assert f"px/words/{damaged.name} is damaged: its checksum differs" in last_line(ended)


def test_who_may_read_the_folder_may_search(papers: Path, index: Callable[..., Json]) -> None:
    before = os.umask(0o027)
    try:
        index("px", "--documents", papers)
    finally:
        os.umask(before)
    assert Index("px").search("virus")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path("px", "words").iterdir()}
    # tantivy opens this lock for writing, and no other file, to read
    assert modes.pop(".tantivy-meta.lock") == 0o660
    assert {*modes.values()} == {0o640}
