"""What a folder says about sentence vectors: the modules of sentence-transformers, read without it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from greenadapt.checkpoints.reader import OLD_WEIGHTS
from greenadapt.errors import InputError
from greenadapt.storage.files import Json, described_in, read_json, read_object

MODULES_FILE = "modules.json"
Pooling = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
Activation = Literal["Identity", "Tanh", "ReLU", "GELU"]

_OLD_NAMES: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_AGAIN = "download the model again"
_HINT = "load it with sentence-transformers, whose exported tokenizer knows the added words"


@dataclass(frozen=True)
class DenseLayer:
    """A dense layer after pooling."""

    weights: Path
    """``model.safetensors``, or an old ``pytorch_model.bin``."""
    activation: Activation


@dataclass(frozen=True)
class SentenceModules:
    """What turns the states of an encoder into one vector; without ``modules.json`` the mean over the pieces."""

    pooling: tuple[Pooling, ...] = ("mean",)
    """Several are set end to end."""
    dense: tuple[DenseLayer, ...] = ()
    normalizes: bool = False
    """Whether vectors have length 1."""
    max_length: int | None = None
    """Pieces that are read, special tokens included; ``None``: as many as the model reads."""
    prompts: Json = field(default_factory=dict)
    """What texts may be preceded by, by name."""
    prompt_name: str | None = None
    """Which of them precedes each text."""

    @property
    def prompt(self) -> str:
        """What each text is preceded by."""
        return "" if self.prompt_name is None else str(self.prompts[self.prompt_name])

    @classmethod
    def read(cls, folder: Path) -> "SentenceModules":
        """Those of a model's folder; raises ``InputError`` for a module that is not known."""
        file = folder / MODULES_FILE
        if not file.is_file():
            return cls()
        modules = _read_list(file)
        pooling: tuple[Pooling, ...] = ("mean",)
        dense: list[DenseLayer] = []
        normalizes = False
        for kind, place in ((kind, folder / path) for kind, path in modules[1:]):
            if kind == "Pooling":
                pooling = _pooling(place / "config.json")
            elif kind == "Dense" and not normalizes:
                dense.append(_dense(place))
            elif kind == "Normalize":
                normalizes = True
            elif kind not in ("Dropout", "MeanOfViews"):  # one does nothing but in training, the other is ours
                raise InputError(f"{file}: {kind} is not supported after {modules[0][0]}", _HINT)
        return cls(pooling, tuple(dense), normalizes, _max_length(folder), *_prompts(folder))


def listed_modules(folder: Path) -> list[tuple[str, str]]:
    """The modules behind the first one and before ours: the name of the class, and the folder."""
    file = folder / MODULES_FILE
    return [one for one in _read_list(file)[1:] if one[0] != "MeanOfViews"] if file.is_file() else []


def _read_list(file: Path) -> list[tuple[str, str]]:
    with described_in(file, _AGAIN):
        modules = [(str(one["type"]), str(one["path"])) for one in read_json(file)]
    if not modules or modules[0][0].rpartition(".")[2] not in ("Transformer", "BothViews"):
        raise InputError(f"{file}: the first module is not a Transformer", _HINT)
    for _, path in modules:
        if path not in ("", ".") and (Path(path.rstrip("/")).name != path.rstrip("/") or "\0" in path):  # untrusted
            raise InputError(f"{file}: {path!r} is not a folder beside it", _AGAIN)
    return [(kind.rpartition(".")[2], path) for kind, path in modules]


def _pooling(file: Path) -> tuple[Pooling, ...]:
    config = read_object(file, "pooling of sentence-transformers")
    given: Any = config.get("pooling_mode")
    if given is None:
        given = [name for key, name in _OLD_NAMES.items() if config.get(key)] or ["mean"]
    modes = [given] if isinstance(given, str) else list(given)
    if unknown := [mode for mode in modes if mode not in get_args(Pooling)]:
        raise InputError(f"{file}: {unknown[0]!r} is not a pooling that is known", f"known: {get_args(Pooling)}")
    if not config.get("include_prompt", True):
        raise InputError(f"{file}: include_prompt is false, which is not supported", _HINT)
    return tuple(cast("list[Pooling]", modes))


def _dense(folder: Path) -> DenseLayer:
    config = read_object(folder / "config.json", "dense layer of sentence-transformers")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if activation not in get_args(Activation):
        raise InputError(f"{folder / 'config.json'}: the activation {activation} is not supported", _HINT)
    file = folder / "model.safetensors"
    return DenseLayer(file if file.is_file() else folder / OLD_WEIGHTS, cast("Activation", activation))


def _max_length(folder: Path) -> int | None:
    """The length that sentence-transformers cuts at: its own setting, or the tokenizer's."""
    places = [(file, "max_seq_length") for file in sorted(folder.glob("sentence_*_config.json"))]
    lengths = [(folder / "tokenizer_config.json", name) for name in ("model_max_length", "max_len")]
    for file, name in [*places, *lengths]:
        config: Json = read_object(file, "sentence-transformers model") if file.is_file() else {}
        if (given := config.get(name)) is not None:
            with described_in(file):
                return int(given)
    return None


def _prompts(folder: Path) -> tuple[Json, str | None]:
    file = folder / "config_sentence_transformers.json"
    config: Json = read_object(file, "sentence-transformers model") if file.is_file() else {}
    with described_in(file):
        prompts, name = dict(config.get("prompts") or {}), config.get("default_prompt_name")
        if name is not None:
            str(prompts[name])
    return prompts, name
