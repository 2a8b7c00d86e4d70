"""Whether an adapted model helps, without labels: the figures of each recipe of rows."""

import shutil
from pathlib import Path

import pytest

from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.errors import InputError, MissingError
from greenadapt.stages.adapt import adapt
from greenadapt.stages.align import align
from greenadapt.stages.assess import assess_rows
from greenadapt.stages.expand import expand
from greenadapt.stages.session import OpenedBase, Session, model_of
from greenadapt.store.results import Result
from tests.conftest import Notes, Run
from tests.support.small_tasks import KNOWN, TinyModel, known_text, worded_model


@pytest.fixture
def adapted(session: Session, tiny_model: TinyModel, tmp_path: Path) -> list[Result]:
    """The results of ``adapt``."""
    frequent = [KNOWN[::2][i:] + KNOWN[::2][:i] for i in range(1, 9)]
    (tmp_path / "text.txt").write_text(known_text() + "".join(f"{' '.join(words * 12)}\n" for words in frequent))
    vectors = W2VConfig(min_count=1, epochs=1, dim=16, alpha=0.025)
    text, model = str(tmp_path / "text.txt"), str(worded_model(tiny_model))
    rows = ExpandConfig(rows="pieces")
    return adapt(session, text, model, TextOptions(), vectors, AlignConfig(heldout=0.2), rows)


@pytest.mark.slow
def test_each_recipe_has_figures_and_new_words_their_share(adapted: list[Result]) -> None:
    figures = assess_rows(str(adapted[-1].path))
    assert figures["recipe"] == "pieces"
    assert list(figures["rows"]) == ["map", "norm", "pieces", "form", "random"]
    base = OpenedBase(model_of(adapted[-1]))
    prepared = PreparedCorpus(adapted[0].folder)
    trained_words = [word for word in prepared.words if word in base.vocabulary.whole_words]
    assert figures["rows"]["random"]["mapped_norm"] == pytest.approx(figures["rows"]["norm"]["mapped_norm"], rel=1e-5)
    count = dict(zip(prepared.words, prepared.counts.tolist(), strict=True))
    new = set(prepared.words) - set(trained_words)
    assert figures["added"]["share"] == pytest.approx(sum(count[word] for word in new) / sum(count.values()))


@pytest.mark.slow
def test_vectors_without_counts(session: Session, adapted: list[Result], tmp_path: Path, run_alone: Run) -> None:
    (tmp_path / "my.vec").write_text(
        f"{len(KNOWN) + 1} 3\n" + "".join(f"{word} {i} {i % 3} 1\n" for i, word in enumerate([*KNOWN, "tachycardia"]))
    )
    in_map = Session(session.workspace, Notes(), out=tmp_path / "map")
    model = str(model_of(adapted[-1]).folder)
    aligned = align(in_map, None, model, AlignConfig(), tmp_path / "my.vec")
    imported = expand(
        Session(session.workspace, Notes(), out=tmp_path / "imported"), None, None, ExpandConfig(), aligned.path
    )
    assert assess_rows(str(imported.path))["added"] is None
    assert "so often" not in run_alone("assess", "-m", imported.path).stdout


def test_what_is_not_adapted_or_was_made_from_something_else(session: Session, adapted: list[Result]) -> None:
    with pytest.raises(InputError, match="result of align, expected expand"):
        assess_rows(str(adapted[2].path))
    other = align(session, adapted[2].manifest.facts["corpus"], None, AlignConfig(method="procrustes"))
    shutil.rmtree(adapted[2].folder)
    shutil.copytree(other.folder, adapted[2].folder)
    with pytest.raises(MissingError, match=r"is not the map that .*expand was made with"):
        assess_rows(str(adapted[-1].path))
