"""``greenadapt.adapt``, ``greenadapt.finetune`` and ``greenadapt.load``."""

from collections.abc import Iterable, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

from greenadapt.api.arguments import (
    Arguments,
    Data,
    corpus_of,
    is_named,
    labelled_sources,
    make_session,
    single_labelled_source,
    text_source,
)
from greenadapt.api.models import AdaptedModel, EncoderModel, folder_of
from greenadapt.api.tasks import TaskModel
from greenadapt.config import (
    AdapterConfig,
    AdapterForm,
    AdapterInit,
    AdapterName,
    AlignConfig,
    AlignMethod,
    Decoding,
    EngineName,
    ExpandConfig,
    Keep,
    LabelKind,
    MemoryConfig,
    Mix,
    NumberOfSeeds,
    OovRule,
    Placement,
    Pool,
    PoolChoice,
    Precision,
    RandomScaleName,
    ReadingOptions,
    RowChoice,
    RunConfig,
    SampleBy,
    Sampling,
    SamplingConfig,
    Seed,
    SessionOptions,
    TaskConfig,
    TaskName,
    TextOptions,
    TrainConfig,
    W2VConfig,
)
from greenadapt.corpus.recipes import why_no_fields
from greenadapt.errors import InputError, UsageError
from greenadapt.fields import checked_call
from greenadapt.progress import Progress
from greenadapt.store.files import expanded


@checked_call
def adapt(
    corpus: Data,
    model: str | PathLike[str] | EncoderModel | None = None,
    *,
    preset: Literal["paper"] | None = None,
    # The text
    format: str | None = None,  # noqa: A002  (the option's name)
    field: str | Sequence[str] = (),
    sample_by: SampleBy | None = None,
    keep_duplicates: bool | None = None,
    strict: bool | None = None,
    heldout: float | None = None,
    # The word vectors
    dim: int | None = None,
    window: int = 5,
    negative: int = 5,
    sample: float = 1e-3,
    min_count: int = 5,
    max_vocab: int | None = None,
    epochs: int | None = None,
    alpha: float | None = None,
    engine: EngineName = "auto",
    seed: int = 1,
    # The map, and the rows of new words
    method: AlignMethod = "lstsq",
    random_scale: RandomScaleName = "bert",
    rows: RowChoice = "form",
    oov: OovRule = "base",
    replace_all: bool = False,
    max_words: int | None = None,
    restrict_to: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    # Where, and with what
    workspace: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    download: bool = False,
    workers: int | None = None,
    max_memory: int | str = "4G",
    cluster: str | None = None,
    gpus_each: float | None = None,
    progress: bool | Progress = True,
) -> AdaptedModel:
    """Adapt a pretrained model to text: train word vectors, map them into its embedding, add rows for new words.

    It is ``greenadapt adapt``, and writes the same files. A second call with the same text and settings finds the
    result; a stopped one resumes where it was. The other arguments are the options of the command, with underscores.

    Args:
        corpus: The path of a file or folder, the name of a corpus (``greenadapt corpus list``), a recipe; or texts,
            records with a field ``text`` (or ``field="abstract"``), a ``datasets.Dataset`` or a data frame, which are
            kept in the workspace. A string with a line break is a text.
        model: The model: a folder, a hub id, ``"minilm"`` or ``"mpnet"``; by default the only one used so far.
        preset: ``"paper"`` for the settings of the paper, where the other arguments do not set them.
        out: The folder of the model, in place of one in the ``workspace``.
        progress: Whether to show notes and bars on stderr, or where to. Without, warnings are Python's own.

    Returns:
        The adapted model, in the folder ``out``, or in the workspace.

    Raises:
        UsageError: For an argument that is not known, or a value that is not allowed.
        MissingError: If the corpus or the model is not there.
        InputError: If the text is broken.
        ConflictError: If ``out`` holds anything else.

    Examples:
        >>> adapted = greenadapt.adapt("papers.txt", model="bert-base-uncased", out="adapted")
        >>> adapted.alignment.precision_at_10
        0.41
    """
    arguments = Arguments(W2VConfig, AlignConfig, ExpandConfig, TextOptions, SessionOptions, preset=preset)
    of_text = arguments.make(TextOptions)
    if of_text.fields and is_named(corpus) and (why := why_no_fields([fspath(corpus)], format)):
        raise UsageError(f"field {why}")
    of_rows = arguments.make(ExpandConfig, without=("min_count",))
    session = make_session(arguments.make(SessionOptions), progress)
    of_vectors = arguments.make(W2VConfig, workers=session.workers)

    from greenadapt.stages.adapt import AdaptRequest
    from greenadapt.stages.adapt import adapt as stage

    request = AdaptRequest(
        of_vectors,
        arguments.make(AlignConfig),
        of_rows,
        of_text,
        arguments.named(W2VConfig),
    )
    start = None if model is None else folder_of(model)
    name = corpus_of(corpus, session.workspace.root)
    return AdaptedModel(stage(session, name, start, request)[-1].path)


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
    memory: str | PathLike[str] | EncoderModel | None = None,
    memory_config: MemoryConfig = MemoryConfig(),  # noqa: B008  (it is frozen)
    # The task
    text_field: str | Sequence[str] = ("text",),
    label_field: str = "label",
    labels: LabelKind = "auto",
    head_layers: int = 1,
    head_dropout: float | None = None,
    chunk: int | None = None,
    gold_chunks: bool = False,
    x_class: bool = False,
    decoding: Decoding | None = None,
    columns: str | Sequence[str] = (),
    negatives: int = 2,
    stride: int | None = None,
    max_question: int | None = None,
    max_answer_pieces: int | None = None,
    max_length: int | None = None,
    # The training
    preset: Literal["paper"] | None = None,
    seeds: NumberOfSeeds = 1,
    seed: Seed = 0,
    mix: Mix | None = None,
    pool: PoolChoice = "mean",
    epochs: int | None = None,
    max_steps: int | None = None,
    learning_rate: float | None = None,
    warmup: float = 0.1,
    batch_size: int | None = None,
    weight_decay: float = 0.0,
    precision: Precision = "auto",
    keep: Keep | None = None,
    patience: int | None = None,
    # Many tasks on one encoder
    adapter: AdapterName = "pals",
    adapter_size: int | None = None,
    layers: str = "all",
    placement: Placement = "parallel",
    adapter_form: AdapterForm = "paper",
    adapter_init: AdapterInit = "paper",
    top_layers: int = 6,
    own_pooler: bool = False,
    share_projections: bool = False,
    freeze_encoder: bool = False,
    sampling: Sampling = "anneal",
    steps_per_epoch: int | None = None,
    # Where, and with what
    workspace: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    max_tokens: int = 4096,
    cluster: str | None = None,
    gpus_each: float | None = None,
    progress: bool | Progress = True,
) -> TaskModel:
    """Fine-tune a model, adapted or not, for a task, or for several that share its encoder.

    It is ``greenadapt finetune``, and writes the same files. The other arguments are the options of the command, with
    underscores.

    Args:
        model: The model to train: an ``AdaptedModel``, a folder or a hub id.
        task: ``"ner"``, ``"classification"`` or ``"qa"``.
        train: Labelled examples: a path or several, the id of a data set on the hub, or records, a
            ``datasets.Dataset`` or a data frame, which are kept in the workspace. NER has the fields ``tokens`` and
            ``tags``, classification ``text`` and ``label``, question answering ``question``, ``context``, ``answers``.
        dev: Examples to evaluate on after every epoch.
        test: Examples to evaluate on at the end.
        unlabelled: Text of the domain without labels, or its path: a first model labels sentences of it, and the model
            learns from these, too. For NER.
        tasks: A file (.toml) of tasks that share one encoder, instead of ``task``, ``train``, ``dev`` and ``test``.
        memory: A general model whose states the trained one sees (G-MAP), or ``"base"``.
        memory_config: How it does.
        preset: ``"paper"`` for the settings of the paper.
        seeds: Number of models to train, each with its seed.
        seed: The first of the seeds.
        out: The folder of the model, in place of one in ``runs`` below the current folder.
        progress: Whether to show notes and bars on stderr, or where to. Without, warnings are Python's own.

    Returns:
        The fine-tuned model.

    Raises:
        UsageError: For an argument that is not known, or a value that is not allowed.
        MissingError: If a file or the model is not there, or torch is not installed.
        InputError: If examples are broken.
        ConflictError: If ``out`` holds anything else.

    Examples:
        >>> ner = greenadapt.finetune("adapted", task="ner", train="train.tsv", test="test.tsv", seeds=3)
        >>> ner.scores["mean"]["f1"]
        0.87
    """
    arguments = Arguments(TaskConfig, TrainConfig, AdapterConfig, SamplingConfig, RunConfig, SessionOptions)
    session = make_session(arguments.make(SessionOptions), progress)

    from greenadapt.stages.finetune.compare import finetune as stage
    from greenadapt.stages.finetune.request import FinetuneArguments

    def refuse(names: Iterable[str], why: str) -> None:
        for name in arguments.explicit:
            if name in names:
                raise UsageError(f"{name} {why}")

    checked = FinetuneArguments(
        explicit=arguments.explicit.keys(),
        model=None if model is None else folder_of(model),
        task=partial(arguments.make, TaskConfig),
        tasks=None if tasks is None else Path(tasks),
        adapter=arguments.make(AdapterConfig),
        sampling=arguments.make(SamplingConfig),
        training=arguments.make(TrainConfig),
        preset=preset,
        memory=None if memory is None else folder_of(memory),
        memory_config=memory_config,
        run=arguments.make(RunConfig),
        seeds=seeds,
        seed=seed,
    )
    checked.check(refuse)
    root = session.workspace.root
    request = checked.request(
        session,
        labelled_sources(train, root, "train"),
        single_labelled_source(dev, root, "dev"),
        single_labelled_source(test, root, "test"),
        None if unlabelled is None else text_source(unlabelled, root, "unlabelled"),
    )
    return TaskModel(stage(session, request).path)


@checked_call
def load(
    model: str | PathLike[str] | EncoderModel | TaskModel,
    *,
    task: str | None = None,
    pool: Pool | None = None,
    margin: float | None = None,
    seed: int | None = None,
    precision: Precision = "auto",
    max_tokens: int = 4096,
    max_length: int | None = None,
    memory: str | None = None,
) -> AdaptedModel | TaskModel | EncoderModel:
    """Open a model by what its folder holds.

    Args:
        model: A folder, a hub id, ``"minilm"`` or ``"mpnet"``.
        task: Which of several tasks.
        pool: Which logits to predict with: the mean over both tokenizations, or those of one; by default as trained.
        margin: With the mean, read the base tokenization only where the probabilities of the two best labels or answers
            differ by less than this; by default 0.9 for labels, and 1, which reads everything twice, for answers.
        seed: Which of the folder's seeds predicts; by default the first.
        precision: ``"auto"`` is bfloat16 on GPUs that compute in it; on CPUs that do, only in training; else float32.
        max_tokens: Pieces in the model at once, padding included.
        max_length: Length of a window in pieces.
        memory: The general model used as memory, if it was moved.

    Returns:
        A ``TaskModel`` for what ``finetune`` wrote and for question answering models from elsewhere, an
        ``AdaptedModel`` for what ``adapt`` wrote, and an ``EncoderModel`` for any other encoder.

    Raises:
        MissingError: If there is no such model.
        InputError: If the folder is another result, or a model of a task that ``finetune`` did not write.

    Examples:
        >>> greenadapt.load("adapted").words[:2]
        ['tachycardia', 'intubation']
        >>> greenadapt.load("runs/tasks-minilm-cola-sst2", task="sst2").predict("A fine film.")["label"]
        'positive'
    """
    from greenadapt.checkpoints.layout import FACTS_FILE, TASK_FILE, is_multitask
    from greenadapt.checkpoints.source import find_model
    from greenadapt.models.task_folder import TaskFolder, answers_from_elsewhere
    from greenadapt.tokenization.added_words import WORDS_FILE

    arguments = Arguments(ReadingOptions)
    reading = arguments.make(ReadingOptions)
    name = folder_of(model)
    _refuse_other_result(expanded(name))
    source = find_model(name)
    folder = expanded(name) if expanded(name).is_dir() else source.folder
    is_ours = (folder / TASK_FILE).is_file() or is_multitask(folder)
    if is_ours or answers_from_elsewhere(folder):
        opened = TaskModel(folder, task, reading)
        for task_name in opened._names:
            TaskFolder.find(str(folder), reading.seed, task_name)
        return opened
    for argument in arguments.explicit:
        if argument != "model":
            raise UsageError(f"{name} is an encoder, which has no {argument}", "leave it out")
    if (folder / FACTS_FILE).is_file() and (folder / WORDS_FILE).is_file():  # pre-training alone leaves no words
        return AdaptedModel(folder)
    _refuse_other_head(folder)
    return EncoderModel(folder)


def _refuse_other_result(folder: Path) -> None:
    """Raise ``InputError`` for the result of a stage that is no model."""
    from greenadapt.store.results import MANIFEST, read_manifest

    if (folder / MANIFEST).is_file() and not (folder / "config.json").is_file():
        stage = read_manifest(folder).stage
        raise InputError(f"{folder} is a result of {stage}, not a model", "give the folder of adapt or finetune")


def _refuse_other_head(folder: Path) -> None:
    """Raise ``InputError`` for a classifier or tagger from elsewhere, whose labels and inputs are not described."""
    from greenadapt.checkpoints.reader import Checkpoint

    architecture = str((Checkpoint.open(folder).config.get("architectures") or [""])[0])
    if architecture.endswith(("ForTokenClassification", "ForSequenceClassification", "ForMultipleChoice")):
        raise InputError(
            f"{folder} is a {architecture} that finetune did not write, so that its task is not known",
            "load it with transformers, or train it with greenadapt.finetune",
        )
