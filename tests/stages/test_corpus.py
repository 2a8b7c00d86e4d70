"""``adapt --update``: what it adds, when it trains afresh, and that it can be killed."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.errors import ConflictError, UsageError
from greenadapt.progress import Bar
from greenadapt.stages.adapt import AdaptRequest, adapt
from greenadapt.stages.machine import stage_costs
from greenadapt.stages.session import Session
from greenadapt.storage.files import hash_file
from greenadapt.storage.results import CARD, MANIFEST, Result
from greenadapt.storage.workspace import Workspace
from greenadapt.vectors import cbow
from greenadapt.vectors.word_vectors import WordVectors
from tests.conftest import WORDS, Notes, tiny_model_in

UPDATE = AdaptRequest(
    W2VConfig(min_count=2, epochs=2, engine="gensim"), AlignConfig(), ExpandConfig(), TextOptions(), update=True
)
FULL = replace(UPDATE, update=False)
KNOWN = [*dict.fromkeys(WORDS), "tachycardia", "coronavirus", "eigenvalues"]


def lines(n: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [f"{' '.join(draw.choices(KNOWN, k=12))}\n" for _ in range(n)]


FIRST, MORE = lines(300, 1), [*lines(6, 2), "troponin tachycardia troponin\n"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_in(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A workspace with a run of ``FIRST``, which is in ``text.txt``; nothing being there, it is a full one."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "text.txt").write_text("".join(FIRST))
    stages(Session(Workspace(folder / "ws"), Notes()), folder / "text.txt", model)
    return folder


@pytest.fixture
def text(folder: Path) -> Path:
    path = folder / "text.txt"
    path.write_text("".join(FIRST))
    return path


@pytest.fixture
def session(folder: Path, tmp_path: Path) -> Session:
    """In a copy of the workspace."""
    shutil.copytree(folder / "ws", tmp_path / "ws", symlinks=True)
    return Session(Workspace(tmp_path / "ws"), Notes())


def stages(session: Session, text: Path, model: Path, request: AdaptRequest = UPDATE) -> dict[str, Result]:
    results = adapt(session, str(text), str(model), request)
    return {result.manifest.stage: result for result in results}


def contents(results: dict[str, Result]) -> dict[str, str]:
    """Hashes of all files of all stages."""
    return {
        f"{stage}/{path.name}": hash_file(path)
        for stage, result in results.items()
        for path in result.folder.iterdir()
        if path.is_file() and path.name not in (MANIFEST, CARD)
    }


def notes(session: Session) -> str:
    assert isinstance(session.progress, Notes)
    return "\n".join(session.progress.lines)


@pytest.mark.slow
def test_an_update_counts_as_a_full_run_and_trains_former_vectors_on(
    session: Session, text: Path, model: Path, tmp_path: Path
) -> None:
    first = stages(session, text, model)
    assert not any(result.fresh for result in first.values())
    before = WordVectors.load(first["w2v"].folder)
    text.write_text("".join([*FIRST, *MORE]))
    second = stages(session, text, model)
    full = stages(replace(session, workspace=Workspace(tmp_path / "full")), text, model, FULL)

    corpus = [name for name in contents(full) if name.startswith("corpus/")]
    assert {name: contents(second)[name] for name in corpus} == {name: contents(full)[name] for name in corpus}
    after, fresh = (WordVectors.load(results["w2v"].folder) for results in (second, full))
    assert after.words == fresh.words
    assert after.counts.tolist() == fresh.counts.tolist()
    assert "troponin" in after.words
    rows = [after.index[word] for word in before.words]
    moved = np.linalg.norm(after.matrix[rows] - before.matrix)
    assert 0 < moved < np.linalg.norm(fresh.matrix[rows] - before.matrix) / 2

    [of_corpus] = second["corpus"].manifest.facts["updates"]
    assert of_corpus["from"] == first["corpus"].manifest.digest
    assert (of_corpus["new_documents"], of_corpus["gone_documents"]) == (7, 0)
    [of_vectors] = second["w2v"].manifest.facts["updates"]
    assert (of_vectors["from"], of_vectors["new_words"]) == (first["w2v"].manifest.digest, 1)
    for request in (UPDATE, FULL):
        assert not any(result.fresh for result in stages(session, text, model, request).values())
    seconds = {row["stage"]: row["seconds"] for row in stage_costs(session, None, None)}
    for stage in ("corpus", "w2v"):  # what the result cost, not only its update
        costs = [results[stage].manifest.cost["seconds"] for results in (first, second)]
        assert seconds[stage] == pytest.approx(sum(costs))
    assert f"{sum(seconds.values()):,.0f} seconds" in (second["expand"].folder / CARD).read_text()


def test_a_text_without_new_documents_changes_no_vectors(
    session: Session, text: Path, model: Path, folder: Path
) -> None:
    text.write_text("".join([*FIRST[:49:-1], FIRST[0], FIRST[1], FIRST[1]]))
    second = stages(session, text, model)
    assert [stage for stage, result in second.items() if result.fresh] == ["corpus"]
    assert "48 documents of earlier runs, no longer in the text, stay counted" in notes(session)
    assert not any(result.fresh for result in stages(session, text, model).values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("added", "why"),
    [
        (lines(80, 5), "the text grew by 2"),
        ([f"{word} " * 12 + "\n" for word in ("aorta", "ventricle", "septum", "atrium")], "of the words are new"),
    ],
    ids=["much text", "many new words"],
)
def test_vectors_are_trained_afresh_where_the_text_drifted(
    session: Session, text: Path, model: Path, tmp_path: Path, added: list[str], why: str
) -> None:
    text.write_text("".join([*FIRST, *added]))
    drifted = stages(session, text, model)
    assert why in drifted["w2v"].manifest.facts["afresh"]
    full = stages(replace(session, workspace=Workspace(tmp_path / "full")), text, model, FULL)
    assert contents(drifted) == contents(full)


@pytest.mark.slow
def test_small_updates_add_up_to_a_fresh_run(session: Session, text: Path, model: Path) -> None:
    facts = []
    for n in (28, 56, 84):
        text.write_text("".join([*FIRST, *lines(n, 5)]))
        facts.append(stages(session, text, model)["w2v"].manifest.facts)
    assert [len(run_facts.get("updates", [])) for run_facts in facts] == [1, 2, 0]
    assert "the text grew by 2" in facts[2]["afresh"]


class Killer(Notes):
    """Ends the run once the bar ``label`` advanced ``steps`` times."""

    def __init__(self, label: str, steps: int) -> None:
        super().__init__()
        self.label, self.steps, self.counts = label, steps, False

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        self.counts = label == self.label
        yield self

    def advance(self, amount: float, **facts: str) -> None:
        self.steps -= self.counts
        if self.counts and not self.steps:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_an_update_killed_in_any_stage_goes_on_to_the_same_bytes(
    session: Session, text: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cbow, "CHECKPOINT_SECONDS", 0)
    text.write_text("".join([*FIRST, *MORE]))
    shutil.copytree(tmp_path / "ws", tmp_path / "whole", symlinks=True)
    expected = contents(stages(replace(session, workspace=Workspace(tmp_path / "whole")), text, model))
    for label, steps in (("splitting text into words", 1), ("shuffling lines", 1), ("training", 2)):
        with pytest.raises(KeyboardInterrupt):
            stages(replace(session, progress=Killer(label, steps)), text, model)
    assert contents(stages(session, text, model)) == expected
    assert "resuming after epoch 1" in notes(session)


def test_what_an_update_does_not_go_with(session: Session, text: Path, model: Path) -> None:
    with pytest.raises(UsageError, match="--force"):
        stages(replace(session, force=True), text, model)
    with pytest.raises(UsageError, match="standard input"):
        adapt(session, "-", str(model), UPDATE)
    text.write_text("".join([*FIRST, *MORE]))
    with pytest.raises(ConflictError, match="epochs: 2 → 3"):
        stages(session, text, model, replace(UPDATE, w2v=replace(UPDATE.w2v, epochs=3)))
