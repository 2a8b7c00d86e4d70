"""Named entity recognition: from files to inputs in both tokenizations, and from logits to entities and scores."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenadapt.architectures import ARCHITECTURES
from greenadapt.config import TaskConfig
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder, Feature, Task, make_task
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.ner import NerTask
from greenadapt.tokenization.added_words import AddedWords, new_entries
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from tests.conftest import Notes, bytelevel_tokenizer, save_tokenizer, wordpiece_tokenizer
from tests.support.words_of_pieces import addable_words

LABELS = ("O", "B-Disease", "I-Disease")
FIRST = {
    "tokens": ["Identification", "of", "adenomatous", "polyposis", "coli", ",", "tachycardia"],
    "tags": ["O", "O", "B-Disease", "I-Disease", "I-Disease", "O", "B-Disease"],
}
SECOND = {"tokens": ["The", "heart", "rate", "."], "tags": ["O", "B-Disease", "I-Disease", "O"]}
NCBI = "\n\n".join(
    "\n".join(f"{word}\t{tag}" for word, tag in zip(row["tokens"], row["tags"], strict=True)) for row in (FIRST, SECOND)
)
ADDED = ["tachycardia", "adenomatous", "polyposis", "ataxia"]
NASTY = [
    *("\u200b", "", " ", "\u00ad", "日本", "[SEP]", "e\u0301", "🦠"),
    *("COVID-19", "x" * 300, "tachycardia", "Tachycardias"),
]
WORDS = st.lists(st.sampled_from(NASTY) | st.text(max_size=5), max_size=12)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Encoder]:
    """``encoders("bert" or "roberta", max_length, added words)``."""

    def make(kind: str = "bert", max_length: int = 512, added: list[str] = ADDED) -> Encoder:
        folder = tmp_path_factory.mktemp(kind)
        tokenizer = bytelevel_tokenizer() if kind == "roberta" else wordpiece_tokenizer()
        save_tokenizer(tokenizer, folder, "RobertaTokenizer" if kind == "roberta" else "BertTokenizer")
        vocabulary = BaseVocabulary(load_tokenizer(folder))
        entries = new_entries(addable_words(added, vocabulary), vocabulary)
        table = AddedWords.build(entries, vocabulary, vocabulary.size, "base")
        return Encoder(DualTokenizer(folder, table), ARCHITECTURES[kind], max_length)

    return make


@pytest.fixture(scope="module")
def bert(encoders: Callable[..., Encoder]) -> Encoder:
    return encoders()


@pytest.fixture(scope="module", params=[("bert", 512), ("bert", 16), ("roberta", 24)])
def any_encoder(request: pytest.FixtureRequest, encoders: Callable[..., Encoder]) -> Encoder:
    return encoders(*request.param)


def write(path: Path, content: str) -> str:
    path.write_text(content, "utf-8")
    return str(path)


def units(features: list[Feature]) -> list[int]:
    return [unit for feature in features for unit in feature.units.tolist() if unit >= 0]


# --- reading and fitting ---------------------------------------------------------------------------------------------


def test_conll_and_json_lines_are_the_same_sentences(tmp_path: Path) -> None:
    task: Task[Sentence] = make_task(TaskConfig())
    scheme = {"tags": ["O", "O", "I-Disease", "I-Disease", "I-Disease", "O", "I-Disease"]}  # IOB1
    rows = [{**FIRST, **scheme}, {"tokens": [], "tags": []}, {**SECOND, "tags": ["O", "B-Disease", "L-Disease", "O"]}]
    lines = "\n".join(map(json.dumps, rows))
    notes = Notes()
    expected = task.read(write(tmp_path / "train.tsv", NCBI), notes)
    assert [len(sentence.words) for sentence in expected] == [7, 4]
    assert notes.notes == []
    assert task.read(write(tmp_path / "train.JSONL", lines), notes) == expected
    assert notes.notes == [f"{tmp_path / 'train.JSONL'}: left out 1 sentence without words"]


def test_labels_and_split_are_those_of_the_training_set() -> None:
    examples = [Sentence(("a", "b", "c"), ("B-z", "O", "B-Gene")), Sentence(("rash",), ("I-a",))]
    task = NerTask().fit(examples, Silent())
    assert task.labels == ("O", "B-Gene", "I-Gene", "B-a", "I-a", "B-z", "I-z")
    assert task.split == "punctuation"
    assert NerTask().fit([Sentence(("rash,",), ("B-a",))], Silent()).split == "whitespace"
    with pytest.raises(InputError, match="nothing to learn"):
        NerTask().fit([Sentence(("a",), ("O",)), Sentence((), ())], Silent())


def test_types_unseen_in_training_are_named_and_missed(tmp_path: Path) -> None:
    notes, task = Notes(), NerTask(LABELS)
    examples = task.read(write(tmp_path / "test.tsv", "p53\tB-Gene\nrash\tB-Disease\n"), notes)
    assert notes.warnings == [
        f"{tmp_path / 'test.tsv'} has types that no training sentence has (Gene): they count as missed"
    ]
    task.read(write(tmp_path / "none.tsv", "the\tO\nvirus\tO\n"), notes)
    assert notes.warnings[1:] == [
        f"{tmp_path / 'none.tsv'} has no entities, only O: precision, recall and F1 are 0, whatever is predicted"
    ]
    with pytest.raises(InputError, match="has no type that a training sentence has: it has Gene, they have Disease"):
        task.read(write(tmp_path / "other.tsv", "p53\tB-Gene\n"), notes)
    scores = task.score(examples, [{"tags": ["B-Disease", "B-Disease"]}])
    assert (scores["precision"], scores["recall"]) == (0.5, 0.5)
    assert scores["by_type"]["Gene"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1}


# --- inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None)
@given(words=WORDS)
def test_both_views_have_every_word_once(any_encoder: Encoder, words: list[str]) -> None:
    """Check 14 of the method's specification, whatever is cut."""
    task = NerTask(LABELS, chunk=5)
    (views,) = task.inference([Sentence(tuple(words))], any_encoder)
    assert views.n_units == len(words)
    assert len(views.base) == len(views.expanded)
    for base, expanded in zip(views.base, views.expanded, strict=True):
        assert units([base]) == units([expanded])
        for feature in (base, expanded):
            assert len(feature) <= any_encoder.max_length
            assert len(units([feature])) <= 5
            assert feature.ids[[0, -1]].tolist() == [any_encoder.special.cls, any_encoder.special.sep]
            assert feature.ids.dtype == feature.types.dtype == feature.units.dtype == np.int32
    assert units(views.base) == list(range(len(words)))


def test_targets_stand_at_the_first_piece_of_each_word(bert: Encoder) -> None:
    sentence = Sentence(("The", "tachycardia", "heart-rate"), ("O", "B-Disease", "I-Disease"))
    for x_class, label in ((False, -100), (True, 3)):
        (views,) = NerTask(LABELS, x_class=x_class).training([sentence], bert, 0, Silent())
        assert views.n_units == 3
        for (feature,) in (views.base, views.expanded):
            assert feature.target is not None
            assert feature.target.dtype == np.int64
            assert feature.target[feature.units >= 0].tolist() == [0, 1, 2]
            assert feature.units[feature.units >= 0].tolist() == [0, 1, 2]
            assert set(feature.target[feature.units < 0].tolist()) == {label}
            assert feature.target[[0, -1]].tolist() == [label, label]
        # [CLS] the tachycardia heart - rate [SEP]
        assert views.expanded[0].target is not None
        assert views.expanded[0].target.tolist() == [label, 0, 1, 2, label, label, label]


def test_chunks_of_the_worked_example(bert: Encoder) -> None:
    """Check 13 of the method's specification; when predicting, tags are looked at only by option."""
    tags = ["O"] * 28 + ["B-Disease"] + ["I-Disease"] * 4 + ["O"] * 32
    sentence = Sentence(("heart",) * 65, tuple(tags))
    notes = Notes()
    items = NerTask(LABELS).training([sentence], bert, 0, notes)
    assert [views.n_units for views in items] == [28, 30, 7]
    assert [units(views.base) for views in items] == [list(range(n)) for n in (28, 30, 7)]
    assert notes.warnings == []
    for gold_chunks, chunk, lengths in ((False, 30, [30, 30, 5]), (True, 30, [28, 30, 7]), (True, None, [65])):
        (views,) = NerTask(LABELS, chunk=chunk, gold_chunks=gold_chunks).inference([sentence], bert)
        assert [len(units([feature])) for feature in views.base] == lengths
        assert units(views.base) == list(range(65))


def test_a_span_longer_than_a_chunk_is_cut_with_a_warning(bert: Encoder) -> None:
    long = Sentence(("heart",) * 9, ("B-Disease",) + ("I-Disease",) * 8)
    notes = Notes()
    items = NerTask(LABELS, chunk=4).training([long, long], bert, 0, notes)
    assert [views.n_units for views in items] == [4, 4, 1] * 2
    assert len(notes.warnings) == 1
    assert "in 4 places" in notes.warnings[0]
    targets = [views.base[0].target for views in items[:3]]
    assert [t[t >= 0].tolist() for t in targets if t is not None] == [[1, 2, 2, 2], [2, 2, 2, 2], [2]]


# --- predictions -----------------------------------------------------------------------------------------------------


def test_decode_gives_entities_with_characters_and_probabilities() -> None:
    task = NerTask(("O", "B-A", "I-A", "B-B", "I-B"), split="punctuation")
    text = " Rash, heart rate."
    sentence = task.example(text + "\n", "line 1")
    assert (sentence.words, sentence.text) == (("Rash", ",", "heart", "rate", "."), text)
    probabilities = np.full((5, 5), 0.1)
    probabilities[range(5), [2, 0, 1, 2, 4]] = 0.6  # an I that nothing stands before begins an entity
    probabilities[2] = [0.05, 0.8, 0.05, 0.05, 0.05]
    prediction = task.decode(sentence, np.log(probabilities).astype(np.float32) + 7)
    assert prediction["tags"] == ["B-A", "O", "B-A", "I-A", "B-B"]
    rows = [tuple(entity.values()) for entity in prediction["entities"]]
    scores = [pytest.approx(score) for score in (0.6, 0.7, 0.6)]
    assert list(prediction["entities"][0]) == ["first", "last", "type", "score", "start", "end", "text"]
    assert rows == [
        (0, 0, "A", scores[0], 1, 5, "Rash"),
        (2, 3, "A", scores[1], 7, 17, "heart rate"),
        (4, 4, "B", scores[2], 17, 18, "."),
    ]
    assert prediction["score"] == scores[0]
    json.dumps(prediction)


def test_words_next_to_each_other_decide_together() -> None:
    words = Sentence(("acute", "", "renal", "failure"))
    probabilities = [[0.2, 0.3, 0.5], [0.9, 0.0, 0.1], [0.45, 0.1, 0.45], [0.1, 0.3, 0.6]]
    logits = np.log(np.maximum(probabilities, 1e-9)).astype(np.float32)
    logits[1] = -np.inf  # no pieces
    expected = {
        "argmax": (["B-Disease", "O", "O", "B-Disease"], [(0, 0, 0.5), (3, 3, 0.6)]),
        "viterbi": (["B-Disease", *["I-Disease"] * 3], [(0, 3, (0.3 + 1 / 3 + 0.45 + 0.6) / 4)]),
    }
    for decoding, (tags, spans) in expected.items():
        prediction = NerTask(LABELS, decoding=decoding).decode(words, logits)  # type: ignore[arg-type]
        assert prediction["tags"] == tags
        predicted = [(row["first"], row["last"], row["score"]) for row in prediction["entities"]]
        assert predicted == [(first, last, pytest.approx(score, abs=1e-6)) for first, last, score in spans]
        assert prediction["score"] == pytest.approx(0.45 if decoding == "argmax" else 0.3, abs=1e-6)


def test_decode_ignores_x_and_has_characters_but_for_labelled_files() -> None:
    task = NerTask(LABELS, x_class=True)
    sentence = task.example({"tokens": ["a", "", "heart", "rate"]}, "line 1")
    logits = np.array([[1, 0, 0, 99], [1, 0, 0, 99], [0, 3, 0, 99], [0, 0, 3, 99]], np.float32)
    prediction = task.decode(sentence, logits)
    assert prediction["tags"] == ["O", "O", "B-Disease", "I-Disease"]
    (entity,) = prediction["entities"]
    assert entity["score"] == pytest.approx(np.exp(3) / (np.exp(3) + 2))
    assert (entity["start"], entity["end"], entity["text"]) == (3, 13, "heart rate")  # of "a  heart rate"
    (entity,) = task.decode(Sentence(sentence.words, ("O",) * 4), logits)["entities"]
    assert sorted(entity) == ["first", "last", "score", "type"]
