"""``greenadapt.finetune``."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from greenadapt.api.arguments import OF_COMMANDS, Arguments, Configs, make_session
from greenadapt.api.data import Data, labelled_sources, one_labelled_source, text_source
from greenadapt.api.models import EncoderModel, folder_of
from greenadapt.api.tasks import TaskModel
from greenadapt.config import (
    NOT_WITH_ADD_TO,
    AdapterConfig,
    MemoryConfig,
    NumberOfSeeds,
    RunConfig,
    SamplingConfig,
    Seed,
    SessionOptions,
    TaskConfig,
    TaskName,
    TrainConfig,
    UnlabelledConfig,
    preset_settings,
)
from greenadapt.errors import UsageError
from greenadapt.fields import checked_call
from greenadapt.progress import Progress

_COMMON: Configs = {
    TrainConfig: (),
    RunConfig: (),
    SessionOptions: ("variant", "download", "workers", "max_memory", *OF_COMMANDS),
}
_ONE: Configs = {**_COMMON, TaskConfig: ("task",), UnlabelledConfig: ()}
_MANY: Configs = {**_COMMON, AdapterConfig: (), SamplingConfig: ()}


@checked_call
def finetune(
    model: str | PathLike[str] | EncoderModel | TaskModel | None = None,
    task: TaskName | None = None,
    train: Data | None = None,
    dev: Data | None = None,
    test: Data | None = None,
    *,
    unlabelled: Data | None = None,
    tasks: str | PathLike[str] | None = None,
    add_to: str | PathLike[str] | TaskModel | None = None,
    memory: str | PathLike[str] | EncoderModel | None = None,
    memory_config: MemoryConfig = MemoryConfig(),  # noqa: B008  (it is frozen)
    preset: str | None = None,
    seeds: NumberOfSeeds = 1,
    seed: Seed = 0,
    progress: bool | Progress = True,
    **settings: Any,
) -> TaskModel:
    """Fine-tune a model, adapted or not, for a task, or for several that share its encoder.

    It is ``greenadapt finetune``, and writes the same files.

    Args:
        model: The model to train: an ``AdaptedModel``, a folder or a hub id.
        task: ``"ner"``, ``"classification"`` or ``"qa"``.
        train: Labelled examples: a path or several, the id of a data set on the hub, or records, a
            ``datasets.Dataset`` or a data frame, which are kept in the workspace. NER has the fields ``tokens`` and
            ``tags``, classification ``text`` and ``label``, question answering ``question``, ``context``, ``answers``.
        dev: Examples to evaluate on after every epoch.
        test: Examples to evaluate on at the end.
        unlabelled: Texts of the domain without labels, or their path: with ``mix="both"``, the mean prediction of both
            tokenizations teaches each of them. For NER and classification.
        tasks: A file (.toml) of tasks that share one encoder, instead of ``task``, ``train``, ``dev`` and ``test``.
        add_to: A shared encoder that the ``tasks`` are added to, instead of ``model``; it is not changed.
        memory: A general model whose states the trained one sees (G-MAP), or ``"base"``.
        memory_config: How it does.
        preset: ``"paper"`` for the settings of the paper.
        seeds: Number of models to train, each with its seed.
        seed: The first of the seeds.
        progress: Whether to show notes and bars on stderr, or where to. Without, warnings are Python's own.
        settings: The options of ``greenadapt finetune`` with underscores, such as ``out="tuned"``, ``epochs=3``,
            ``learning_rate=5e-5``, ``mix="both"``, ``whole_sentences=True``, ``text_field=["premise", "hypothesis"]``,
            ``adapter="pals"``.

    Returns:
        The fine-tuned model, in the folder ``out``, or in ``runs`` below the current folder; with ``add_to`` that one.

    Raises:
        UsageError: For an argument that is not known, or a value that is not allowed.
        MissingError: If a file or the model is not there, or torch is not installed.
        InputError: If examples are broken.
        ConflictError: If there is a result of other settings; ``force=True`` replaces it.

    Examples:
        >>> ner = greenadapt.finetune("adapted", task="ner", train="train.tsv", test="test.tsv", seeds=3)
        >>> ner.scores["mean"]["f1"]
        0.87
    """
    whole_sentences = bool(settings.pop("whole_sentences", False))
    if whole_sentences and (tasks is not None or "chunk" in settings):
        other = "tasks" if tasks is not None else "chunk"
        raise UsageError(f"{other} and whole_sentences exclude each other", "leave out one of them")
    own = {**dict.fromkeys(finetune.__annotations__), "unlabelled": unlabelled, "memory": memory}
    given = Arguments("finetune", settings, _ONE if tasks is None else _MANY, own)
    of_training, of_sampling = preset_settings(preset, many=tasks is not None)
    session = make_session(given.make(SessionOptions), progress)
    shared: dict[str, Any] = {
        "training": given.make(TrainConfig, **of_training),
        "run": given.make(RunConfig),
        "seeds": tuple(range(seed, seed + seeds)),
        "memory": None if memory is None else folder_of(memory),
        "memory_config": memory_config,
    }

    from greenadapt.stages.finetune.add_task import add_tasks
    from greenadapt.stages.finetune.request import FinetuneRequest
    from greenadapt.stages.finetune.train import finetune as stage

    start = _start(model, add_to, tasks, settings)
    if tasks is None:
        if task is None:
            raise UsageError("no task", 'give task="ner", "classification" or "qa", or tasks=FILE for many tasks')
        config = given.make(TaskConfig, task=task, **({"chunk": None} if whole_sentences else {}))
        root = session.workspace.root
        sources = labelled_sources(train, root, "train")
        held_out = one_labelled_source(dev, root, "dev"), one_labelled_source(test, root, "test")
        texts = None if unlabelled is None else text_source(unlabelled, root, "unlabelled")
        shared |= {"unlabelled": texts, "unlabelled_config": given.make(UnlabelledConfig)}
        request = FinetuneRequest.of_one(start, sources, *held_out, config, **shared)
    else:
        from greenadapt.tasks.tasks_file import read_tasks_file

        alone = {"task": task, "train": train, "dev": dev, "test": test, "unlabelled": unlabelled}
        for name, value in alone.items():
            if value is not None:
                raise UsageError(f"{name} is for one task, but {tasks} describes each task", "leave it out")
        adapter = given.make(AdapterConfig)
        sampling = given.make(SamplingConfig, **of_sampling)
        request = FinetuneRequest(start, read_tasks_file(Path(tasks)), adapter, sampling, **shared)
    if add_to is not None:
        add_tasks(session, Path(start), request)
        return TaskModel(Path(start))
    return TaskModel(stage(session, request).path)


def _start(
    model: str | PathLike[str] | EncoderModel | TaskModel | None,
    add_to: str | PathLike[str] | TaskModel | None,
    tasks: str | PathLike[str] | None,
    settings: Mapping[str, Any],
) -> str:
    """The folder or hub id to start from."""
    if add_to is None:
        if model is None:
            raise UsageError("no model", "give the model to train")
        return folder_of(model)
    if model is not None:
        raise UsageError("add_to trains on the encoder of its folder", "leave out the model")
    if tasks is None:
        raise UsageError("add_to is for tasks that share an encoder", "give tasks=FILE")
    for name in NOT_WITH_ADD_TO:
        if name in settings:
            raise UsageError(f"{name} does not go with add_to, which trains each task alone", "leave it out")
    return folder_of(add_to)
