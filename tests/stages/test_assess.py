"""Whether an adapted model helps, without labels: figures of recipes, and the substitution test."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AlignConfig, AssessConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus, find_contexts
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


def _state(model: Any, ids: Any, position: int) -> Any:
    import torch

    with torch.no_grad():
        return model(**ids).last_hidden_state[0, position]


@pytest.mark.slow
def test_the_figures_and_the_substitution_of_rows_by_means_of_pieces(session: Session, adapted: list[Result]) -> None:
    import torch
    import transformers

    figures = assess_rows(session, str(adapted[-1].path), AssessConfig())
    assert figures["recipe"] == "pieces"
    assert list(figures["rows"]) == ["map", "norm", "pieces", "form", "random"]
    base = OpenedBase(model_of(adapted[-1]))
    prepared = PreparedCorpus.open(adapted[0].folder)
    trained_words = [word for word in prepared.words if word in base.vocabulary.whole_words]
    spelled = [word for word in trained_words if base.vocabulary.pieces_without_row([word])[0]]
    order = np.random.default_rng(AlignConfig.seed).permutation(len(spelled))
    held = [spelled[i] for i in np.sort(order[: round(0.2 * len(spelled))])]
    assert len(held) >= 10
    embedding = np.array(Checkpoint.open(base.model.folder).embedding(), np.float32)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(base.model.folder)
    plain: Any = transformers.AutoModel.from_pretrained(base.model.folder)
    weight, means, nearness, split, n_texts = plain.get_input_embeddings().weight, [], [], [], 0
    for word, contexts in find_contexts(prepared, held, 3, 64).items():
        row, [pieces] = base.vocabulary.whole_words[word], base.vocabulary.pieces_without_row([word])
        predicted = embedding[pieces].mean(axis=0)
        nearness.append(predicted @ embedding[row] / np.linalg.norm(predicted) / np.linalg.norm(embedding[row]))
        cosines, in_pieces = [], []
        for context in contexts:
            ids = tokenizer(" ".join(context.words), return_tensors="pt")
            plain_ids = ids["input_ids"][0].tolist()
            position = plain_ids.index(row)
            before = _state(plain, ids, position)
            cut = [i for piece in plain_ids for i in (pieces if piece == row else [piece])]
            at_first = _state(plain, {"input_ids": torch.tensor([cut])}, position)
            in_pieces.append(float(torch.cosine_similarity(before, at_first, dim=0)))
            with torch.no_grad():
                weight[row] = torch.from_numpy(predicted)
                cosines.append(float(torch.cosine_similarity(before, _state(plain, ids, position), dim=0)))
                weight[row] = torch.from_numpy(embedding[row])
        means.append(np.mean(cosines))
        split.append(np.mean(in_pieces))
        n_texts += len(cosines)
    assert (figures["substitution"]["words"], figures["substitution"]["texts"]) == (len(held), n_texts)
    assert figures["substitution"]["split"]["state_cosine"] == pytest.approx(np.mean(split), abs=1e-5)
    count = dict(zip(prepared.words, prepared.counts.tolist(), strict=True))
    bands = [[mean for word, mean in zip(held, split, strict=True) if low <= count[word] < high]
             for low, high in ((1, 20), (20, 100), (100, 500), (500, 10**9))]  # fmt: skip
    assert sum(map(bool, bands)) > 1
    by_count = [pytest.approx(np.mean(band), abs=1e-5) if band else None for band in bands]
    assert figures["substitution"]["split"]["state_by_count"] == by_count
    assert figures["rows"]["pieces"]["state_cosine"] == pytest.approx(np.mean(means), abs=1e-5)
    assert figures["rows"]["pieces"]["cosine"] == pytest.approx(np.mean(nearness), abs=1e-5)
    assert figures["rows"]["random"]["mapped_norm"] == pytest.approx(figures["rows"]["norm"]["mapped_norm"], rel=1e-5)
    new = set(prepared.words) - set(trained_words)
    assert figures["added"]["share"] == pytest.approx(sum(count[word] for word in new) / sum(count.values()))
    small = assess_rows(session, str(adapted[-1].path), AssessConfig(words=4))["substitution"]
    assert small["words"] == 4


@pytest.mark.slow
def test_words_stand_alone_without_a_text(
    session: Session, notes: Notes, adapted: list[Result], tmp_path: Path, run_alone: Run
) -> None:
    (tmp_path / "my.vec").write_text(
        f"{len(KNOWN) + 1} 3\n" + "".join(f"{word} {i} {i % 3} 1\n" for i, word in enumerate([*KNOWN, "tachycardia"]))
    )
    in_map = Session(session.workspace, Notes(), out=tmp_path / "map")
    model = str(model_of(adapted[-1]).folder)
    aligned = align(in_map, None, model, AlignConfig(), tmp_path / "my.vec")
    imported = expand(
        Session(session.workspace, Notes(), out=tmp_path / "imported"), None, None, ExpandConfig(), aligned.path
    )
    alone = assess_rows(session, str(imported.path), AssessConfig())
    assert alone["substitution"]["texts"] == 0
    assert 0 < alone["rows"]["map"]["state_cosine"] < 1
    table = run_alone("assess", "-m", imported.path).stdout
    assert f"{alone['rows']['form']['cosine']:.3f}" in table
    assert "so often" not in table  # these vectors came without counts
    shutil.rmtree(adapted[0].folder)
    gone = assess_rows(session, str(adapted[-1].path), AssessConfig())
    assert gone["substitution"]["texts"] == 0
    assert any(f"without a text around them: {adapted[1].folder}" in note for note in notes.notes)


def test_without_torch_there_are_the_other_figures(
    session: Session, notes: Notes, adapted: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    assessed = assess_rows(session, str(adapted[-1].path), AssessConfig())
    assert assessed["substitution"] is None
    assert {row["state_cosine"] for row in assessed["rows"].values()} == {None}
    assert any("greenadapt[train]" in note for note in notes.notes)


def test_what_is_not_adapted_or_was_made_from_something_else(session: Session, adapted: list[Result]) -> None:
    with pytest.raises(InputError, match="result of align, expected expand"):
        assess_rows(session, str(adapted[2].path), AssessConfig())
    other = align(session, adapted[2].manifest.facts["corpus"], None, AlignConfig(method="procrustes"))
    shutil.rmtree(adapted[2].folder)
    shutil.copytree(other.folder, adapted[2].folder)
    with pytest.raises(MissingError, match=r"is not the map that .*expand was made with"):
        assess_rows(session, str(adapted[-1].path), AssessConfig())
