"""An index whose files are missing, cut or changed."""

import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.inference.search.index import Index
from tests.conftest import Run, last_line
from tests.support.processes import Forked
from tests.support.small_tasks import sentences

pytestmark = pytest.mark.usefixtures("one_thread")
QUERIES = "virus tachycardia", "the heart of a patient"


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


def files_of(index: Path) -> list[Path]:
    return sorted(path for path in index.rglob("*") if path.is_file() and path.suffix != ".lock")


@pytest.mark.slow
def test_a_changed_file_is_named_or_changes_nothing(folder: Path) -> None:
    """In a process of its own, as a reader in Rust could take its process with it."""
    index = folder / "px"
    before = answers(index)
    assert {len(passages) for passages in before} == {10}
    finished = Forked(["-c", _MUTATE, str(index)]).completed(300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr


def answers(index: Path) -> list[list[tuple[str, float]]]:
    opened = Index(index)
    return [[(passage.document, passage.score) for passage in opened.search(query)] for query in QUERIES]


_MUTATE = """
import random, sys
from pathlib import Path
from greenadapt.errors import InputError
from tests.inference.search.test_damaged_index import answers, files_of
index, draw = Path(sys.argv[1]), random.Random(0)
before = answers(index)
files = files_of(index)
for number in range(100):
    path = files[number % len(files)]
    whole = path.read_bytes()
    changed = bytearray(whole)
    how = draw.randrange(4)
    if how == 0:
        del changed[draw.randrange(len(changed)):]
    elif how == 1:
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    elif how == 2:
        at = draw.randrange(len(changed))
        changed[at:at + 8] = bytes(draw.randrange(256) for _ in range(8))
    else:
        at = draw.randrange(len(changed))
        changed[at:at + 4] = b""
    path.write_bytes(changed)
    try:
        after = answers(index)
    except InputError as error:
        assert index.name in str(error) and "remove" in str(error), error
    else:
        assert after == before, (path, how)
    path.write_bytes(whole)
assert answers(index) == before
"""


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


def test_words_of_a_model_are_the_same_in_both_unicode_forms(
    tmp_path: Path, run_alone: Run, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [unicodedata.normalize(form, "Die Größe des Cafés") for form in ("NFC", "NFD")]
    Path("a.txt").write_text("\n".join(texts), "utf-8")
    model = tiny_model("RobertaModel")  # its tokenizer leaves both forms as they are
    run_alone("index", "--documents", "a.txt", "-m", model, "-o", "px")
    for query in ("cafés", unicodedata.normalize("NFD", "größe")):
        assert [passage.text for passage in Index("px").search(query)] == texts


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
