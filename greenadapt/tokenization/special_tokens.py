"""The names and ids of a tokenizer's special tokens, without transformers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from greenadapt.errors import InputError
from greenadapt.storage.files import read_object

SETTINGS_FILE, MAP_FILE = "tokenizer_config.json", "special_tokens_map.json"
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
    """The ids that frame a model input."""

    cls: int
    sep: int
    pad: int
    unk: int
    mask: int


def read_settings(folder: Path) -> dict[str, Any]:
    """``tokenizer_config.json`` over ``special_tokens_map.json``, if ``folder`` has them.

    Raises ``InputError`` if a file is not a JSON object.
    """
    settings: dict[str, Any] = {}
    for name in reversed(FILES_OF_SETTINGS):
        file = folder / name
        if file.is_file():
            settings |= read_object(file, "model folder", "download the model again")
    return settings


def special_names(tokenizer: Tokenizer, settings: dict[str, Any]) -> dict[str, str]:
    """``cls_token`` and so on → the token's text: as in ``settings``, else BERT's or RoBERTa's usual name.

    Raises ``InputError`` if the tokenizer has none of these.
    """
    names: dict[str, str] = {}
    for role, usual in _USUAL_NAMES.items():
        given = settings.get(role)
        given = given.get("content") if isinstance(given, dict) else given
        candidates = (given, *usual) if given else usual
        name = next((name for name in candidates if tokenizer.token_to_id(name) is not None), None)
        if name is None:
            raise InputError(
                f"the tokenizer has no {role} (looked for {', '.join(candidates)})",
                f"name it in tokenizer_config.json as {role}",
            )
        names[role] = name
    return names


def end_names(tokenizer: Tokenizer, config: dict[str, Any]) -> dict[str, str]:
    """``bos_token`` and ``eos_token`` → the token's text, if the ``config`` of a generative language model has them."""
    ids = {role: config.get(f"{role}_id") for role in ("bos_token", "eos_token")}
    first = {role: found[0] if isinstance(found, list) and found else found for role, found in ids.items()}
    named = {role: tokenizer.id_to_token(found) for role, found in first.items() if isinstance(found, int)}
    return {role: name for role, name in named.items() if name is not None}


def special_ids(tokenizer: Tokenizer, settings: dict[str, Any]) -> SpecialIds:
    """The ids of ``special_names``; raises ``InputError`` where one is missing."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    names = special_names(tokenizer, settings)
    return SpecialIds(**{role.removesuffix("_token"): vocabulary[name] for role, name in names.items()})
