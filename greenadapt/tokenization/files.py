"""Read special tokens and tokenizers from a model's files, with or without ``tokenizer.json``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from greenadapt.architectures import ARCHITECTURES, read_model_type
from greenadapt.errors import GreenadaptError, InputError, first_line, is_panic, require
from greenadapt.store.files import Json, hash_file, hash_json, read_object

SETTINGS_FILE, MAP_FILE = "tokenizer_config.json", "special_tokens_map.json"
_AGAIN = "download the model again"
FILES_OF_SETTINGS = (SETTINGS_FILE, MAP_FILE)
_USUAL_NAMES = {  # BERT's, then RoBERTa's
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


@dataclass(frozen=True)
class SpecialIds:
    """The ids of BERT's special tokens."""

    cls: int
    sep: int
    pad: int
    unk: int
    mask: int


def read_settings(folder: Path) -> dict[str, Any]:
    """Read ``tokenizer_config.json`` and ``special_tokens_map.json``, if present; the former takes precedence.

    Raises ``InputError`` if a file is not a JSON object.
    """
    return {**read_existing(folder / MAP_FILE), **read_existing(folder / SETTINGS_FILE)}


def read_existing(file: Path) -> Json:
    """The JSON object in a file of a model; empty if there is no such file."""
    return read_object(file, "model folder", _AGAIN) if file.is_file() else {}


def special_names(tokenizer: Tokenizer, settings: dict[str, Any]) -> dict[str, str]:
    """``cls_token`` and so on → the token's text, from ``settings``, else the name in BERT or RoBERTa.

    Raises ``InputError`` if the tokenizer lacks one.
    """
    names: dict[str, str] = {}
    for role, usual in _USUAL_NAMES.items():
        setting = settings.get(role)
        setting = setting.get("content") if isinstance(setting, dict) else setting
        candidates = (setting, *usual) if setting else usual
        name = next((name for name in candidates if tokenizer.token_to_id(name) is not None), None)
        if name is None:
            raise InputError(
                f"the tokenizer has no {role} (looked for {', '.join(candidates)})",
                f"name it in tokenizer_config.json as {role}",
            )
        names[role] = name
    return names


def special_ids(tokenizer: Tokenizer, settings: dict[str, Any]) -> SpecialIds:
    """The ids of ``special_names``; raises ``InputError`` if one is missing."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    names = special_names(tokenizer, settings)
    return SpecialIds(**{role.removesuffix("_token"): vocabulary[name] for role, name in names.items()})


TOKENIZER_FILE, ADDED_FILE = "tokenizer.json", "added_tokens.json"
VOCABULARY_FILES = (
    *("vocab.txt", "vocab.json", "merges.txt"),
    *("sentencepiece.bpe.model", "spiece.model", "spm.model"),
)
_CHOOSE = f"choose a model that has a {TOKENIZER_FILE}"
_BY_TRANSFORMERS = "load it with transformers' AutoTokenizer and save it there with save_pretrained"


def tokenizer_files(folder: Path) -> list[Path]:
    """The ``tokenizer.json`` of a model's folder, or the files from which ``convert_tokenizer`` creates it.

    Raises ``InputError`` if there are none.
    """
    file = folder / TOKENIZER_FILE
    if file.is_file():
        return [file]
    if not any((folder / name).is_file() for name in VOCABULARY_FILES):
        raise InputError(f"{folder} has no {TOKENIZER_FILE}", _BY_TRANSFORMERS)
    names = (*VOCABULARY_FILES, ADDED_FILE, *FILES_OF_SETTINGS)
    return [folder / name for name in names if (folder / name).is_file()]


def tokenizer_hash(folder: Path) -> str:
    """SHA-256 of what determines the tokenizer, hexadecimal."""
    files = tokenizer_files(folder)
    if files == [folder / TOKENIZER_FILE]:
        return hash_file(files[0])
    return hash_json([_read_class(folder), {file.name: hash_file(file) for file in files}])


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """``read_settings``, and the default special tokens of the class if ``folder`` has only a vocabulary."""
    settings = read_settings(folder)
    if (folder / TOKENIZER_FILE).is_file() or not (folder / "config.json").is_file():
        return settings
    return {**special_tokens(convert_tokenizer(folder)), **settings}


def special_tokens(converted: Any) -> dict[str, str]:
    """``cls_token`` and so on → the token's text, of a tokenizer of transformers."""
    return {role: str(token) for role, token in converted.special_tokens_map.items() if not isinstance(token, list)}


def convert_tokenizer(folder: Path) -> Any:
    """Create transformers' tokenizer of a folder without ``tokenizer.json``; its ``backend_tokenizer`` is a
    ``Tokenizer``.

    Raises ``InputError`` if its class is written in Python or the files are damaged or not sufficient,
    ``MissingError`` if transformers or a package that it needs is not installed.
    """
    files = tokenizer_files(folder)
    model_type, tokenizer_class = _read_class(folder)
    if model_type not in ARCHITECTURES:
        raise InputError(f"{folder} has no {TOKENIZER_FILE}", _BY_TRANSFORMERS)
    require("train", "transformers", by=f"the tokenizer of {folder}, which has no {TOKENIZER_FILE},")
    from transformers import AutoConfig, AutoTokenizer

    try:
        for file in files:
            if file.suffix == ".model":
                _require_unigram(file)
        # The configuration is made here, since old files do not state a model type.
        config = AutoConfig.for_model(model_type, tokenizer_class=tokenizer_class)
        options: Json = {"config": config, "local_files_only": True, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    except GreenadaptError:
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise InputError(
            f"transformers cannot create the tokenizer of {folder} ({first_line(error)})", _AGAIN
        ) from None
    _require_whole(tokenizer, folder)
    return tokenizer


def _require_whole(tokenizer: Any, folder: Path) -> None:
    """Refuse tokenizers for which transformers made up what the files lack."""
    name = type(tokenizer).__name__
    if not tokenizer.is_fast:
        raise InputError(f"{folder} has no {TOKENIZER_FILE}, and a {name} cannot be created without one", _CHOOSE)
    needed = (file for role, file in tokenizer.vocab_files_names.items() if role != "tokenizer_file")
    if missing := [file for file in needed if not (folder / file).is_file()]:
        raise InputError(f"{folder} has no {' and '.join(missing)} to create a {name} from", _AGAIN)
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    for role, token in special_tokens(tokenizer).items():  # those that transformers adds have no row
        if role in ("unk_token", "cls_token", "sep_token") and token not in vocabulary:
            raise InputError(f"the vocabulary of {folder} has no {token!r}, the {role}", _AGAIN)


def _require_unigram(file: Path) -> None:
    """Refuse SentencePiece's other kinds of models, which transformers reads as Unigram, with other pieces."""
    require("sentencepiece", "sentencepiece", "google.protobuf", by=str(file))
    from sentencepiece import sentencepiece_model_pb2

    model: Any = sentencepiece_model_pb2
    if model.ModelProto.FromString(file.read_bytes()).trainer_spec.model_type != model.TrainerSpec.UNIGRAM:
        raise InputError(f"{file} is no Unigram model, the only kind from which a tokenizer can be created", _CHOOSE)


def _read_class(folder: Path) -> tuple[str | None, str | None]:
    """The model type and the class of the tokenizer, if ``config.json`` states it."""
    config = read_object(folder / "config.json", "model folder", _AGAIN)
    return read_model_type(config, folder), config.get("tokenizer_class")
