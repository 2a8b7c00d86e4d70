"""Entities and their scores, beside seqeval."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

from greenadapt.tasks.conll import Entity, entities, entity_counts, entity_f1, entity_scores, iob2, is_tag

TAGS = st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("A", "B-2", "I"))])
LISTS = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=8), min_size=1, max_size=5)

IOB2 = ["O", "B-A", "I-A", "B-A", "O", "B-C", "B-A", "I-A", "I-A", "B-A", "I-A"]
SCHEMES = {
    "IOB1": ["O", "I-A", "I-A", "B-A", "O", "I-C", "I-A", "I-A", "I-A", "B-A", "I-A"],
    "IOB2": IOB2,
    "BIOES": ["O", "B-A", "E-A", "S-A", "O", "S-C", "B-A", "I-A", "E-A", "B-A", "E-A"],
    "BILOU": ["O", "B-A", "L-A", "U-A", "O", "U-C", "B-A", "I-A", "L-A", "B-A", "L-A"],
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_the_same_iob2(scheme: str) -> None:
    assert iob2(SCHEMES[scheme]) == IOB2
    assert entities(SCHEMES[scheme]) == [
        Entity(1, 2, "A"), Entity(3, 3, "A"), Entity(5, 5, "C"), Entity(6, 8, "A"), Entity(9, 10, "A"),
    ]  # fmt: skip


@settings(deadline=None)
@given(st.lists(TAGS, max_size=12))
def test_entities_are_those_of_conlleval(tags: list[str]) -> None:
    found = [(entity.type, entity.first, entity.last) for entity in entities(tags)]
    assert found == get_entities(tags)
    assert entities(iob2(tags)) == entities(tags)
    # IOB2 proper: no I begins an entity
    assert all(b[2:] == a[2:] for a, b in zip(["O", *iob2(tags)], iob2(tags), strict=False) if b[0] == "I")


@pytest.mark.slow
@settings(deadline=None)
@given(LISTS)
def test_scores_equal_seqeval(sentences: list[list[tuple[str, str]]]) -> None:
    gold = [[true for true, _ in sentence] for sentence in sentences]
    guessed = [[guess for _, guess in sentence] for sentence in sentences]
    scores = entity_scores(gold, guessed)
    p, r, f1, _ = precision_recall_fscore_support(gold, guessed, average="micro", zero_division=0)
    assert [scores[name] for name in ("precision", "recall", "f1")] == pytest.approx([p, r, f1])
    each = np.stack(precision_recall_fscore_support(gold, guessed, average=None, zero_division=0), axis=1)
    by_type = scores["by_type"]
    assert isinstance(by_type, dict)
    assert list(by_type) == sorted(by_type)
    ours = [[one[name] for name in ("precision", "recall", "f1", "support")] for one in by_type.values()]
    np.testing.assert_allclose(np.reshape(ours, (-1, 4)), each)
    assert scores["support"] == sum(each[:, 3])
    counts = entity_counts(gold, guessed)
    assert entity_f1(counts.sum(axis=0)) == pytest.approx(f1)


def test_a_shorter_prediction_is_no_hit() -> None:
    """Check 17 of the method's specification."""
    scores = entity_scores([["B-A", "I-A", "O"]], [["B-A", "O", "O"]])
    assert (scores["precision"], scores["recall"], scores["f1"]) == (0, 0, 0)
    assert entity_counts([["B-A", "I-A", "O"]], [["B-A", "O", "O"]]).tolist() == [[0, 1, 1]]


def test_f1_of_many_sums_at_once() -> None:
    sums = np.array([[[1.0, 2, 2], [0, 0, 0]], [[3, 3, 3], [0, 4, 1]]])
    assert entity_f1(sums).tolist() == [[0.5, 0], [1, 0]]


def test_nothing_to_find() -> None:
    assert entity_scores([["O"], []], [["O"], []]) == {
        "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0, "by_type": {},
    }  # fmt: skip


def test_bare_tags_are_of_one_type() -> None:
    assert iob2(["B", "I", "O", "I", "S", "E"]) == [
        "B-entity", "I-entity", "O", "B-entity", "B-entity", "B-entity",
    ]  # fmt: skip


@pytest.mark.parametrize("tag", ["O", "B", "I", "B-X", "I-a-b", "E-X", "S-X", "L-X", "U-X"])
def test_tags(tag: str) -> None:
    assert is_tag(tag)


@pytest.mark.parametrize("tag", ["", "X-Y", "Foo", "Bar", "B-", "O-X", "b-X", "-X", "BX", "o", "0"])
def test_no_tags(tag: str) -> None:
    assert not is_tag(tag)


@pytest.mark.parametrize("single", ["S-A", "U-A", "B-A"])
def test_an_entity_beside_an_open_one_is_its_own(single: str) -> None:
    assert iob2(["B-A", "I-A", single, "O"]) == ["B-A", "I-A", "B-A", "O"]
