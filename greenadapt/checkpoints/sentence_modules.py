"""Read the modules of sentence-transformers in a model's folder, without that package."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from greenadapt.checkpoints.reader import OLD_WEIGHTS
from greenadapt.errors import InputError
from greenadapt.storage.files import Json, read_as, read_object

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
    """The modules that turn the states of an encoder into a vector; the mean of the pieces by default."""

    pooling: tuple[Pooling, ...] = ("mean",)
    """Vectors of several poolings are concatenated."""
    dense: tuple[DenseLayer, ...] = ()
    normalizes: bool = False
    """Whether vectors are scaled to length 1."""
    max_length: int | None = None
    """Maximum number of pieces, including special tokens; ``None``: the model's limit."""
    prompts: Json = field(default_factory=dict)
    """Name → prompt, a prefix of texts."""
    prompt_name: str | None = None
    """Name of the default prompt."""

    @property
    def prompt(self) -> str:
        """The prefix of each text."""
        return "" if self.prompt_name is None else str(self.prompts[self.prompt_name])

    @classmethod
    def read(cls, folder: Path) -> "SentenceModules":
        """Read the modules of a model; raises ``InputError`` for an unsupported module."""
        file = folder / MODULES_FILE
        if not file.is_file():
            return cls()
        pooling: tuple[Pooling, ...] = ("mean",)
        dense: list[DenseLayer] = []
        normalizes = False
        for kind, path in listed_modules(folder):
            if kind == "Pooling":
                pooling = _pooling(folder / path / "config.json")
            elif kind == "Dense" and not normalizes:
                dense.append(_dense(folder / path))
            elif kind == "Normalize":
                normalizes = True
            elif kind != "Dropout":  # which acts only in training
                raise InputError(
                    f"{file}: {kind} is not supported after {'Normalize' if normalizes else 'the encoder'}", _HINT
                )
        return cls(pooling, tuple(dense), normalizes, _max_length(folder), *_prompts(folder))


@dataclass(frozen=True)
class _Module:
    path: str
    type: str = ""


def read_modules(folder: Path) -> list[_Module]:
    """The list of modules in a model's folder, which is untrusted; raises ``InputError`` if it is broken."""
    file = folder / MODULES_FILE
    return read_as(file, list[_Module], _AGAIN) if file.is_file() else []


def listed_modules(folder: Path) -> list[tuple[str, str]]:
    """The modules after the encoder, except greenadapt's: name of the class, and folder."""
    file = folder / MODULES_FILE
    if not file.is_file():
        return []
    modules = [(module.type, module.path) for module in read_modules(folder)]
    if not modules or modules[0][0].rpartition(".")[2] not in ("Transformer", "BothViews"):
        raise InputError(f"{file}: the first module is not a Transformer", _HINT)
    for _, path in modules:
        if path not in ("", ".") and (Path(path.rstrip("/")).name != path.rstrip("/") or "\0" in path):  # untrusted
            raise InputError(f"{file}: {path!r} is not a folder beside it", _AGAIN)
    names = [(kind.rpartition(".")[2], path) for kind, path in modules[1:]]
    return [(kind, path) for kind, path in names if kind != "MeanOfViews"]


def _pooling(file: Path) -> tuple[Pooling, ...]:
    config = read_object(file, "pooling of sentence-transformers")
    mode_setting: Any = config.get("pooling_mode")
    if mode_setting is None:
        mode_setting = [name for key, name in _OLD_NAMES.items() if config.get(key)] or ["mean"]
    modes = mode_setting if isinstance(mode_setting, list) else [mode_setting]
    if unknown := [mode for mode in modes if mode not in get_args(Pooling)]:
        raise InputError(f"{file}: {unknown[0]!r} is not a known pooling", f"known: {get_args(Pooling)}")
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
    """The maximum length of sentence-transformers, from its settings or the tokenizer's."""
    module_settings = [(file, "max_seq_length") for file in sorted(folder.glob("sentence_*_config.json"))]
    tokenizer_settings = [(folder / "tokenizer_config.json", name) for name in ("model_max_length", "max_len")]
    for file, name in [*module_settings, *tokenizer_settings]:
        config: Json = read_object(file, "sentence-transformers model") if file.is_file() else {}
        if (value := config.get(name)) is not None:
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"{file}: {name} is {value!r}, need a whole number", _AGAIN)
            return int(value)
    return None


@dataclass(frozen=True)
class _Prompts:
    prompts: dict[str, Any] | None = None
    default_prompt_name: str | None = None


def _prompts(folder: Path) -> tuple[Json, str | None]:
    file = folder / "config_sentence_transformers.json"
    config = read_as(file, _Prompts, _AGAIN) if file.is_file() else _Prompts()
    prompts, name = config.prompts or {}, config.default_prompt_name
    if name is not None and name not in prompts:
        raise InputError(f"{file} has no prompt {name!r}, its default", _AGAIN)
    return prompts, name
