"""Data of many tasks that cannot be trained on."""

import os
from pathlib import Path

import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.stages.finetune.request import read_task_data
from greenadapt.stages.finetune.train import finetune
from tests.conftest import Notes
from tests.support.small_multitask import entry, request, task_file
from tests.support.small_tasks import TinyModel, session


def test_data_that_cannot_be(tmp_path: Path, tiny_model: TinyModel) -> None:
    model = tiny_model()
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    for changes, message in (
        ({"train": (str(empty),)}, "task ner: "),
        ({"train": (str(task_file(tmp_path, "ner", "train")), str(empty))}, "task ner: train: .*empty.tsv has no"),
        ({"test": {"far": str(empty)}}, "task ner: test far has no examples"),
        ({"metric": "by_type.Nothing.f1"}, "task ner: tasks file: metric .* Nothing, which no training example has"),
    ):
        wanted = request(tmp_path, model, tasks=(entry(tmp_path, "ner", **changes),))
        with pytest.raises(InputError, match=message):
            finetune(session(tmp_path), wanted)


@pytest.mark.parametrize(
    ("name", "other", "lacks"),
    [
        ("ner", "cell\tB-Other\nheart\tO\n", "other lacks Disease, Gene"),
        ("ill.1", '{"text": "heart", "label": "well"}\n{"text": "cell", "label": "Ill"}\n', "other lacks ill"),
    ],
)
def test_training_files_that_differ_in_their_labels(
    tmp_path: Path, tiny_model: TinyModel, name: str, other: str, lacks: str
) -> None:
    file, told = tmp_path / "other", Notes()
    file.write_text(other)
    train = task_file(tmp_path, name, "train")
    checkpoint = Checkpoint.open(tiny_model())
    read_task_data(entry(tmp_path, name, train=(str(train), str(train))), checkpoint, AdapterConfig(), told)
    assert told.warnings == []
    read_task_data(entry(tmp_path, name, train=(str(train), str(file))), checkpoint, AdapterConfig(), told)
    first, second = (line for line in told.warnings if "differ in their labels" in line)
    assert first.startswith(f"{name}: ")
    assert first.endswith(f"{train} lacks {'Ill' if name == 'ill.1' else 'Other'}")
    assert second.endswith(lacks)


def test_adapters_that_do_not_go_are_refused_before_anything_is_read(tmp_path: Path, tiny_model: TinyModel) -> None:
    (tmp_path / "broken.tsv").write_text("a word without a tag\n", "utf-8")
    broken = entry(tmp_path, "ner", test={"test": str(tmp_path / "broken.tsv")})
    wanted = request(tmp_path, tiny_model(), tasks=(broken,), adapter=AdapterConfig(size=10, form="reference"))
    with pytest.raises(UsageError, match="width is 10, not a multiple of the 6 heads"):
        finetune(session(tmp_path), wanted)


@pytest.mark.parametrize("kind", ["train", "test"])
def test_data_from_a_pipe_are_refused_before_they_are_read(tmp_path: Path, tiny_model: TinyModel, kind: str) -> None:
    end, begin = os.pipe()
    os.close(begin)
    source = f"/dev/fd/{end}"
    piped = entry(tmp_path, "ner", **{kind: (source,) if kind == "train" else {"far": source}})
    with pytest.raises(InputError, match=rf"{source} is a pipe or a device, .*: give a file"):
        finetune(session(tmp_path), request(tmp_path, tiny_model(), tasks=(piped,)))
    os.close(end)
