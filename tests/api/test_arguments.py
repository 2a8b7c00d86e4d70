"""Wrong arguments of any method are one ``UsageError`` that names them; texts with lone surrogates are read."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import greenadapt
from greenadapt.errors import MissingError, UsageError
from tests.support.small_tasks import TinyModel

NOWHERE = "/nowhere"
TASK, ADAPTED = greenadapt.TaskModel(NOWHERE), greenadapt.AdaptedModel(NOWHERE)
CALLS: dict[str, Callable[[Any], Any]] = {
    "corpus": lambda value: greenadapt.adapt(value, "minilm"),
    "model": lambda value: greenadapt.load(value),
    "folder": lambda value: greenadapt.EncoderModel(value),
    "top": lambda value: ADAPTED.neighbours("virus", top=value),
    "place": lambda value: greenadapt.Index(value),
    "data": lambda value: TASK.predict(value),
    "question": lambda value: TASK.answer(value, "a context"),
    "memory_config": lambda value: greenadapt.finetune(NOWHERE, "ner", "a.tsv", memory_config=value),
    "seeds": lambda value: greenadapt.finetune(NOWHERE, "ner", "a.tsv", seeds=value),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_value_of_a_wrong_type_is_named_before_any_work(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name} is .*, must be "):
        CALLS[name](object())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("top", 0, "top is 0, must be greater than or equal to 1"),
        ("folder", "a\0b", r"folder is 'a\\x00b', which is not a possible file name"),
        ("data", SimpleNamespace(collect=None), "data is of type SimpleNamespace, .*: call collect\\(\\) first"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CALLS[name](value)


def test_what_is_no_adapted_model_says_so() -> None:
    with pytest.raises(MissingError, match="not an adapted model"):
        _ = ADAPTED.corpus
    with pytest.raises(UsageError, match="no word"):
        ADAPTED.neighbours()


def test_numbers_of_numpy_paths_and_columns_are_taken(tiny_model: TinyModel) -> None:
    model = greenadapt.TaskModel(Path(tiny_model("BertForQuestionAnswering", initializer_range=0.3)))
    texts = ["the virus", "the patient"]
    forms: list[Any] = [iter(texts), tuple(texts), np.array(texts), dict.fromkeys(texts)]
    forms += [import_module(name).Series(texts) for name in ("pandas", "polars") if find_spec(name)]
    expected = model.answer(texts, "the virus was here", top=np.int64(1))  # type: ignore[arg-type]
    for form in forms:
        assert model.answer(form, "the virus was here") == expected


def test_lone_surrogates_are_replaced_as_in_files_with_a_warning(tiny_model: TinyModel, tmp_path: Path) -> None:
    qa = greenadapt.TaskModel(tiny_model("BertForQuestionAnswering", name="qa", initializer_range=0.3))
    with pytest.warns(UserWarning, match="replaced"):
        found_answer = qa.answer("which \ud800", "the \ud800 virus")
    assert found_answer == qa.answer("which \ufffd", "the \ufffd virus")
    with pytest.warns(UserWarning, match="replaced"):
        predicted = qa.predict({"question": "which \ud800", "context": "the \ud800 virus"})
    (tmp_path / "q.jsonl").write_text('{"question": "which \\ud800", "context": "the \\ud800 virus"}\n')
    with pytest.warns(UserWarning, match="replaced"):
        [from_file] = qa.predict(tmp_path / "q.jsonl")
    assert {**predicted, "line": 1} == from_file
