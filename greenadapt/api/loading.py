"""``greenadapt.load``."""

from os import PathLike
from pathlib import Path
from typing import Any

from greenadapt.api.arguments import Arguments
from greenadapt.api.models import AdaptedModel, EncoderModel, folder_of
from greenadapt.api.tasks import TaskModel
from greenadapt.config import ReadingOptions
from greenadapt.errors import InputError, UsageError
from greenadapt.fields import checked_call
from greenadapt.storage.files import expanded


@checked_call
def load(
    model: str | PathLike[str] | EncoderModel | TaskModel, *, task: str | None = None, **settings: Any
) -> AdaptedModel | TaskModel | EncoderModel:
    """Open a model by what its folder holds.

    Args:
        model: A folder, a hub id, ``"minilm"`` or ``"mpnet"``.
        task: Which of several tasks.
        settings: Of a task's model: ``seed``, which of several; ``pool`` (``"mean"``,
            ``"base"`` or ``"expanded"``), ``margin``, ``precision``, ``max_tokens``, ``max_length``, ``memory``. Of
            any model: ``backend`` (``"torch"``, ``"onnx"``, ``"openvino"``), ``quantize`` (``"none"``, ``"int8"``,
            ``"bf16"``).

    Returns:
        A ``TaskModel`` for what ``finetune`` wrote and for question answering models from elsewhere, an
        ``AdaptedModel`` for what ``adapt`` wrote, and an ``EncoderModel`` for any other encoder.

    Raises:
        MissingError: If there is no such model.
        InputError: If the folder is another result, or a model of a task that ``finetune`` did not write.

    Examples:
        >>> greenadapt.load("adapted").encode("The patient had tachycardia.").shape
        (768,)
        >>> greenadapt.load("runs/tasks-minilm-cola-sst2", task="sst2").predict("A fine film.")["label"]
        'positive'
    """
    from greenadapt.checkpoints.layout import FACTS_FILE, TASK_FILE, is_multitask
    from greenadapt.checkpoints.source import find_model
    from greenadapt.models.task_folder import TaskFolder, answers_from_elsewhere
    from greenadapt.tokenization.added_words import WORDS_FILE

    given = Arguments("load", settings, {ReadingOptions: ()}, {"model": model, "task": task})
    reading = given.make(ReadingOptions)
    name = folder_of(model)
    _refuse_other_result(expanded(name))
    found = find_model(name)
    folder = expanded(name) if expanded(name).is_dir() else found.folder
    is_ours = (folder / TASK_FILE).is_file() or is_multitask(folder)
    if is_ours or answers_from_elsewhere(folder):
        opened = TaskModel(folder, task, reading)
        for one in opened._names:
            TaskFolder.find(str(folder), reading.seed, one)
        return opened
    wrong = [*([] if task is None else ["task"]), *(name for name in settings if name not in ("backend", "quantize"))]
    if wrong:
        raise UsageError(f"{name} is an encoder, which has no {wrong[0]}", "leave it out")
    if (folder / FACTS_FILE).is_file() and (folder / WORDS_FILE).is_file():  # pre-training alone leaves no words
        return AdaptedModel(folder, reading.backend, reading.quantize)
    _refuse_other_head(folder)
    return EncoderModel(folder, reading.backend, reading.quantize)


def _refuse_other_result(folder: Path) -> None:
    """Raise ``InputError`` for the folder of a stage that makes no model."""
    from greenadapt.storage.results import MANIFEST, read_manifest

    if (folder / MANIFEST).is_file() and not (folder / "config.json").is_file():
        stage = read_manifest(folder).stage
        raise InputError(f"{folder} is a result of {stage}, not a model", "give the folder of adapt or finetune")


def _refuse_other_head(folder: Path) -> None:
    """Raise ``InputError`` for a classifier or tagger from elsewhere, whose task nobody described."""
    from greenadapt.checkpoints.reader import Checkpoint

    architecture = str((Checkpoint.open(folder).config.get("architectures") or [""])[0])
    if architecture.endswith(("ForTokenClassification", "ForSequenceClassification", "ForMultipleChoice")):
        raise InputError(
            f"{folder} is a {architecture} that finetune did not write, so that its task is not known",
            "load it with transformers, or train it with greenadapt.finetune",
        )
