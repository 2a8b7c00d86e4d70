"""An index whose files are missing, cut or changed, or that another version made."""

import json
import random
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from greenadapt.config import SearchBy
from greenadapt.errors import InputError
from greenadapt.inference.search.index import Index
from greenadapt.inference.search.store import FolderStore
from greenadapt.inference.search.vectors import VectorFiles
from tests.conftest import Run, last_line
from tests.support.processes import Forked
from tests.support.small_tasks import sentences

pytestmark = pytest.mark.usefixtures("one_thread")
QUERIES = "virus tachycardia", "the heart of a patient"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder with a model, documents and an index with vectors of these, each made once."""
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
        run_alone("index", "--documents", "a.jsonl", "-m", original / "model", "--vectors", "-o", "px")
    copied = tmp_path / "copied"
    shutil.copytree(original / "px", copied / "px")
    shutil.copyfile(original / "a.jsonl", copied / "a.jsonl")
    monkeypatch.chdir(copied)
    return copied


def as_of_0_2_0(index: Path) -> None:
    """Take away what version 0.2.0 did not write."""
    values = json.loads((index / "index.json").read_text())
    for name in ("files", "sources", "seal", "normal_form"):
        del values[name]
    del values["config"]["sample_by"]
    (index / "index.json").write_text(json.dumps(values))


def files_of(index: Path) -> list[Path]:
    return sorted(path for path in index.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_every_file_stands_in_the_index_with_its_size(folder: Path) -> None:
    values = json.loads((folder / "px" / "index.json").read_text())
    files = {path.relative_to(folder / "px").as_posix(): path.stat().st_size for path in files_of(folder / "px")}
    del files["index.json"], files[".greenadapt"]
    assert {name: mark["bytes"] for name, mark in values["files"].items()} == files
    assert {Path(name).parent.name for name in files} == {"words", "vectors", ""}


@pytest.mark.slow
def test_without_its_vectors_an_index_answers_no_question_and_is_not_up_to_date(
    folder: Path, original: Path, run_alone: Run
) -> None:
    again = ("index", "--documents", original / "a.jsonl", "-m", original / "model", "--vectors", "-o", "px")
    assert "up to date" in run_alone(*again).stdout
    for old in (False, True):
        if old:
            again = (*again, "--sample-by", "document")
            as_of_0_2_0(folder / "px")
        for file in (folder / "px" / "vectors").iterdir():
            file.unlink()
        for by in ("dense", "hybrid"):
            message = last_line(run_alone("search", "px", "virus", "--by", by, code=1))
            assert "vectors/" in message
            assert "--force" in message
        failed = run_alone(*again, code=1)
        assert "up to date" not in failed.stdout
        assert "vectors/" in last_line(failed)
        run_alone(*again, "--force")
        assert run_alone("search", "px", "virus", "--by", "dense").stdout


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
def test_a_changed_file_is_named_or_changes_nothing(folder: Path, old: bool) -> None:
    """Each mutation in a process of its own, as a reader in C or Rust could take its process with it."""
    index = folder / "px"
    if old:
        as_of_0_2_0(index)
    before = answers(index)
    assert {len(passages) for passages in before} == {10}
    finished = Forked(["-c", _MUTATE, str(index), str(old)]).completed(300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr


def answers(index: Path) -> list[list[tuple[str, float]]]:
    opened = Index(index)
    searches: list[tuple[str, SearchBy]] = [(query, by) for query in QUERIES for by in ("bm25", "dense")]
    return [[(passage.document, passage.score) for passage in opened.search(query, by=by)] for query, by in searches]


_MUTATE = """
import random, sys
from pathlib import Path
from greenadapt.errors import InputError
from tests.inference.search.test_damaged_index import answers, files_of
index, old, draw = Path(sys.argv[1]), sys.argv[2] == "True", random.Random(0)
before = answers(index)
files = [path for path in files_of(index) if not old or path.suffix == ".usearch"]
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
        assert index.name in str(error) and "--force" in str(error), error
    else:
        if not old:  # which has no checksums of the vectors themselves
            assert after == before, (path, how)
    path.write_bytes(whole)
assert answers(index) == before
"""


def test_a_large_file_that_changed_in_the_middle_is_found_by_index(
    tmp_path: Path, run_alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    text = "\n\n".join(" ".join(f"{draw.getrandbits(64):x}" for _ in range(50)) for _ in range(1500))
    Path("a.jsonl").write_text(json.dumps({"text": text}))
    run_alone("index", "--documents", "a.jsonl", "-o", "px")
    largest = max(files_of(tmp_path / "px"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    assert len(content) > 1 << 18
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    message = last_line(run_alone("index", "--documents", "a.jsonl", "-o", "px", code=1))
    assert f"{largest.name} is damaged" in message
    run_alone("index", "--documents", "a.jsonl", "-o", "px", "--force")
    assert "up to date" in run_alone("index", "--documents", "a.jsonl", "-o", "px").stdout


def test_an_index_of_0_2_0_gets_checksums(folder: Path, original: Path, run_alone: Run) -> None:
    before = answers(folder / "px")
    as_of_0_2_0(folder / "px")
    assert answers(folder / "px") == before
    again = ("index", "--documents", original / "a.jsonl", "-m", original / "model", "--vectors", "-o", "px")
    assert "sample_by: document → line" in last_line(run_alone(*again, code=1))
    assert "up to date" in run_alone(*again, "--sample-by", "document").stdout
    assert json.loads((folder / "px" / "index.json").read_text())["files"]
    assert answers(folder / "px") == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("documents", []),
        ("documents", {"/x": 5}),
        ("config", {"vectors": "yes"}),
        ("model", "m"),
        ("model", {"source": 5, "sha256": "x"}),
        ("counts", 5),
        ("version", "1"),
        ("files", {"x": {"bytes": "1"}}),
    ],
)
def test_a_wrong_type_is_one_line(folder: Path, run_alone: Run, key: str, value: object) -> None:
    file = folder / "px" / "index.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    for command in (["search", "px", "virus"], ["index", "--documents", "a.jsonl", "-o", "px"]):
        message = last_line(run_alone(*command, code=1))
        assert f"index.json: {key}" in message or f"index.json has no {key}" in message


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
    as_of_0_2_0(tmp_path / "px")  # what is added now is as in the text
    Path("b.jsonl").write_text("".join(json.dumps({"text": text.replace("ö", "o")}) + "\n" for text in texts))
    run_alone("index", "--documents", "b.jsonl", "-o", "px", "--update", "--sample-by", "document")
    for query in ("cafés", unicodedata.normalize("NFD", "cafés")):
        assert {passage.document for passage in Index("px").search(query)} == {"b.jsonl:1", "b.jsonl:2"}


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


@pytest.mark.parametrize("file", ["vectors", "words"])
def test_questions_to_a_damaged_index_are_refused_in_one_line(
    folder: Path, run_alone: Run, tiny_model: Callable[..., Path], file: str
) -> None:
    [damaged, *_] = sorted(path for path in (folder / "px" / file).iterdir() if path.suffix in (".usearch", ".store"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    model = tiny_model("BertForQuestionAnswering")
    for command in (["qa", "-m", model, "--index", "px", "-q", "virus"], ["serve", "-m", model, "--index", "px"]):
        ended = run_alone(*command, code=1)
        assert ended.stdout == ""
        assert f"px is damaged: {file}/{damaged.name} is damaged: its checksum differs" in last_line(ended)
        assert "--force" in last_line(ended)
        assert "Traceback" not in ended.stderr


def test_damaged_vectors_of_another_origin_are_refused(tmp_path: Path) -> None:
    """Those of version 0.2.0 have no checksum, and usearch reads wherever a file sends it."""
    vectors = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    (tmp_path / "vectors").mkdir()
    VectorFiles(FolderStore(tmp_path)).add(range(400), vectors)
    [file] = (tmp_path / "vectors").iterdir()
    whole = file.read_bytes()
    graph = 8 + 400 * 16
    for at, changed, fault in (
        (7, b"", "is not a file of usearch"),
        (0, b"\xff\xff\xff\x7f", "cut"),
        (graph, b"\0", "usearch"),
        (graph + 64, b"\x91\x01", "sizes"),
        (graph + 64 + 32, b"\x91\x01", "sizes"),
        (graph + 104, b"\x07\0", "levels|bytes"),
        (len(whole) - 4, b"", "bytes"),
    ):
        file.write_bytes(whole[:at] + changed + (whole[at + len(changed) :] if changed else b""))
        with pytest.raises(InputError, match=fault):
            VectorFiles(FolderStore(tmp_path))
    first = graph + 104 + 2 * 400 + 10
    file.write_bytes(whole[: first + 4] + (400).to_bytes(4, "little") + whole[first + 8 :])
    with pytest.raises(InputError, match="neighbours"):
        VectorFiles(FolderStore(tmp_path))
