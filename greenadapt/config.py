"""The settings of every stage: frozen dataclasses whose fields have a default, a range and a help text."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval

from greenadapt.errors import UsageError
from greenadapt.fields import Config, Option, option_fields, parse_bytes, parse_duration, parse_names, parse_numbers

AlignMethod = Literal["lstsq", "procrustes", "identity", "random"]
RecipeName = Literal["map", "norm", "pieces", "form"]
RowChoice = Literal[RecipeName, "auto"]
OovRule = Literal["base", "greedy"]
RandomScaleName = Literal["bert", "matched"]
TaskName = Literal["ner", "classification", "qa"]
Decoding = Literal["viterbi", "argmax"]
Mix = Literal["sample", "fixed", "batch", "both", "base", "expanded"]
Pool = Literal["mean", "base", "expanded"]
EnsembleRule = Literal["logits", "probabilities"]
Keep = Literal["last", "best"]
Precision = Literal["auto", "float32", "bfloat16"]
Quantize = Literal["none", "int8"]
LabelKind = Literal["auto", "classes", "numbers"]
WordUnit = Literal["whitespace", "punct"]
Strategy = Literal["single", "multiple", "gated", "chunk", "logits"]
MemoryVariant = Literal["memory", "cross", "gate"]
GateInit = Literal["zero", "normal"]
SampleBy = Literal["line", "paragraph", "document"]
Sampling = Literal["round-robin", "proportional", "square-root", "anneal"]

MINILM, MPNET = "minilm", "mpnet"
"""Models with a short name; the first can be installed as a package."""


def check(condition: bool, message: str) -> None:
    """Raise ``UsageError`` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise UsageError(message)


def paper_values(config: type) -> dict[str, Any]:
    """The values of a configuration's fields in the paper that its stage implements."""
    papers = {name: field.option.paper for name, field in option_fields(config).items()}
    return {name: value for name, value in papers.items() if value is not None}


def with_paper(config: Any) -> Any:
    """``config`` with the paper's values of fields that the caller did not set."""
    return type(config)(**{**paper_values(type(config)), **{name: getattr(config, name) for name in config.explicit}})


Count = Annotated[int, Ge(1)]
NumberOfSeeds = Annotated[int, Interval(ge=1, le=1000)]
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
Share = Annotated[float, Interval(ge=0, le=1)]
HeldOutShare = Annotated[float, Interval(ge=0, lt=1)]
Positive = Annotated[float, Gt(0)]
MIN_ALPHA = 1e-4
"""The learning rate of word vectors at the end of their training."""
Rate = Annotated[float, Interval(ge=MIN_ALPHA, le=100)]
NotNegative = Annotated[float, Ge(0)]
Length = Annotated[int, Ge(16)]


class Panel(StrEnum):
    """The panels that group options in the help."""

    TEXT = "Text"
    VECTORS = "Word vectors"
    MAP = "Map"
    ROWS = "New rows"
    DATA = "Data"
    NER = "NER"
    CLASSES = "Classification"
    TRAINING = "Training"
    ADAPTERS = "Many tasks on one encoder (PALs)"
    QUESTIONS = "Questions"
    SEARCH = "Search"
    ANSWERS = "Answers"
    NO_ANSWER = "Questions without an answer"
    ADDRESS = "Address"
    LIMITS = "Limits"
    MACHINE = "Machine"
    OUTPUT = "Output and settings"
    ADVANCED = "Research"
    """Options that few users change, such as the settings of the papers; the last panel."""


advanced = partial(Option, panel=Panel.ADVANCED)


_MAX_TOKENS = Option("Pieces in the model at once; lower it if memory runs out.", panel=Panel.MACHINE)


@dataclass(frozen=True)
class SessionOptions(Config):
    """Where a command keeps its results, and which resources it may use."""

    PANEL = Panel.MACHINE
    workspace: Annotated[
        Path | None,
        Option("Folder of all results.", panel=Panel.OUTPUT, unset="$GREENADAPT_HOME, else the user's data folder"),
    ] = None
    out: Annotated[
        Path | None, Option("A new folder for the result, instead of the workspace.", "--out -o", panel=Panel.OUTPUT)
    ] = None
    download: Annotated[
        bool, Option("Download a corpus from the publisher if needed.", "--download", panel=Panel.TEXT)
    ] = False
    workers: Annotated[
        Count | None, Option("Processes or threads. With 1, runs are bit-for-bit reproducible.", unset="one per core")
    ] = None
    max_memory: Annotated[
        Count, Option("Refuse to use more memory than this, such as 500M or 8G.", parse=parse_bytes, default_text="4G")
    ] = 4 << 30
    max_time: Annotated[
        Positive | None,
        Option(
            "Stop at a checkpoint after this long, such as 45m or 6h, with exit code 75; the same command resumes.",
            parse=parse_duration,
        ),
    ] = None
    """Seconds."""
    cluster: Annotated[
        str | None,
        Option(
            "Work on the nodes of a Ray cluster: HOST:PORT or ray://HOST:PORT of its head, auto for one that runs "
            "here, or local to start one on this machine."
        ),
    ] = None
    gpus_each: Annotated[
        Share | None,
        Option(
            "With --cluster: GPUs of each part of the work; with 0.25, four share one.",
            unset="1 if the cluster has GPUs, else 0",
            needs="--cluster",
        ),
    ] = None
    max_tokens: Annotated[Count, _MAX_TOKENS] = 4096
    """In training it changes the weights by rounding alone, and by dropout, which depends on the shape of inputs."""


_HELD_OUT = Option("Share of the documents to hold out for evaluation.", panel=Panel.TEXT, unset="0")
SAMPLE_BY = Option(
    "What a document is in plain text: a line, a paragraph (up to an empty line), or the whole file (document).",
    panel=Panel.TEXT,
    unset="line",
)


@dataclass(frozen=True)
class CorpusConfig(Config):
    """How a corpus is prepared: duplicates, broken lines, and the held-out share."""

    keep_duplicates: bool = False
    strict: bool = False
    """Refuse broken UTF-8 instead of counting and replacing it."""
    lenient: bool = False
    """Skip and count broken JSON lines and rows of tables instead of refusing the file."""
    heldout: Annotated[HeldOutShare, _HELD_OUT] = 0.0
    """Share of the documents to hold out; a document's content decides whether it is."""
    seed: Annotated[Seed, Option("Random seed.")] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check(not (self.strict and self.lenient), "--strict and --lenient exclude each other: leave out one of them")


@dataclass(frozen=True)
class TextOptions(Config):
    """How to read a corpus; ``None`` is the default."""

    PANEL = Panel.TEXT
    format: Annotated[str | None, Option("Format of a text file, if its name does not say.")] = None
    fields: Annotated[
        tuple[str, ...],
        Option("Field (JSON lines) or column (CSV, TSV) that holds text; repeatable.", "--field", unset="text"),
    ] = ()
    sample_by: Annotated[SampleBy | None, SAMPLE_BY] = None
    keep_duplicates: Annotated[
        bool | None,
        advanced("Keep or drop exact duplicates of documents.", "--keep-duplicates/--drop-duplicates", unset="drop"),
    ] = None
    strict: Annotated[
        bool | None,
        advanced(
            "Refuse broken UTF-8, or skip even broken JSON lines and rows of tables.",
            "--strict/--lenient",
            unset="replace broken UTF-8, refuse broken JSON and rows",
        ),
    ] = None
    heldout: Annotated[HeldOutShare | None, _HELD_OUT] = None

    def of_recipe(self) -> dict[str, Any]:
        """The settings of the recipe that the user set."""
        return self._set(format=self.format, fields=self.fields or None, sample_by=self.sample_by)

    def of_config(self) -> dict[str, Any]:
        """The settings of ``CorpusConfig`` that the user set."""
        lenient = None if self.strict is None else not self.strict
        return self._set(
            keep_duplicates=self.keep_duplicates, strict=self.strict, lenient=lenient, heldout=self.heldout
        )

    @staticmethod
    def _set(**settings: Any) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if value is not None}


@dataclass(frozen=True)
class W2VConfig(Config):
    """CBOW with negative sampling; the defaults are gensim's and word2vec's (arXiv 2004.03354, appendix)."""

    dim: Annotated[Count | None, advanced("Dimension of the vectors.", unset="the model's embedding size")] = None
    window: Annotated[Count, advanced("Context words on each side.")] = 5
    negative: Annotated[Count, advanced("Negative samples per word.")] = 5
    sample: Annotated[NotNegative, advanced("Downsample words above this relative frequency; 0: never.")] = 1e-3
    min_count: Annotated[Count, Option("Ignore words that occur less often.", panel=Panel.VECTORS)] = 5
    max_vocab: Annotated[Count | None, Option("Keep only this many words, the most frequent.", panel=Panel.VECTORS)] = (
        None
    )
    epochs: Annotated[
        Count,
        Option(
            "Passes over the corpus.",
            panel=Panel.VECTORS,
            paper=5,
            unset="20 for a million words or less, 10 for nine million, 5 from 64 million on",
        ),
    ] = 5
    alpha: Annotated[Rate, advanced("Initial learning rate.", paper=0.025, unset="0.05")] = 0.025
    seed: Annotated[Seed, Option("Random seed.")] = 1
    workers: Count = 1


CHOSEN_FOR_VECTORS = frozenset({"epochs", "alpha"})
"""The settings of ``W2VConfig`` that ``w2v`` and ``adapt`` choose if the user does not set them."""


@dataclass(frozen=True)
class AlignConfig(Config):
    """How the map from word vectors to wordpiece vectors is fitted."""

    method: Annotated[AlignMethod, Option("How the map is fitted.", panel=Panel.MAP, paper="lstsq")] = "lstsq"
    heldout: Annotated[float, Interval(gt=0, lt=1)] = 0.1
    """Share of the overlapping words that the diagnostics hold out; the final map is fitted on all of them."""
    random_scale: Annotated[
        RandomScaleName,
        advanced(
            "Rows of --method random: N(0, 0.02), as BERT is initialised, or the mean and deviation of the base "
            "model's rows.",
            needs="--method random",
        ),
    ] = "bert"
    seed: Annotated[Seed, Option("Random seed.")] = 1


@dataclass(frozen=True)
class ExpandConfig(Config):
    """Which words get a row, how the row is computed, and how the checkpoint is written."""

    PANEL = Panel.ROWS
    rows: Annotated[
        RowChoice,
        Option(
            "How a new row is computed: the mapped vector (map), scaled to the norm of the base rows (norm), the mean "
            "of the word's pieces (pieces), a fit on vector, count and pieces (form), or the best of norm, pieces and "
            "form on held-out words (auto).",
            paper="map",
        ),
    ] = "form"
    oov: Annotated[
        OovRule,
        advanced(
            "How to split words without a row: as the base model does, or by longest match over all entries.",
            paper="base",
        ),
    ] = "base"
    replace_all: Annotated[
        bool,
        advanced(
            "With --rows map, also replace the rows of words that the model already has (an ablation in the paper, and "
            "worse).",
            needs="--rows map",
        ),
    ] = False
    max_words: Annotated[Count | None, Option("Add at most this many words, the most frequent.")] = None
    min_count: Annotated[Count, Option("Add only words that occur at least this often.")] = 1
    restrict_to: Annotated[
        tuple[str, ...], Option("Add only words that occur in this file; repeatable.", is_path=True)
    ] = ()
    """Does not change the tokenization of these files with ``oov="base"``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            not (self.restrict_to and self.oov == "greedy"),
            "--restrict-to changes other words under --oov greedy: use it with --oov base",
        )


@dataclass(frozen=True)
class AssessConfig(Config):
    """How many folds and seeds ``assess --train`` measures."""

    folds: Annotated[
        Annotated[int, Ge(2)],
        Option("Number of folds of the labelled examples; each is held out once.", panel=Panel.TRAINING),
    ] = 3
    seeds: Annotated[NumberOfSeeds, Option("Number of models to train per fold.", panel=Panel.TRAINING)] = 1
    seed: Annotated[
        Seed, Option("First seed of the models, and the seed that draws the folds.", panel=Panel.TRAINING)
    ] = 0


@dataclass(frozen=True)
class TableFormat(Config):
    """The format of a CSV or TSV file that its suffix does not determine."""

    columns: tuple[str, ...] = ()
    """Names of the columns of a file without a header; empty: the first line names them."""
    quotes: bool | None = None
    """Whether quotation marks enclose cells; ``None``: in CSV, and in a TSV file that quotes throughout."""
    skip_broken: bool = False
    """Skip and count rows with a different number of columns instead of refusing the file."""


FIELDS_OF_A_TASK: dict[TaskName, tuple[str, ...]] = {
    "classification": (
        *("text_fields", "label_field", "label_kind", "label_range", "table"),
        *("head_layers", "head_dropout"),
    ),
    "ner": ("chunk", "gold_chunks", "x_class", "decoding", "columns"),
    "qa": ("negatives", "stride", "max_question", "max_answer_pieces"),
}
"""The fields of ``TaskConfig`` that only this task reads."""


@dataclass(frozen=True)
class TaskConfig(Config):
    """The examples of a task, and how its model reads them; raises ``UsageError`` for a setting of another task."""

    task: Annotated[TaskName, Option("Kind of task.")] = "ner"
    text_fields: Annotated[
        tuple[str, ...], Option("Field or column of the text; twice for a pair.", "--text-field", panel=Panel.CLASSES)
    ] = ("text",)
    label_field: Annotated[str, Option("Field or column of the label.", panel=Panel.CLASSES)] = "label"
    label_kind: Annotated[
        LabelKind,
        Option(
            "Predict classes or numbers; auto: numbers if labels have decimals; up to 20 whole ones (1.0) are classes.",
            "--labels",
            panel=Panel.CLASSES,
        ),
    ] = "auto"
    label_range: tuple[float, float] | None = None
    """Classification: the range of the numbers to predict. The model learns them scaled to 0 to 1, and predictions are
    clipped to the range; ``None``: no scaling and no clipping."""
    table: TableFormat | None = None
    """Classification: the format of CSV and TSV files; ``None``: their suffixes determine it."""
    head_layers: Annotated[
        Annotated[int, Interval(ge=1, le=2)],
        advanced("Layers of the head: 1, or 2, with a linear layer and tanh, which only greenadapt loads."),
    ] = 1
    head_dropout: Annotated[HeldOutShare | None, advanced("Dropout of the head.", unset="the model's own")] = None
    chunk: Annotated[
        Count | None,
        Option("Read at most this many words at once.", panel=Panel.NER, paper=30, unset="whole sentences"),
    ] = 30
    """``None`` reads whole sentences."""
    gold_chunks: Annotated[bool, advanced("Also split test sentences by their gold tags, as in the paper.")] = False
    x_class: Annotated[
        bool, advanced("Label [CLS], [SEP] and pieces inside a word with a class of its own (BioBERT).")
    ] = False
    decoding: Annotated[
        Decoding,
        advanced(
            "The most probable labels of a sentence whose entities begin with B- (viterbi), or of each word (argmax).",
            paper="argmax",
            unset="viterbi",
        ),
    ] = "argmax"
    columns: Annotated[
        tuple[str, ...],
        Option(
            "Names of the columns of CoNLL files, such as `_,word,tag,_`: which is the word, and which the tag.",
            panel=Panel.NER,
            parse=parse_names,
            unset="as the files show",
        ),
    ] = ()
    negatives: Annotated[
        Annotated[int, Ge(0)],
        advanced("Windows without the answer to train on per question, in addition to all windows with it."),
    ] = 2
    stride: Annotated[
        Count | None,
        advanced(
            "Pieces between the starts of two windows, as in BERT's code for SQuAD.",
            unset="half of each window is searched, the rest is context",
        ),
    ] = None
    max_question: Annotated[
        Count | None, advanced("Read at most this many pieces of a question.", unset="as many as the model reads")
    ] = None
    max_answer_pieces: Annotated[
        Count | None,
        advanced("Longest answer, in pieces of the base tokenization.", unset="no limit but 500 characters"),
    ] = None
    max_length: Annotated[
        Length | None,
        Option("Maximum number of pieces of an input.", panel=Panel.TRAINING, unset="the model's maximum"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check(len(self.text_fields) in (1, 2), f"--text-field is given {len(self.text_fields)} times, need 1 or 2")
        n_words, n_tags = self.columns.count("word"), self.columns.count("tag")
        check(
            not self.columns or (n_words == 1 and n_tags <= 1),
            f"--columns is {','.join(self.columns)}, must have word once and tag at most once, such as _,word,tag",
        )
        if self.label_range is not None:
            low, high = self.label_range
            check(low < high, f"label-range is {low} to {high}: need low < high")
            check(self.label_kind != "classes", "label-range is for numbers, but labels are classes")
        options = option_fields(TaskConfig)
        for task, names in FIELDS_OF_A_TASK.items():
            for name in names if task != self.task else ():
                option = options[name].option_name if name in options else name
                is_set = getattr(self, name) != getattr(TaskConfig, name)
                check(not is_set, f"{option} belongs to --task {task}, this is {self.task}")

    def settings(self) -> dict[str, Any]:
        """The fields as JSON."""
        return asdict(self)


CHOSEN_FOR_ENTITIES: dict[str, Any] = {"chunk": None, "decoding": "viterbi"}
"""The settings of ``TaskConfig`` that ``finetune`` chooses for a NER task if the user does not set them."""

_PRECISION = Option(
    "auto: bfloat16 where the GPU (in training also the CPU) computes in it, else float32.", panel=Panel.MACHINE
)


@dataclass(frozen=True)
class TrainConfig(Config):
    """How a task's model is trained; ``PAPER`` has the settings of arXiv 2004.03354."""

    PANEL = Panel.TRAINING
    mix: Annotated[
        Mix,
        Option(
            "Tokenization to train on: both; base; expanded; or one at random for each example in each epoch (sample), "
            "once (fixed) or for each batch (batch).",
            paper="sample",
            unset="both for added words, else sample",
        ),
    ] = "sample"
    pool: Annotated[
        Pool,
        Option(
            "Predict by the mean of both tokenizations, or by base or expanded alone.",
            paper="mean",
            unset="base or expanded if --mix is, else mean",
        ),
    ] = "mean"
    word_vectors: Annotated[
        bool,
        Option(
            "Also read a WordPiece model's word vectors.",
            "--word-vectors/--no-word-vectors",
            panel=Panel.NER,
            unset="for NER",
        ),
    ] = False
    epochs: Annotated[
        Count,
        Option(
            "Passes over the training data.",
            paper=100,
            unset="as many as make 600 steps (1,200 for a hidden size of 768), and 4 readings of each example",
        ),
    ] = 10
    max_steps: Annotated[Count | None, advanced("Stop after at most this many optimizer steps.")] = None
    learning_rate: Annotated[
        Positive,
        Option(
            "Peak learning rate.",
            "--learning-rate --lr",
            paper=1e-5,
            unset="0.0002 for a hidden size of 384, 0.0001 for 768",
        ),
    ] = 5e-5
    warmup: Annotated[Share, advanced("Share of the steps with a rising learning rate; it then falls to 0.")] = 0.1
    batch_size: Annotated[
        Count,
        Option(
            "Examples per optimizer step (NER: chunks); --mix both counts both tokenizations.", paper=32, unset="16"
        ),
    ] = 32
    weight_decay: Annotated[NotNegative, advanced("Decoupled weight decay, except on biases and layer norms.")] = 0.0
    precision: Annotated[Precision, _PRECISION] = "auto"
    keep: Annotated[
        Keep,
        Option("Keep the last epoch's model, or the best on --dev.", paper="last", unset="best with --dev, else last"),
    ] = "last"
    patience: Annotated[Count | None, Option("Stop after this many epochs without a better score on --dev.")] = None


PAPER: dict[str, Any] = paper_values(TrainConfig)
"""Settings of ``TrainConfig`` in arXiv 2004.03354."""
CHOSEN_FOR_TRAINING = frozenset({"mix", "word_vectors", "epochs", "learning_rate", "batch_size", "keep"})
"""The settings of ``TrainConfig`` that ``finetune`` chooses for a single task if the user does not set them."""


@dataclass(frozen=True)
class MemoryConfig(Config):
    """How the domain model attends to the states of a general model (G-MAP, arXiv 2212.03613)."""

    NEEDS = "--memory"
    strategy: Annotated[
        Strategy,
        Option(
            "Which states of the general model reach which layers; logits: its logits are added instead.",
            panel=Panel.ADVANCED,
            paper="chunk",
        ),
    ] = "chunk"
    attention: Annotated[
        MemoryVariant,
        advanced(
            "How layers attend to memory: one softmax over text and memory, or one of the paper's two other variants.",
            "--memory-attention",
            paper="memory",
        ),
    ] = "memory"
    layers: Annotated[
        tuple[Count, ...],
        advanced(
            "Layers of the domain model that see memory, such as 6,12, counted from 1.",
            "--memory-layers",
            parse=parse_numbers,
            unset="the strategy's",
        ),
    ] = ()
    source: Annotated[
        str,
        advanced(
            "States of the general model that are the memory: paper, reference (one layer lower, as in the released "
            "code), or a range for each layer, such as 1-6,7-12, where 0 is the embedding layer.",
            "--memory-source",
        ),
    ] = "paper"
    gate_init: Annotated[GateInit, advanced("Initial gates: zero (the mean of its layers), or N(0, 0.02).")] = "zero"
    project: Annotated[
        bool,
        advanced("Learn a linear map from the general model's hidden size to the domain model's.", "--memory-project"),
    ] = False
    frozen: Annotated[
        bool, Option("Also train the general model.", "--unfreeze-memory", panel=Panel.ADVANCED, negated=True)
    ] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            len(set(self.layers)) == len(self.layers) and list(self.layers) == sorted(self.layers),
            f"--memory-layers is {','.join(map(str, self.layers))}, must be ascending, without repetition",
        )
        if self.strategy == "logits":
            for name in ("attention", "layers", "source"):
                is_set = getattr(self, name) != getattr(MemoryConfig, name)
                check(not is_set, f"--memory-{name} has no effect with --strategy logits: leave it out")
        has_gates = self.strategy in ("gated", "chunk")
        check(
            has_gates or self.gate_init == MemoryConfig.gate_init,
            f"--gate-init has no effect with --strategy {self.strategy}: leave it out",
        )


@dataclass(frozen=True)
class SamplingConfig(Config):
    """How multitask training chooses the task of each step (arXiv 1902.02671, section 4.1)."""

    PANEL = Panel.ADAPTERS
    sampling: Annotated[
        Sampling,
        Option(
            "How the task of a step is chosen: in turn (round-robin), proportional to its examples or to their "
            "square-root, or from proportional to equal shares (anneal).",
            paper="anneal",
        ),
    ] = "anneal"
    """A task is drawn in proportion to N^a for its N training examples; a is 1 (proportional), 0.5 (square-root), or
    falls from 1 in the first epoch to 0.2 in the last (anneal)."""
    steps_per_epoch: Annotated[
        Count | None,
        advanced("Steps per epoch, of all tasks together.", paper=2400, unset="the number of batches of all tasks"),
    ] = None


PALS_PAPER: dict[str, Any] = {"epochs": 25, "learning_rate": 2e-5, "weight_decay": 0.01}
"""Settings of ``TrainConfig`` in arXiv 1902.02671."""


@dataclass(frozen=True)
class ReadingOptions(Config):
    """How trained models read their input."""

    pool: Annotated[
        Pool | None,
        Option("Logits to predict with: the mean over both tokenizations, or those of one.", unset="as trained"),
    ] = None
    margin: Annotated[
        Share | None,
        Option(
            "With --pool mean, read the base tokenization only where the probabilities of the two best labels or "
            "answers in the expanded tokenization differ by less than this; 1 reads everything twice.",
            unset="0.9 for predicted labels; 1 for answers, tasks on a shared encoder, and evaluate",
        ),
    ] = None
    seed: Annotated[int | None, Option("Seed of the model to predict with.", unset="the first in the folder")] = None
    precision: Annotated[Precision, _PRECISION] = TrainConfig.precision
    max_tokens: Annotated[Count, _MAX_TOKENS] = SessionOptions.max_tokens
    max_length: Annotated[
        Length | None, Option("Length of a window in pieces.", unset="as trained, else the model's maximum")
    ] = None
    memory: Annotated[
        str | None,
        Option("Folder or hub id of the general model used as memory, if it has moved.", unset="as in training"),
    ] = None


@dataclass(frozen=True)
class CompileConfig(Config):
    """How a model is compiled."""

    quantize: Annotated[Quantize, Option("Data type of the matrix products: float32 (none) or int8.")] = "none"
    seed: Annotated[int | None, Option("Seed of the model to compile.", unset="the first in the folder")] = None
    task: Annotated[str | None, Option("Task of a multitask model to compile.")] = None


@dataclass(frozen=True)
class QaConfig(Config):
    """Which answers are predicted; ``None``: as in training, else as in the paper."""

    top: Annotated[int, Option("Answers to each question.", panel=Panel.ANSWERS)] = 1
    n_best: Annotated[Count, advanced("Number of spans in the softmax of the probabilities.")] = 20
    word_unit: Annotated[
        WordUnit | None,
        advanced(
            "Where answers may begin and end: at white space, or also at punctuation.", unset="as trained, else punct"
        ),
    ] = None
    max_answer_chars: Annotated[
        Count | None, advanced("Longest answer, in characters.", unset="as trained, else 500")
    ] = None
    no_answer: Annotated[
        bool | None,
        Option(
            'Allow "no answer", as in SQuAD 2, or always answer.',
            "--no-answer/--always-answer",
            panel=Panel.NO_ANSWER,
            unset="as trained, else always answer",
        ),
    ] = None
    null_threshold: Annotated[
        float | None,
        Option(
            'Margin by which "no answer" must beat the best answer.', panel=Panel.NO_ANSWER, unset="as trained, else 0"
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check(1 <= self.top <= self.n_best, f"--top is {self.top}, must be from 1 to --n-best, {self.n_best}")
        check(
            self.null_threshold is None or self.no_answer is not False,
            "--null-threshold has no effect with --always-answer: leave out one of them",
        )


@dataclass(frozen=True)
class IndexConfig(Config):
    """How documents are indexed."""

    paragraph_chars: Annotated[Annotated[int, Ge(100)], Option("Longest paragraph, in characters.")] = 1000


@dataclass(frozen=True)
class RetrievalConfig(Config):
    """In which paragraphs of an index, or of its context, a question is answered."""

    passages: Annotated[
        Count | None,
        Option(
            "Number of paragraphs to read: the best of the index, or else the best of each text.",
            panel=Panel.SEARCH,
            unset="10 of an index, all of a text",
        ),
    ] = None

    @property
    def n_passages(self) -> int:
        return 10 if self.passages is None else self.passages


@dataclass(frozen=True)
class ServeConfig(Config):
    """Where a server listens, and the size of a request."""

    PANEL = Panel.LIMITS
    host: Annotated[
        str, Option("Address to listen on; 0.0.0.0 accepts requests from other machines.", panel=Panel.ADDRESS)
    ] = "127.0.0.1"
    port: Annotated[
        Annotated[int, Interval(ge=0, le=65535)], Option("Port to listen on; 0 takes a free one.", panel=Panel.ADDRESS)
    ] = 8000
    allow_hosts: Annotated[
        tuple[str, ...],
        Option(
            "Host name that requests may use for the server, such as that of a proxy; repeatable.",
            "--allow-host",
            panel=Panel.ADDRESS,
            unset="on a loopback address localhost and the address, else any",
        ),
    ] = ()
    workers: Annotated[
        Count,
        Option("Processes, each with its copy of the models. A process that dies is replaced.", panel=Panel.MACHINE),
    ] = 1
    max_body: Annotated[Count, Option("Largest request, such as 1M.", parse=parse_bytes, default_text="1M")] = 1 << 20


@dataclass(frozen=True)
class PretrainConfig(Config):
    """The inputs and masks of masked language modeling; ``GMAP_PRETRAINING`` has the settings of the training."""

    max_length: Annotated[
        Length | None,
        Option(
            "Maximum sequence length in base pieces, special tokens included.",
            panel=Panel.TEXT,
            unset="128, or the model's maximum if less",
        ),
    ] = None
    """An abstract has about 128 pieces; an input of 512 costs at least four times as much."""
    heldout: Annotated[
        HeldOutShare, Option("Share of the documents to hold out for evaluation.", panel=Panel.TEXT, paper=0.3)
    ] = 0.3
    mask_share: Annotated[Annotated[float, Interval(gt=0, lt=1)], advanced("Share of the pieces to predict.")] = 0.15
    head_steps: Annotated[
        Annotated[int, Ge(0)], advanced("Steps that first train only the head, if the checkpoint has none.")
    ] = 200
    seed: Annotated[Seed, Option("Random seed.", panel=Panel.TRAINING)] = 0


GMAP_PRETRAINING: dict[str, Any] = {"epochs": 5, "learning_rate": 4e-5}
"""Settings of ``TrainConfig`` in arXiv 2212.03613, table 6 (5 to 10 epochs there)."""


AdapterName = Literal[
    "pals", "low-rank", "attention", "ffn", "lhuc", "houlsby", "houlsby-pals", "top-attention", "top-ffn", "top-ffn-2",
    "bert-layer", "none",
]  # fmt: skip
Placement = Literal["parallel", "serial"]
AdapterForm = Literal["paper", "reference"]
AdapterInit = Literal["paper", "zero"]


@dataclass(frozen=True)
class AdapterKind:
    """Properties of a kind of adapter."""

    is_in_layers: bool = True
    """Whether it is in layers of the encoder; the other kinds but ``none`` are on top of it."""
    paper_size: int | None = None
    """Width d_s of the projected states in the paper, whose model has a hidden size of 768; ``None``: no projection."""
    has_heads: bool = False
    """Whether it has attention."""
    has_forms: bool = False
    """Whether the paper's released code differs from the paper."""
    can_be_serial: bool = False
    """Whether it may also follow its layer, instead of running parallel to it."""
    has_stack: bool = False
    """Whether it is a stack of layers on top."""
    can_be_shared: bool = False
    """Whether all tasks may share its projections, which the layers of a task always share."""


ADAPTERS: dict[AdapterName, AdapterKind] = {
    "none": AdapterKind(is_in_layers=False),
    "pals": AdapterKind(paper_size=204, has_heads=True, has_forms=True, can_be_serial=True, can_be_shared=True),
    "low-rank": AdapterKind(paper_size=100, has_forms=True, can_be_serial=True),
    "attention": AdapterKind(paper_size=84, has_heads=True, can_be_serial=True, can_be_shared=True),
    "ffn": AdapterKind(paper_size=204, can_be_serial=True, can_be_shared=True),
    "lhuc": AdapterKind(),
    "houlsby": AdapterKind(paper_size=50, has_forms=True),
    "houlsby-pals": AdapterKind(paper_size=156, has_heads=True, has_forms=True),
    "top-attention": AdapterKind(is_in_layers=False, paper_size=204, has_heads=True, has_stack=True),
    "top-ffn": AdapterKind(is_in_layers=False, paper_size=204, has_stack=True),
    "top-ffn-2": AdapterKind(is_in_layers=False, paper_size=204, has_stack=True),
    "bert-layer": AdapterKind(is_in_layers=False),
}
"""Name → kind."""


@dataclass(frozen=True)
class AdapterConfig(Config):
    """What each task adds to a shared encoder (BERT and PALs, arXiv 1902.02671)."""

    PANEL = Panel.ADAPTERS
    adapter: Annotated[AdapterName, Option("Adapter that each task adds to the encoder; none: only a head.")] = "pals"
    """- ``pals``: projected attention, with projections shared by all layers.
    - ``low-rank``: low-rank layers.
    - ``attention``, ``ffn``: narrow attention or feed-forward layers, with their own or shared projections.
    - ``lhuc``: a factor for each element.
    - ``houlsby``: two bottlenecks per layer; in ``houlsby-pals`` the second is a PAL.
    - ``top-attention``, ``top-ffn``, ``bert-layer``: layers on top of the encoder.
    - ``top-ffn-2``: like ``top-ffn``, with two hidden layers.
    - ``none``: only heads."""
    size: Annotated[
        Count | None,
        Option(
            "Width of the adapters.", "--adapter-size", unset="the paper's, in proportion to the model's hidden size"
        ),
    ] = None
    layers: Annotated[
        str, advanced("Layers with adapters: all, the top or bottom half, or numbers such as 1,3, counted from 1.")
    ] = "all"
    placement: Annotated[
        Placement,
        advanced("Parallel to the layer, or after it with an additional layer norm (much worse in the paper)."),
    ] = "parallel"
    form: Annotated[
        AdapterForm,
        advanced(
            "As in the paper, or as in its released code (GELU after the projections, six heads).", "--adapter-form"
        ),
    ] = "paper"
    init: Annotated[
        AdapterInit,
        advanced(
            "N(0, 0.02), or zero for the up projections, so that training starts from the plain model.",
            "--adapter-init",
        ),
    ] = "paper"
    top_layers: Annotated[Count, advanced("Number of layers of --adapter top-…; 3 and 12 were worse in the paper.")] = 6
    own_pooler: Annotated[
        bool, advanced("Give each classification task its own copy of the model's pooler.", "--own-pooler")
    ] = False
    share_projections: Annotated[
        bool,
        advanced(
            "Share the adapters' down and up projections between all tasks (worse in the paper).", "--share-projections"
        ),
    ] = False
    freeze_encoder: Annotated[bool, Option("Train only adapters and heads.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self.kind
        has_size = kind.paper_size is not None
        can_be_zero = has_size and kind.is_in_layers and self.placement == "parallel"
        for option, is_set, is_possible in (
            ("--adapter-size", self.size is not None, has_size),
            ("--layers", self.layers != "all", kind.is_in_layers),
            ("--placement serial", self.placement != "parallel", kind.can_be_serial),
            ("--adapter-form reference", self.form != "paper", kind.has_forms),
            ("--adapter-init zero", self.init != "paper", can_be_zero),
            ("--top-layers", self.top_layers != AdapterConfig.top_layers, kind.has_stack),
            ("--share-projections", self.share_projections, kind.can_be_shared),
        ):
            check(not is_set or is_possible, f"{option} does not go with --adapter {self.adapter}: leave it out")

    @property
    def kind(self) -> AdapterKind:
        return ADAPTERS[self.adapter]
