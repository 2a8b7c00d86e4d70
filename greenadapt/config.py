"""What every stage can be asked for: one frozen dataclass a stage, with its defaults."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, Literal, get_args

from greenadapt.errors import UsageError

AlignMethod = Literal["lstsq", "procrustes", "ridge", "identity", "random"]


RowRecipe = Literal["map", "norm", "pieces", "blend"]


OovRule = Literal["base", "greedy"]


RandomScaleName = Literal["bert", "matched"]


DType = Literal["float32", "float16", "bfloat16"]


TaskName = Literal["ner", "classification", "qa"]


Mix = Literal["sample", "fixed", "batch", "both", "base", "expanded"]


Pool = Literal["mean", "base", "expanded"]


EnsembleRule = Literal["logits", "probabilities"]


Keep = Literal["last", "best"]


Precision = Literal["auto", "float32", "bfloat16"]


LabelKind = Literal["auto", "classes", "numbers"]


WordUnit = Literal["whitespace", "punct"]


Strategy = Literal["single", "multiple", "gated", "chunk", "logits"]


MemoryVariant = Literal["memory", "cross", "gate"]


GateInit = Literal["zero", "normal"]


ResolvedEngine = Literal["fast", "gensim"]


EngineName = Literal["auto", ResolvedEngine]


Gradient = Literal["word2vec", "corrected"]


Sampling = Literal["round-robin", "proportional", "square-root", "anneal"]


def check(condition: bool, message: str) -> None:
    """Raise ``UsageError`` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise UsageError(message)


def _check_seed(seed: int) -> None:
    check(0 <= seed < 2**32, f"--seed is {seed}, must be from 0 to {2**32 - 1}")


@dataclass(frozen=True)
class TextLimits:
    """The longest document and word that a corpus may have.

    What is longer is no text, such as an archive of one endless line, and would take memory without bounds. It is
    refused, so the limits decide nothing about a result.
    """

    max_document_bytes: int = 128 << 20
    """Of a line of plain text, a record or an article, in its file's format."""
    max_word_chars: int = 1_000_000
    """Characters between two spaces."""
    option: str = "--max-document-bytes"
    """What raises the first of them; another one where ``within`` lowered it."""

    def __post_init__(self) -> None:
        for name in ("max_document_bytes", "max_word_chars"):
            check(getattr(self, name) >= 1, f"--{name.replace('_', '-')} is {getattr(self, name)}, must be at least 1")

    def within(self, max_memory: int) -> "TextLimits":
        """These, with documents that can be read in ``max_memory`` bytes."""
        share = max_memory // _MEMORY_OF_A_DOCUMENT_BYTE
        return (
            replace(self, max_document_bytes=share, option="--max-memory") if share < self.max_document_bytes else self
        )


_MEMORY_OF_A_DOCUMENT_BYTE = 16
"""Bytes of memory, at most, for a byte of a document that is being read and split."""


@dataclass(frozen=True)
class CorpusConfig:
    """How documents become words."""

    keep_duplicates: bool = False
    strict: bool = False
    """Refuse broken UTF-8 instead of counting and replacing it."""
    lenient: bool = False
    """Skip and count lines that are no JSON object instead of refusing the file."""
    heldout: float = 0.0
    """Share of the documents kept out of training, to measure on; chosen by their content."""
    seed: int = 1

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        check(0 <= self.heldout < 1, f"--heldout is {self.heldout}, must be at least 0 and under 1")
        check(not (self.strict and self.lenient), "--strict and --lenient exclude each other: leave out one of them")


@dataclass(frozen=True)
class W2VConfig:
    """CBOW with negative sampling; the defaults are gensim's and word2vec's (arXiv 2004.03354, appendix)."""

    dim: int | None = None
    """Width of the vectors; ``None`` is the width of the model's embedding."""
    window: int = 5
    negative: int = 5
    sample: float = 1e-3
    ns_exponent: float = 0.75
    min_count: int = 5
    max_vocab: int | None = None
    """Keep at most this many words, the most frequent ones."""
    epochs: int = 5
    alpha: float = 0.025
    min_alpha: float = 1e-4
    cbow_mean: bool = True
    shrink_windows: bool = True
    engine: EngineName = "auto"
    """Our own engine, which trains on chunks of words (needs numba), or gensim's compiled kernel; for ``auto`` see
    ``w2v.resolve_engine``."""
    gradient: Gradient = "word2vec"
    """``engine="fast"``: each word of a context gets the whole gradient of their mean, as in word2vec, or its own share
    of it (arXiv 2012.15332)."""
    seed: int = 1
    workers: int = 1

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        check(-1 <= self.ns_exponent <= 1, f"--ns-exponent is {self.ns_exponent}, must be from -1 to 1")
        check(self.dim is None or self.dim >= 1, f"--dim is {self.dim}, must be at least 1")
        for name in ("window", "negative", "min_count", "epochs", "workers"):
            value = getattr(self, name)
            check(value >= 1, f"--{name.replace('_', '-')} is {value}, must be at least 1")
        check(self.max_vocab is None or self.max_vocab >= 1, f"--max-vocab is {self.max_vocab}, must be at least 1")
        check(self.sample >= 0, f"--sample is {self.sample}, must not be negative")
        check(
            0 < self.min_alpha <= self.alpha,
            f"--min-alpha is {self.min_alpha} and --alpha {self.alpha}: need 0 < min-alpha <= alpha",
        )
        check(
            self.engine != "gensim" or self.gradient == "word2vec",
            f"--gradient {self.gradient} needs --engine fast, this is {self.engine}",
        )
        check(
            self.cbow_mean or self.gradient == "word2vec", "--gradient corrected is of a mean, and there is --cbow-sum"
        )


@dataclass(frozen=True)
class AlignConfig:
    """The map from word vectors to wordpiece vectors."""

    method: AlignMethod = "lstsq"
    ridge: float = 1.0
    """Penalty of ``method="ridge"``, in units of the mean squared singular value of the word vectors."""
    heldout: float = 0.1
    """Share of the overlapping words that the diagnostics hold out; the map is refitted on all of them afterwards."""
    random_scale: RandomScaleName = "bert"
    """Rows of ``method="random"``: N(0, 0.02) as BERT initialises them, or the mean and deviation of the base rows."""
    seed: int = 1

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        check(self.ridge >= 0, f"--ridge is {self.ridge}, must not be negative")
        check(0 < self.heldout < 1, f"AlignConfig.heldout is {self.heldout}, must lie between 0 and 1")


@dataclass(frozen=True)
class ExpandConfig:
    """Which words get a row, what the row is, and how the checkpoint is written."""

    rows: RowRecipe = "map"
    blend: float = 0.5
    """Weight of the mapped vector under ``rows="blend"``; the rest is the mean of the word's own pieces."""
    oov: OovRule = "base"
    replace_all: bool = False
    max_words: int | None = None
    min_count: int = 1
    min_pieces: int = 1
    restrict_to: tuple[str, ...] = ()
    """Only words that occur in these files get a row (exactly equivalent for those files under ``oov="base"``)."""
    dtype: DType | None = None
    """``None`` keeps the checkpoint's own."""

    def __post_init__(self) -> None:
        check(self.max_words is None or self.max_words >= 1, f"--max-words is {self.max_words}, must be at least 1")
        check(self.min_count >= 1, f"--min-count is {self.min_count}, must be at least 1")
        check(self.min_pieces >= 1, f"--min-pieces is {self.min_pieces}, must be at least 1")
        check(0 <= self.blend <= 1, f"--blend is {self.blend}, must lie between 0 and 1")
        check(
            not (self.restrict_to and self.oov == "greedy"),
            "--restrict-to changes other words under --oov greedy: use it with --oov base",
        )


@dataclass(frozen=True)
class TableFormat:
    """How a CSV or TSV is written where it is not as its suffix says."""

    columns: tuple[str, ...] = ()
    """Names of the columns of a file without a header; empty: its first line names them."""
    quotes: bool = True
    """Whether quotation marks enclose fields, or are text like any other character."""
    skip_broken: bool = False
    """Leave rows with another number of columns out, counted, instead of refusing the file."""


_OPTIONS_OF_A_TASK: dict[str, tuple[TaskName, str]] = {
    "text_fields": ("classification", "--text-field"),
    "label_field": ("classification", "--label-field"),
    "label_kind": ("classification", "--labels"),
    "label_range": ("classification", "label-range"),
    "table": ("classification", "columns, quotes and skip-broken"),
    "chunk": ("ner", "--chunk"),
    "gold_chunks": ("ner", "--gold-chunks"),
    "x_class": ("ner", "--x-class"),
    "negatives": ("qa", "--negatives"),
}
"""Fields of ``TaskConfig`` that only one task reads."""


@dataclass(frozen=True)
class TaskConfig:
    """What the examples of a task are, and how its model reads them; a setting of another task is refused."""

    task: TaskName = "ner"
    text_fields: tuple[str, ...] = ("text",)
    """Classification: one field (JSON lines) or column (CSV, TSV), or the two of a pair."""
    label_field: str = "label"
    label_kind: LabelKind = "auto"
    """Classification: whether labels are classes or numbers to be predicted; ``auto`` takes numbers with a fraction as
    numbers and all else as classes."""
    label_range: tuple[float, float] | None = None
    """Classification: numbers to be predicted lie between these two; the model learns them as 0 to 1, and what it
    predicts is cut to the range. ``None`` learns them as they are."""
    table: TableFormat | None = None
    """Classification: how CSV and TSV files are written; ``None``: as their suffixes say."""
    chunk: int | None = 30
    """NER: at most this many words are read at once; ``None`` reads whole sentences."""
    gold_chunks: bool = False
    """NER: cut by the gold tags when predicting, too, as the paper's experiments did."""
    x_class: bool = False
    """NER: pieces that begin no word, [CLS] and [SEP] among them, are a class of their own in the loss, as in BioBERT's
    code."""
    negatives: int = 2
    """QA: windows without the answer that each question trains on, beside all windows that hold it."""
    max_length: int | None = None
    """Pieces that the model reads at once, special tokens included; ``None`` is all that the model can."""

    def __post_init__(self) -> None:
        check(len(self.text_fields) in (1, 2), f"--text-field is given {len(self.text_fields)} times, need 1 or 2")
        check(self.chunk is None or self.chunk >= 1, f"--chunk is {self.chunk}, must be at least 1")
        check(self.negatives >= 0, f"--negatives is {self.negatives}, must not be negative")
        check(self.max_length is None or self.max_length >= 16, f"--max-length is {self.max_length}, need at least 16")
        if self.label_range is not None:
            low, high = self.label_range
            check(isfinite(low) and isfinite(high) and low < high, f"label-range is {low} to {high}: need low < high")
            check(self.label_kind != "classes", "label-range is for numbers, and labels are to be classes")
        for name, (task, option) in _OPTIONS_OF_A_TASK.items():
            is_given = getattr(self, name) != getattr(TaskConfig, name)
            option = "--whole-sentences" if (name, self.chunk) == ("chunk", None) else option
            check(not is_given or task == self.task, f"{option} belongs to --task {task}, this is {self.task}")


@dataclass(frozen=True)
class TrainConfig:
    """How a task's model is trained and used; ``PAPER`` has the settings of arXiv 2004.03354."""

    mix: Mix = "sample"
    """Which tokenization a training example is read in: a fair coin for each example and epoch (``sample``), for each
    example once (``fixed``), for each batch, both, or always the one."""
    pool: Pool = "mean"
    """Whose logits decide: the mean of both tokenizations, or one of them."""
    epochs: int = 10
    max_steps: int | None = None
    """Stop after this many optimiser steps, whatever ``epochs`` says."""
    learning_rate: float = 5e-5
    warmup: float = 0.1
    """Share of the steps in which the learning rate rises; it falls linearly to zero in the others."""
    batch_size: int = 32
    """Examples an optimiser step."""
    weight_decay: float = 0.0
    """Decoupled; none on biases and layer norms."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    precision: Precision = "auto"
    """``auto`` is bfloat16 on a GPU that has it and float32 elsewhere."""
    keep: Keep = "last"
    """Which epoch's model is kept; ``best`` is that on the development set."""
    patience: int | None = None
    """Stop after this many epochs without a better score on the development set."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            check(getattr(self, name) >= 1, f"--{name.replace('_', '-')} is {getattr(self, name)}, must be at least 1")
        check(self.max_steps is None or self.max_steps >= 1, f"--max-steps is {self.max_steps}, must be at least 1")
        check(self.learning_rate > 0, f"--learning-rate is {self.learning_rate}, must be above 0")
        check(0 <= self.warmup <= 1, f"--warmup is {self.warmup}, must lie between 0 and 1")
        check(self.weight_decay >= 0, f"--weight-decay is {self.weight_decay}, must not be negative")
        check(self.clip > 0, f"--clip is {self.clip}, must be above 0")
        check(self.patience is None or self.patience >= 1, f"--patience is {self.patience}, must be at least 1")


PAPER = TrainConfig(epochs=100, learning_rate=1e-5)


@dataclass(frozen=True)
class MemoryConfig:
    """How the states of a general model come into the domain model that is trained (G-MAP, arXiv 2212.03613)."""

    strategy: Strategy = "chunk"
    """Which states reach which layers; ``logits`` adds the general model's logits instead (one shared head)."""
    attention: MemoryVariant = "memory"
    """One softmax over the layer's own keys and the memory's, or one of the paper's two other variants."""
    layers: tuple[int, ...] = ()
    """Layers of the domain model that see memory, from 1; empty: the strategy's own."""
    source: str = "paper"
    """Which states of the general model: ``paper``, ``reference`` (one layer lower, as the released code has it), or a
    range for each of the layers, such as ``1-6,7-12``, where 0 is the embeddings' output."""
    gate_init: GateInit = "zero"
    """Gates begin as the mean over their layers, or at N(0, 0.02) as in the released code."""
    project: bool = False
    """Learn a linear map from the general model's width to the domain model's."""
    frozen: bool = True
    """Whether the general model stays as it is."""

    def __post_init__(self) -> None:
        for option, value, kind in (
            ("--strategy", self.strategy, Strategy),
            ("--memory-attention", self.attention, MemoryVariant),
            ("--gate-init", self.gate_init, GateInit),
        ):
            check(value in get_args(kind), f"{option} is {value!r}, must be one of {', '.join(get_args(kind))}")
        low = [layer for layer in self.layers if layer < 1]
        check(not low, f"--memory-layers has {low[0] if low else ''}, must be from 1")
        check(
            len(set(self.layers)) == len(self.layers) and list(self.layers) == sorted(self.layers),
            f"--memory-layers is {','.join(map(str, self.layers))}, must ascend, each layer once",
        )
        if self.strategy == "logits":
            for name, option in _OPTIONS_OF_ATTENTION.items():
                is_given = getattr(self, name) != getattr(MemoryConfig, name)
                check(not is_given, f"{option} has no effect with --strategy logits: leave it out")
        has_gates = self.strategy in ("gated", "chunk")
        check(
            has_gates or self.gate_init == MemoryConfig.gate_init,
            f"--gate-init has no effect with --strategy {self.strategy}: leave it out",
        )


_OPTIONS_OF_ATTENTION = {"attention": "--memory-attention", "layers": "--memory-layers", "source": "--memory-source"}
"""Fields of ``MemoryConfig`` that ``strategy="logits"`` has no use for."""


@dataclass(frozen=True)
class SamplingConfig:
    """Which task makes each step of a training on several (arXiv 1902.02671, section 4.1)."""

    sampling: Sampling = "anneal"
    """In turn, or drawn in proportion to N^a, N being the number of a task's training examples: a = 1, 0.5, or from 1
    in the first epoch to 0.2 in the last."""
    steps_per_epoch: int | None = None
    """``None``: as many as it takes to read every example once, were each task read alike."""

    def __post_init__(self) -> None:
        check(
            self.sampling in get_args(Sampling),
            f"--sampling is {self.sampling!r}, must be one of {', '.join(get_args(Sampling))}",
        )
        steps = self.steps_per_epoch
        check(steps is None or steps >= 1, f"--steps-per-epoch is {steps}, must be at least 1")


PALS_PAPER = TrainConfig(epochs=25, learning_rate=2e-5, weight_decay=0.01)


PALS_PAPER_SAMPLING = SamplingConfig(steps_per_epoch=2400)
"""Settings of arXiv 1902.02671, section 4.2."""


@dataclass(frozen=True)
class RunConfig:
    """How a training run goes on its machine.

    None of it decides what is learnt, but for rounding, and for ``max_tokens``: dropout draws by the shape of the parts
    that go through the model, as it does by the device.
    """

    max_tokens: int = 4096
    """Pieces, padding included, that go through the model at once; a batch is cut into as many parts as that needs."""
    checkpoint_steps: int = 500
    """Optimiser steps between two states on disk, from which a killed run goes on."""
    compile: bool = False
    report_to: tuple[str, ...] = ()
    """Trackers that accelerate knows, such as ``tensorboard``."""
    cache_memory: bool = False
    """Keep what a frozen general model makes of the training texts on disk, so that it reads each of them once."""
    max_cache: int = 20 << 30
    """Bytes that ``cache_memory`` may take."""

    def __post_init__(self) -> None:
        check(self.max_cache >= 1, f"--max-cache is {self.max_cache}, must be at least 1")
        check(self.max_tokens >= 1, f"--max-tokens is {self.max_tokens}, must be at least 1")
        check(self.checkpoint_steps >= 1, f"--checkpoint-steps is {self.checkpoint_steps}, must be at least 1")


@dataclass(frozen=True)
class QaConfig:
    """Which answers are told; ``None`` is as the model was trained, or as the paper has it where nothing says."""

    top: int = 1
    """Answers to each question."""
    n_best: int = 20
    """Spans that share the probability."""
    word_unit: WordUnit | None = None
    """Where an answer may begin and end: at white space, or also at punctuation."""
    max_answer_chars: int | None = None
    no_answer: bool | None = None
    """Whether that there is no answer is one."""
    null_threshold: float | None = None
    """By how much the logit that there is no answer must be higher than the best answer's to be told."""

    def __post_init__(self) -> None:
        check(self.n_best >= 1, f"--n-best is {self.n_best}, must be at least 1")
        check(1 <= self.top <= self.n_best, f"--top is {self.top}, must be from 1 to --n-best, {self.n_best}")
        chars = self.max_answer_chars
        check(chars is None or chars >= 1, f"--max-answer-chars is {chars}, must be at least 1")
        check(
            self.null_threshold is None or isfinite(self.null_threshold),
            f"--null-threshold is {self.null_threshold}, must be a number",
        )
        check(
            self.null_threshold is None or self.no_answer is not False,
            "--null-threshold has no effect with --always-answer: leave out one of them",
        )


@dataclass(frozen=True)
class PretrainConfig:
    """What a masked language model is trained on; ``GMAP_PRETRAINING`` has the settings of the training itself."""

    max_length: int | None = None
    """Base pieces of an input at most, special tokens included; ``None``: 128, or what the model reads if that is less.
    A paragraph of an abstract has about so many, and one of 512 costs four times as much and more."""
    heldout: float = 0.3
    """Share of the documents that is kept out of training, to measure on (arXiv 2212.03613, section 5.5: 70/30)."""
    mask_share: float = 0.15
    """Share of the pieces that are to be guessed."""
    whole_words: bool = False
    """Whether all pieces of a word are to be guessed together."""
    only_new_rows: bool = False
    """Whether nothing but the rows of the added words is trained."""
    head_steps: int = 200
    """Optimiser steps of a head that the checkpoint does not have, before the encoder is trained with it."""
    head_learning_rate: float = 1e-3
    """Of these steps, at its highest."""
    eval_inputs: int = 2000
    """Inputs of a set, at most, that the loss is measured on."""
    seed: int = 0

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        check(self.max_length is None or self.max_length >= 16, f"--max-length is {self.max_length}, need at least 16")
        check(0 <= self.heldout < 1, f"--heldout is {self.heldout}, must be at least 0 and under 1")
        check(0 < self.mask_share < 1, f"--mask-share is {self.mask_share}, must lie between 0 and 1")
        check(self.head_steps >= 0, f"--head-steps is {self.head_steps}, must not be negative")
        rate = self.head_learning_rate
        check(isfinite(rate) and rate > 0, f"--head-learning-rate is {rate}, must be above 0")
        check(self.eval_inputs >= 1, f"--eval-inputs is {self.eval_inputs}, must be at least 1")


GMAP_PRETRAINING = TrainConfig(epochs=5, learning_rate=4e-5)
"""Settings of arXiv 2212.03613, table 6, which has 5 to 10 epochs."""


AdapterName = Literal[
    "pals", "low-rank", "attention", "ffn", "lhuc", "houlsby", "houlsby-pals", "top-attention", "top-ffn", "bert-layer",
    "none",
]  # fmt: skip


Placement = Literal["parallel", "serial"]


AdapterForm = Literal["paper", "reference"]


AdapterInit = Literal["paper", "zero"]


@dataclass(frozen=True)
class AdapterKind:
    """What sets the adapters of one name apart."""

    is_in_layers: bool = True
    """In the layers of the encoder, some or all; the others but ``none`` are on top of it."""
    paper_size: int | None = None
    """Width d_s that states are projected to in the paper, whose model has a width of 768; ``None``: they are not."""
    has_heads: bool = False
    """Whether there is attention in it."""
    has_forms: bool = False
    """Whether the paper's released code has it otherwise than the paper."""
    can_be_serial: bool = False
    """Whether it may be behind its layer, and not only beside it."""


ADAPTERS: dict[AdapterName, AdapterKind] = {
    "none": AdapterKind(is_in_layers=False),
    "pals": AdapterKind(paper_size=204, has_heads=True, has_forms=True, can_be_serial=True),
    "low-rank": AdapterKind(paper_size=100, has_forms=True, can_be_serial=True),
    "attention": AdapterKind(paper_size=84, has_heads=True, can_be_serial=True),
    "ffn": AdapterKind(paper_size=204, can_be_serial=True),
    "lhuc": AdapterKind(),
    "houlsby": AdapterKind(paper_size=50, has_forms=True),
    "houlsby-pals": AdapterKind(paper_size=156, has_heads=True, has_forms=True),
    "top-attention": AdapterKind(is_in_layers=False, paper_size=204, has_heads=True),
    "top-ffn": AdapterKind(is_in_layers=False, paper_size=204),
    "bert-layer": AdapterKind(is_in_layers=False),
}
"""Name → kind, of all that there are."""


PALS_READ = "pals_read"
"""What a description of ``houlsby-pals`` says its PALs read; one without it is of a model whose PALs read another."""


@dataclass(frozen=True)
class AdapterConfig:
    """What each task adds to a shared encoder (BERT and PALs, arXiv 1902.02671)."""

    adapter: AdapterName = "pals"
    """Projected attention with projections shared over the layers (``pals``), low-rank layers, attention or
    feed-forward layers of a small width with projections of their own or shared, a factor an element (``lhuc``), two
    bottlenecks a layer (``houlsby``; with PALs in place of the second, ``houlsby-pals``), layers on top of the encoder
    (``top-…``, ``bert-layer``), or nothing but heads."""
    size: int | None = None
    """Width d_s that states are projected to; ``None``: as in the paper, in proportion to the model's width."""
    heads: int | None = None
    """Attention heads; ``None``: of 17 numbers or a few more, as in the paper."""
    layers: str = "all"
    """Layers that have an adapter: all, the top or the bottom half, or numbers from 1 such as ``1,3``."""
    placement: Placement = "parallel"
    """Beside the layer, or behind it with a layer norm of its own (much worse in the paper)."""
    form: AdapterForm = "paper"
    """As the paper has it, or as its released code does (GELU behind the projections, six heads)."""
    init: AdapterInit = "paper"
    """N(0, 0.02) for all weights, or zero for those that project up, so that training starts with the plain model."""
    freeze_encoder: bool = False
    """Whether nothing but adapters and heads is trained."""

    def __post_init__(self) -> None:
        for option, value, values in (
            ("--adapter", self.adapter, AdapterName),
            ("--placement", self.placement, Placement),
            ("--adapter-form", self.form, AdapterForm),
            ("--adapter-init", self.init, AdapterInit),
        ):
            check(value in get_args(values), f"{option} is {value!r}, must be one of {', '.join(get_args(values))}")
        for option, number in (("--adapter-size", self.size), ("--adapter-heads", self.heads)):
            check(number is None or number >= 1, f"{option} is {number}, must be at least 1")
        if self.size is not None and self.heads is not None:
            check(
                self.size % self.heads == 0,
                f"--adapter-size {self.size} is no multiple of --adapter-heads {self.heads}",
            )
        kind = self.kind
        has_size = kind.paper_size is not None
        can_be_zero = has_size and kind.is_in_layers and self.placement == "parallel"
        for option, is_given, is_possible in (
            ("--adapter-size", self.size is not None, has_size),
            ("--adapter-heads", self.heads is not None, kind.has_heads),
            ("--layers", self.layers != "all", kind.is_in_layers),
            ("--placement serial", self.placement != "parallel", kind.can_be_serial),
            ("--adapter-form reference", self.form != "paper", kind.has_forms),
            ("--adapter-init zero", self.init != "paper", can_be_zero),
        ):
            check(not is_given or is_possible, f"{option} does not go with --adapter {self.adapter}: leave it out")

    def settings(self) -> dict[str, Any]:
        """All that decides what the adapter computes, as JSON."""
        own = asdict(self)
        return own | {PALS_READ: "feed-forward input"} if self.adapter == "houlsby-pals" else own

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "AdapterConfig":
        """The configuration with these ``settings()``; raises ``TypeError`` or ``UsageError`` for others."""
        own = {**settings}
        own.pop(PALS_READ, None)
        return cls(**own)

    @property
    def kind(self) -> AdapterKind:
        """What there is to ``adapter``."""
        return ADAPTERS[self.adapter]
