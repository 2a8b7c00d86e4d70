"""``greenadapt.adapt``, ``greenadapt.finetune`` and ``greenadapt.finetune_tasks``."""

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from greenadapt.api.arguments import (
    Data,
    corpus_of,
    is_named,
    labelled_sources,
    make_session,
    refuse_unused,
    single_labelled_source,
)
from greenadapt.api.models import AdaptedModel, EncoderModel, TaskModel, folder_of
from greenadapt.config import (
    AdapterConfig,
    AlignConfig,
    ExpandConfig,
    MemoryConfig,
    NumberOfSeeds,
    SamplingConfig,
    Seed,
    SessionOptions,
    TaskConfig,
    TaskName,
    TextOptions,
    TrainConfig,
    W2VConfig,
    with_paper,
)
from greenadapt.corpus.recipes import why_no_fields
from greenadapt.errors import UsageError
from greenadapt.fields import validate_arguments
from greenadapt.progress import Progress
from greenadapt.store.files import expand_home

if TYPE_CHECKING:
    from greenadapt.stages.session import Session

Encoder = str | PathLike[str] | EncoderModel


@validate_arguments
def adapt(
    corpus: Data,
    model: Encoder | None = None,
    out: str | PathLike[str] | None = None,
    *,
    text: TextOptions = TextOptions(),
    w2v: W2VConfig = W2VConfig(),
    align: AlignConfig = AlignConfig(),
    expand: ExpandConfig = ExpandConfig(),
    preset: Literal["paper"] | None = None,
    options: SessionOptions = SessionOptions(),
    progress: bool | Progress = True,
) -> AdaptedModel:
    """Adapt a pretrained model to text: train word vectors, map them into its embedding, add rows for new words.

    It is ``greenadapt adapt``, and writes the same files. A second call with the same text and settings finds the
    result; a stopped one resumes where it was.

    Args:
        corpus: The path of a file or folder, the name of a corpus (``greenadapt corpus list``), a recipe; or texts,
            records with a field ``text`` (or the fields of ``text``), a ``datasets.Dataset`` or a data frame, which
            are kept in the workspace. A string with a line break is a text.
        model: The model: a folder, a hub id, ``"minilm"`` or ``"mpnet"``; by default the only one used so far.
        out: The folder of the adapted model, in place of one in the workspace.
        text: How the corpus is read.
        w2v: How word vectors are trained; epochs and rate that it does not set go by the size of the text.
        align: How the map is fitted.
        expand: Which words get a row, and how the row is computed.
        preset: ``"paper"`` for the settings of the paper, where the configurations do not set them.
        options: The workspace, and which resources to use.
        progress: Whether to show notes and bars on stderr, or where to. Without, warnings are Python's own.

    Returns:
        The adapted model.

    Raises:
        UsageError: For a value that is not allowed.
        MissingError: If the corpus or the model is not there.
        InputError: If the text is broken.
        ConflictError: If ``out`` holds anything else.

    Examples:
        >>> adapted = greenadapt.adapt("papers.txt", model="bert-base-uncased", out="adapted")
        >>> adapted.alignment.precision_at_10
        0.41
    """
    if preset is not None:
        w2v, align, expand = map(with_paper, (w2v, align, expand))
    refuse_unused(w2v, align, expand, text, options)
    if text.fields and is_named(corpus) and (why := why_no_fields([fspath(corpus)], text.format)):
        raise UsageError(f"fields {why}")
    session = make_session(options, progress, out)

    from greenadapt.stages.adapt import adapt as stage

    start = _folder(model)
    name = corpus_of(corpus, session.workspace.root)
    return AdaptedModel(stage(session, name, start, text, w2v, align, expand)[-1].path)


@validate_arguments
def finetune(
    model: Encoder | TaskModel,
    task: TaskName | TaskConfig,
    train: Data,
    dev: Data | None = None,
    test: Data | None = None,
    *,
    out: str | PathLike[str] | None = None,
    seeds: NumberOfSeeds | tuple[Seed, ...] = 1,
    training: TrainConfig = TrainConfig(),
    memory: Encoder | None = None,
    memory_config: MemoryConfig = MemoryConfig(),
    preset: Literal["paper"] | None = None,
    options: SessionOptions = SessionOptions(),
    progress: bool | Progress = True,
) -> TaskModel:
    """Fine-tune a model, adapted or not, for a task.

    It is ``greenadapt finetune``, and writes the same files.

    Args:
        model: The model to train: an ``AdaptedModel``, a folder or a hub id.
        task: ``"ner"``, ``"classification"`` or ``"qa"``, or a ``TaskConfig`` with its settings.
        train: Labelled examples: a path or several, the id of a data set on the hub, or records, a
            ``datasets.Dataset`` or a data frame, which are kept in the workspace. NER has the fields ``tokens`` and
            ``tags``, classification ``text`` and ``label``, question answering ``question``, ``context``, ``answers``.
        dev: Examples to evaluate on after every epoch.
        test: Examples to evaluate on at the end.
        out: The folder of the model, in place of one in ``runs`` below the current folder.
        seeds: Number of models to train, each with its seed, from 0; or the seeds.
        training: How the model is trained; what it does not set, greenadapt chooses.
        memory: A general model whose states the trained one sees (G-MAP), or ``"base"``.
        memory_config: How the trained model reads these states.
        preset: ``"paper"`` for the settings of the paper, where the configurations do not set them.
        options: The workspace, and which resources to use.
        progress: Whether to show notes and bars on stderr, or where to. Without, warnings are Python's own.

    Returns:
        The fine-tuned model.

    Raises:
        UsageError: For a value that is not allowed.
        MissingError: If a file or the model is not there, or torch is not installed.
        InputError: If examples are broken.
        ConflictError: If ``out`` holds anything else.

    Examples:
        >>> ner = greenadapt.finetune("adapted", task="ner", train="train.tsv", test="test.tsv", seeds=3)
        >>> ner.scores["mean"]["f1"]
        0.87
    """
    described = TaskConfig(task) if isinstance(task, str) else task
    refuse_unused(training, options)
    session = make_session(options, progress, out)
    root = session.workspace.root
    examples = {
        "train": labelled_sources(train, root, "train"),
        "dev": single_labelled_source(dev, root, "dev"),
        "test": single_labelled_source(test, root, "test"),
    }
    settings = {"training": training, "memory_config": memory_config, "max_tokens": options.max_tokens}
    explicit = training.explicit | described.explicit
    return _train(session, model, described, preset, explicit, seeds, memory=_folder(memory), **examples, **settings)


@validate_arguments
def finetune_tasks(
    model: Encoder | TaskModel,
    tasks: str | PathLike[str],
    *,
    out: str | PathLike[str] | None = None,
    seeds: NumberOfSeeds | tuple[Seed, ...] = 1,
    training: TrainConfig = TrainConfig(),
    adapter: AdapterConfig = AdapterConfig(),
    sampling: SamplingConfig = SamplingConfig(),
    memory: Encoder | None = None,
    memory_config: MemoryConfig = MemoryConfig(),
    preset: Literal["paper"] | None = None,
    options: SessionOptions = SessionOptions(),
    progress: bool | Progress = True,
) -> TaskModel:
    """Fine-tune a model for several tasks that share its encoder.

    It is ``greenadapt finetune --tasks``, and writes the same files.

    Args:
        model: The model to train: an ``AdaptedModel``, a folder or a hub id.
        tasks: The file (.toml) that describes the tasks.
        adapter: What each task adds to the encoder.
        sampling: How the tasks take turns.
        out, seeds, training, memory, memory_config, preset, options, progress: As of ``finetune``.

    Returns:
        The fine-tuned model.

    Raises:
        UsageError: For a value that is not allowed.
        MissingError: If a file or the model is not there, or torch is not installed.
        InputError: If the file of tasks or examples are broken.
        ConflictError: If ``out`` holds anything else.

    Examples:
        >>> many = greenadapt.finetune_tasks("minilm", "glue.toml", preset="paper")
        >>> many.scores["average"]["dev"]["mean"]
        0.8
    """
    refuse_unused(training, adapter, sampling, options)
    session = make_session(options, progress, out)
    settings = {"training": training, "memory_config": memory_config, "max_tokens": options.max_tokens}
    settings |= {"adapter": adapter, "sampling": sampling}
    explicit = training.explicit | sampling.explicit
    return _train(session, model, expand_home(tasks), preset, explicit, seeds, memory=_folder(memory), **settings)


def _folder(model: Encoder | TaskModel | None) -> str | None:
    return None if model is None else folder_of(model)


def _train(
    session: "Session",
    model: Encoder | TaskModel,
    tasks: TaskConfig | Path,
    preset: str | None,
    explicit: frozenset[str],
    seeds: int | tuple[int, ...],
    **fields: Any,
) -> TaskModel:
    """Train one task, or those of a file; ``fields`` are those of ``make_request``."""
    from greenadapt.stages.finetune.compare import finetune as stage
    from greenadapt.stages.finetune.request import make_request

    numbers = tuple(range(seeds)) if isinstance(seeds, int) else seeds
    request = make_request(folder_of(model), tasks, preset, explicit, seeds=numbers, **fields)
    return TaskModel(stage(session, request).path)
