"""Stages by name, by path and in one; what is up to date, refused, kept beside, and damaged."""

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import transformers

from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.errors import ConflictError, InputError, MissingError, UsageError
from greenadapt.stages import align as align_stage
from greenadapt.stages import corpus as corpus_stage
from greenadapt.stages import expand, neighbours, w2v
from greenadapt.stages.adapt import adapt
from greenadapt.stages.compile import export_vectors
from greenadapt.stages.session import Session
from greenadapt.store.arrays import Array, ArrayFile
from greenadapt.store.results import Result
from greenadapt.store.workspace import Workspace
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from tests.conftest import WORDS, Notes
from tests.support.small_tasks import TinyModel


class Plan(NamedTuple):
    """The configurations of ``adapt``."""

    text: TextOptions
    w2v: W2VConfig
    align: AlignConfig
    expand: ExpandConfig


PLAN = Plan(
    TextOptions(),
    W2VConfig(min_count=1, epochs=2, alpha=0.025),
    AlignConfig(),
    ExpandConfig(rows="map"),
)
NEW = ["tachycardia", "coronavirus", "dtypes", "eigenvalues"]


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """A text of 300 lines over the model's own words and ``NEW``."""
    draw = random.Random(1)
    vocabulary = [*dict.fromkeys(WORDS), *NEW]
    lines = [" ".join(draw.choices(vocabulary, k=12)) for _ in range(300)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def model(tiny_model: TinyModel) -> str:
    return str(tiny_model())


def rows_of(result: Result) -> Array:
    return ArrayFile(result.folder / "model.safetensors")["embeddings.word_embeddings.weight"]


@pytest.fixture
def results(session: Session, corpus: str, model: str) -> list[Result]:
    """The corpus, the vectors, the map and the adapted model."""
    return adapt(session, corpus, model, *PLAN)


@pytest.mark.slow
def test_stages_by_name_equal_adapt(
    results: list[Result], corpus: str, model: str, notes: Notes, tmp_path: Path
) -> None:
    assert [result.manifest.stage for result in results] == ["corpus", "w2v", "align", "expand"]
    assert [str(tmp_path / "ws") in note for note in notes.notes if "new workspace" in note] == [True]
    steps = Session(Workspace(tmp_path / "ws2"), Notes())
    w2v.w2v(steps, corpus, model, PLAN.w2v, PLAN.text)
    align_stage.align(steps, corpus, None, PLAN.align)  # one model exists, so it need not be named
    last = expand.expand(steps, corpus, None, PLAN.expand)
    assert last.manifest.digest == results[-1].manifest.digest  # of all files but the card, which has the cost
    assert last.manifest.key == results[-1].manifest.key
    with open(corpus, "a") as file:
        file.write("tachycardia coronavirus patient heart rate virus cell\n" * 20)
    assert [result.fresh for result in adapt(steps, corpus, model, *PLAN)] == [True] * 4


@pytest.mark.slow
def test_out_goes_elsewhere_and_vectors_come_from_elsewhere(
    session: Session, corpus: str, model: str, tmp_path: Path
) -> None:
    whole = adapt(replace(session, out=tmp_path / "adapted"), corpus, model, *PLAN)
    assert whole[-1].path == tmp_path / "adapted"
    assert not (tmp_path / "adapted").is_symlink()
    copy = tmp_path / "other.txt"
    copy.write_text(Path(corpus).read_text("utf-8"), "utf-8")
    other = PLAN._replace(expand=ExpandConfig(rows="norm"))
    with pytest.raises(ConflictError, match=r"adapted holds another result \(rows: map → norm"):  # before it is read
        adapt(replace(session, out=tmp_path / "adapted"), str(copy), model, *other)
    assert len(session.workspace.corpora()) == 1
    export_vectors(session, tmp_path / "my.vec.gz", corpus, None)
    empty = Session(Workspace(tmp_path / "elsewhere"), Notes(), out=tmp_path / "map")
    aligned = align_stage.align(empty, None, model, PLAN.align, tmp_path / "my.vec.gz")
    (tmp_path / "my.vec.gz").unlink()  # the map keeps its vectors
    expanded = expand.expand(replace(empty, out=tmp_path / "adapted2"), None, None, PLAN.expand, aligned.path)
    assert not (tmp_path / "elsewhere").exists()
    assert expanded.manifest.counts["words"] == whole[-1].manifest.counts["words"]
    # Text formats have no counts, so the order of the new rows may differ; as sets they are the same.
    first, second = (np.sort(rows_of(result), axis=0) for result in (whole[-1], expanded))
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_pieces_per_word_are_those_of_the_text(results: list[Result], corpus: str, model: str) -> None:
    lines = Path(corpus).read_text().splitlines()
    n_words = sum(len(line.split()) for line in lines)
    pieces = results[-1].manifest.facts["pieces_per_word"]
    for name, folder in (("before", model), ("after", str(results[-1].folder))):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        assert pieces[name] == pytest.approx(sum(len(tokenizer.tokenize(line)) for line in lines) / n_words)
    assert pieces["after"] < pieces["before"]


@pytest.mark.slow
def test_rows_are_chosen_on_held_out_words(minilm: Path, session: Session, tmp_path: Path) -> None:
    """Vectors of noise say nothing, so that the pieces alone, or a fit that reads them, must win."""
    vocabulary = BaseVocabulary(load_tokenizer(minilm))
    words = [*sorted(word for word in vocabulary.whole_words if word.isalpha() and len(word) > 6)[:300], *NEW[:2]]
    matrix = np.random.default_rng(1).normal(size=(len(words), 8)).astype(np.float32)
    word2vec = tmp_path / "noise.vec"
    lines = (f"{word} {' '.join(map(str, row))}" for word, row in zip(words, matrix.tolist(), strict=True))
    word2vec.write_text("\n".join([f"{len(words)} 8", *lines]) + "\n")
    aligned = align_stage.align(session, None, str(minilm), AlignConfig(), word2vec)
    chosen = expand.expand(session, None, None, ExpandConfig(rows="auto"), aligned.path)
    rows = chosen.manifest.facts["rows"]
    cosines = {name: figures["cosine"] for name, figures in rows["heldout"].items()}
    assert cosines.keys() == {"norm", "pieces", "form"}
    assert rows["recipe"] == max(cosines, key=lambda name: cosines[name]) != "norm"


def test_a_document_that_does_not_fit_in_memory_is_refused(session: Session, tmp_path: Path, model: str) -> None:
    (tmp_path / "long.txt").write_text("a b\n" + "word " * 1_000_000)
    with pytest.raises(InputError, match=r"long\.txt, line 2: a document of over 4\.2 MB .*raise --max-memory"):
        corpus_stage.prepare(replace(session, max_memory=64 << 20), str(tmp_path / "long.txt"), model, TextOptions())


def test_missing_earlier_stages_name_their_command(session: Session, corpus: str, model: str) -> None:
    with pytest.raises(MissingError, match=r"no w2v for model .* run greenadapt w2v first"):
        align_stage.align(session, None, model, PLAN.align)
    corpus_stage.prepare(session, corpus, model, TextOptions())
    with pytest.raises(MissingError, match="run greenadapt w2v first"):
        align_stage.align(session, corpus, None, PLAN.align)


def test_neighbours_are_those_of_the_adapted_models_rows(
    session: Session, results: list[Result], corpus: str, model: str, notes: Notes
) -> None:
    rows = np.asarray(rows_of(results[-1]), np.float64)
    dual = DualTokenizer.load(results[-1].folder)
    words = dual.added.all_surfaces()
    first = dual.added.first_id
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    own = first + words.index("tachycardia")
    cosines = rows @ rows[own]
    table = neighbours.neighbours(session, corpus, None, ["tachycardia"], 3)
    views = {row.view: row.neighbours for row in table}
    assert [*views][:2] == ["row → wordpieces", "row → added words"]
    expected = sorted((words[i - first] for i in range(first, len(rows)) if i != own), key=lambda word: -cosines[
        first + words.index(word)])[:3]  # fmt: skip
    assert [word for word, _ in views["row → added words"]] == expected
    assert views["row → added words"][0][1] == pytest.approx(cosines[first + words.index(expected[0])], abs=1e-5)
    nearest_piece = max(range(5, first), key=lambda i: cosines[i])  # the first five are special tokens
    assert views["row → wordpieces"][0][0] == dual.base.id_to_token(nearest_piece)
    # The same of the folder, and without its workspace of the rows alone.
    folder = str(results[-1].path)
    assert neighbours.neighbours(session, None, folder, ["tachycardia"], 3) == table
    with pytest.raises(UsageError, match="leave out one of them"):
        neighbours.neighbours(session, "another", folder, ["tachycardia"], 3)
    for removed in (1, 2):  # word vectors, then the map
        shutil.rmtree(results[removed].folder)
        assert [row.view for row in neighbours.neighbours(session, None, folder, ["heart"], 3)] == [*views][:2]
        assert "the neighbours of word vectors are left out" in notes.notes[-1]


@pytest.mark.slow
def test_an_old_map_is_never_applied_to_new_vectors(
    session: Session, results: list[Result], corpus: str, model: str
) -> None:
    """Several workers train other vectors under the same key."""
    other = w2v.w2v(session, corpus, model, replace(PLAN.w2v, seed=2), PLAN.text)
    for number in (1, 3):
        shutil.rmtree(results[number].folder)
    shutil.copytree(other.folder, results[1].folder)
    with pytest.raises(MissingError, match=r"holds other vectors .* run greenadapt align again"):
        expand.expand(session, corpus, None, PLAN.expand)
    align_stage.align(session, corpus, None, PLAN.align)
    assert expand.expand(session, corpus, None, PLAN.expand).fresh


@pytest.mark.slow
def test_options_of_the_text_need_not_be_repeated(session: Session, corpus: str, model: str) -> None:
    prepared = corpus_stage.prepare(session, corpus, model, TextOptions(heldout=0.2))
    assert isinstance(prepared, Result)
    trained = w2v.w2v(session, corpus, None, PLAN.w2v, TextOptions())
    assert trained.manifest.inputs["corpus"]["sha256"] == prepared.manifest.digest
    other = w2v.w2v(session, corpus, None, PLAN.w2v, TextOptions(heldout=0.1))
    assert other.manifest.inputs["corpus"]["sha256"] != prepared.manifest.digest


@pytest.mark.parametrize(("n_words", "epochs"), [(10**6, 20), (9 * 10**6, 10), (10**10, 5)])
def test_less_text_is_read_more_often(n_words: int, epochs: int) -> None:
    assert w2v.with_schedule(W2VConfig(), n_words) == W2VConfig(epochs=epochs, alpha=0.05)
    assert w2v.with_schedule(W2VConfig(alpha=0.1), n_words) == W2VConfig(epochs=epochs, alpha=0.1)
    assert w2v.with_schedule(W2VConfig(epochs=5, alpha=0.025), n_words) == W2VConfig()
