"""An index whose files are missing, cut or changed."""

import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.inference.search.index import Index
from tests.conftest import Run, last_line
from tests.support.small_tasks import sentences

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder with a model, documents and an index of these, each made once."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def folder(
    original: Path, tmp_path: Path, tiny_model: Callable[..., Path], run_alone: Run, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of it that a test may change, with its index in ``px``."""
    monkeypatch.chdir(original)
    if not (original / "px").exists():
        shutil.copytree(tiny_model(), original / "model")
        rows = [{"id": f"d{i}", "text": " ".join(words)} for i, words in enumerate(sentences(300, seed=0))]
        (original / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        run_alone("index", "--documents", "a.jsonl", "-m", original / "model", "-o", "px")
    copied = tmp_path / "copied"
    shutil.copytree(original / "px", copied / "px")
    shutil.copyfile(original / "a.jsonl", copied / "a.jsonl")
    monkeypatch.chdir(copied)
    return copied


def test_words_in_both_unicode_forms_are_the_same(
    tmp_path: Path, run_alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [unicodedata.normalize(form, "Die Größe des Cafés") for form in ("NFC", "NFD")]
    Path("a.jsonl").write_text("".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(texts)))
    run_alone("index", "--documents", "a.jsonl", "-o", "px")
    for query in ("cafés", unicodedata.normalize("NFD", "größe")):
        passages = Index("px").search(query)
        assert [(passage.document, passage.text) for passage in passages] == [("0", texts[0]), ("1", texts[1])]
        assert [(passage.start, passage.end) for passage in passages] == [(0, len(text)) for text in texts]


def test_questions_to_a_damaged_index_are_refused_in_one_line(
    folder: Path, run_alone: Run, tiny_model: Callable[..., Path]
) -> None:
    [damaged, *_] = sorted((folder / "px" / "words").glob("*.store"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    model = tiny_model("BertForQuestionAnswering")
    for command in (["qa", "-m", model, "--index", "px", "-q", "virus"], ["serve", "-m", model, "--index", "px"]):
        ended = run_alone(*command, code=1)
        assert ended.stdout == ""
        assert f"px/words/{damaged.name} is damaged: its checksum differs" in last_line(ended)
        assert "Traceback" not in ended.stderr
