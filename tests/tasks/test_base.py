"""Inputs equal those that plain transformers puts together."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import TaskConfig, TaskName
from greenadapt.errors import InputError, UsageError
from greenadapt.tasks.base import Encoder, Fold, load_task, make_task
from greenadapt.tasks.classification import ClassificationTask
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.ner import NerTask
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("ner", NerTask, {"chunk": 7, "gold_chunks": True, "x_class": True, "decoding": "viterbi"}),
        ("classification", ClassificationTask, {"text_fields": ("a", "b"), "label_kind": "numbers"}),
        ("qa", QuestionTask, {"negatives": 5}),
    ],
)
def test_a_task_comes_back_from_its_settings(name: TaskName, kind: type, options: Any) -> None:
    task = make_task(TaskConfig(task=name, **options))
    assert type(task) is kind
    again = load_task(json.loads(json.dumps(task.settings())))
    assert again == task
    assert (again.name, again.head) == (name, task.head)


def test_what_a_file_says_that_is_broken() -> None:
    with pytest.raises(InputError, match=r"is not a task: known are ner, classification, qa"):
        load_task({"task": "nre"})
    with pytest.raises(InputError, match=r'^far/task\.json: chunk is "all", must be a valid integer'):
        load_task({**NerTask().settings(), "chunk": "all"}, Path("far/task.json"))


WHOLE = ["BertModel", "RobertaModel", "XLMRobertaModel", "NomicBertModel", "GteModel"]
ARCHITECTURES = [*WHOLE, "ElectraModel", "DistilBertModel", "MPNetModel"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_single_and_pair_are_those_of_transformers(architecture: str, tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model(architecture)
    encoder = Encoder.of(Checkpoint(folder))
    theirs = AutoTokenizer.from_pretrained(folder)
    first, second = (encoder.tokenizer.encode(text).base.ids for text in ("heart rate", "of the patient"))

    ids, types, begin = encoder.single(first)
    assert ids.tolist() == theirs("heart rate", padding=False)["input_ids"]
    assert not types.any()
    assert ids[begin : begin + len(first)].tolist() == first.tolist()

    ids, types, begin = encoder.pair(first, second)
    assert ids[begin : begin + len(second)].tolist() == second.tolist()
    assert len(ids) == len(first) + len(second) + encoder.n_special_pair
    if architecture in WHOLE:  # the others' folders hold BERT's template
        expected = theirs("heart rate", "of the patient", padding=False)
        assert ids.tolist() == expected["input_ids"]
        # Gte has segments, but its tokenizer gives none.
        no_types = types if architecture == "GteModel" else np.zeros(len(ids))
        assert types.tolist() == expected.get("token_type_ids", no_types.tolist())


def test_places_of_the_model_bound_the_length(tiny_model: Callable[..., Path]) -> None:
    bert, roberta = (Checkpoint(tiny_model(name)) for name in ("BertModel", "RobertaModel"))
    assert Encoder.of(bert).max_length == 160
    # RoBERTa counts positions from behind its padding's id, 1.
    assert Encoder.of(roberta).max_length == 158
    assert Encoder.of(bert, 20).max_length == 20
    with pytest.raises(UsageError, match="at most 160"):
        Encoder.of(bert, 161)
    with pytest.raises(InputError, match="21 pieces, the model reads 20"):
        Encoder.of(bert, 20).single(np.zeros(19, np.int32))


def test_each_example_is_left_out_once_and_the_order_stays() -> None:
    parts = [Fold(number, 3, 5).split(range(10)) for number in range(3)]
    assert sorted(example for _, out in parts for example in out) == list(range(10))
    assert sorted(len(out) for _, out in parts) == [3, 3, 4]
    for trained, out in parts:
        assert trained == [example for example in range(10) if example not in out]
        assert out == sorted(out)
    assert Fold(0, 3, 5).split(range(10)) == parts[0]
    assert Fold(0, 3, 6).split(range(10)) != parts[0]


def test_questions_on_a_context_and_sentences_of_a_document_stay_together() -> None:
    questions = [Question(str(i), "what", f"context {i % 4}") for i in range(20)]
    for number in range(2):
        trained, out = Fold(number, 2).split(questions)
        assert len(out) == 10
        assert not {question.context for question in trained} & {question.context for question in out}
    documents = [Sentence(("a",), group=f"document {i // 7}") for i in range(70)]
    trained, out = Fold(1, 3).split(documents)
    assert not {sentence.group for sentence in trained} & {sentence.group for sentence in out}


@pytest.mark.parametrize(("n", "run"), [(300, 10), (9, 1)])
def test_neighbouring_sentences_stay_together_where_documents_are_not_known(n: int, run: int) -> None:
    sentences = [Sentence((str(i),)) for i in range(n)]
    held_out = [int(sentence.words[0]) for sentence in Fold(0, 3).split(sentences)[1]]
    begins = held_out[::run]
    assert all(begin % run == 0 for begin in begins)
    assert held_out == [begin + i for begin in begins for i in range(run)]


def test_too_few() -> None:
    with pytest.raises(UsageError, match="--folds is 3, but there are only 2 examples"):
        Fold(0, 3).split(range(2))
    with pytest.raises(UsageError, match="2 contexts"):
        Fold(0, 3).split([Question(str(i), "what", f"context {i % 2}") for i in range(20)])
