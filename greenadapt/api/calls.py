"""``greenadapt.adapt``, ``greenadapt.finetune`` and ``greenadapt.load``."""

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from greenadapt.api.arguments import (
    OF_COMMANDS,
    Arguments,
    Configs,
    Data,
    corpus_of,
    is_named,
    labelled_sources,
    make_session,
    one_labelled_source,
    text_source,
)
from greenadapt.api.models import AdaptedModel, EncoderModel, folder_of
from greenadapt.api.tasks import TaskModel
from greenadapt.config import (
    NOT_WITH_ADD_TO,
    AdapterConfig,
    AlignConfig,
    ExpandConfig,
    MemoryConfig,
    NumberOfSeeds,
    ReadingOptions,
    RunConfig,
    SamplingConfig,
    Seed,
    SessionOptions,
    TaskConfig,
    TaskName,
    TextOptions,
    TrainConfig,
    UnlabelledConfig,
    W2VConfig,
    preset_settings,
)
from greenadapt.corpus.recipes import may_have_fields
from greenadapt.errors import InputError, UsageError
from greenadapt.fields import checked_call
from greenadapt.progress import Progress
from greenadapt.storage.files import expanded
from greenadapt.storage.results import reading


@checked_call
def adapt(
    corpus: Data,
    model: str | PathLike[str] | EncoderModel | None = None,
    *,
    update: bool = False,
    progress: bool | Progress = True,
    **settings: Any,
) -> AdaptedModel:
    """Adapt a pretrained model to text: train word vectors, map them into its embedding, add rows for new words.

    It is ``greenadapt adapt``, and writes the same files. A second call with the same text and settings finds the
    result; a stopped one goes on where it was.

    Args:
        corpus: The path of a file or folder, the name of a corpus (``greenadapt corpus list``), a recipe; or texts,
            records with a field ``text`` (or ``field="abstract"``), a ``datasets.Dataset`` or a data frame, which are
            kept in the workspace. A string with a line break is a text.
        model: The model: a folder, a hub id, ``"minilm"`` or ``"mpnet"``; by default the only one used so far.
        update: Whether to add only the documents that are new to what an earlier call made.
        progress: Whether to show notes and bars on stderr, or where to. Without, warnings are Python's own.
        settings: The options of ``greenadapt adapt`` with underscores, such as ``out="adapted"``, ``workspace="work"``,
            ``rows="form"``, ``epochs=10``, ``max_words=20000``, ``min_count=3``, ``workers=1``, ``max_memory="8G"``.

    Returns:
        The adapted model, in the folder ``out``, or in the workspace.

    Raises:
        UsageError: For an argument that is not known, or a value that is not allowed.
        MissingError: If the corpus or the model is not there.
        InputError: If the text is broken.
        ConflictError: If there is a result of other settings; ``force=True`` replaces it, ``variant="b"`` keeps both.

    Examples:
        >>> adapted = greenadapt.adapt("papers.txt", model="bert-base-uncased", out="adapted")
        >>> adapted.alignment.precision_at_10
        0.41
    """
    configs: Configs = {
        W2VConfig: (),
        AlignConfig: (),
        ExpandConfig: ("min_count",),
        TextOptions: (),
        SessionOptions: OF_COMMANDS,
    }
    own = {"corpus": corpus, "model": model, "update": update, "progress": progress}
    given = Arguments("adapt", settings, configs, own)
    if update and not is_named(corpus):
        raise UsageError("update finds a corpus by its path, and that of texts is their content", "give a file")
    align, expand, text = (given.make(config) for config in (AlignConfig, ExpandConfig, TextOptions))
    if text.fields and is_named(corpus) and not may_have_fields(fspath(corpus), text.format):
        raise UsageError(f"field is for JSON lines and tables, and {fspath(corpus)} is neither", "leave it out")
    session = make_session(given.make(SessionOptions), progress)
    w2v = given.make(W2VConfig, workers=session.workers)

    from greenadapt.stages.adapt import AdaptRequest
    from greenadapt.stages.adapt import adapt as stage

    start = None if model is None else folder_of(model)
    request = AdaptRequest(w2v, align, expand, text, update, given.named(W2VConfig))
    name = corpus_of(corpus, session.workspace.root)
    read = {"corpus": name if is_named(corpus) else None, "model": start}
    with reading({argument: path for argument, path in read.items() if path is not None}):
        return AdaptedModel(stage(session, name, start, request)[-1].path)


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
