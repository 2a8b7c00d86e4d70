"""HOME: results by key, names that lead to the newest ones, stored inputs and downloads.

``results/STAGE-KEY`` are results, ``names/CORPUS/MODEL/STAGE`` symlinks to them, ``inputs/`` what was read from
standard input or from a Python program, and ``downloads/CORPUS/`` the files of named corpora.
"""

import difflib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from greenadapt.errors import ConflictError, InputError, MissingError, UsageError
from greenadapt.store.files import expand_home, require_utf8
from greenadapt.store.locks import holder
from greenadapt.store.results import (
    ATTEMPTS,
    KEY_DIGITS,
    LOCK,
    MANIFEST,
    Attempts,
    Job,
    Place,
    Result,
    input_result,
    open_result,
    read_manifest,
)

HOME = "GREENADAPT_HOME"
_ORDER = ("corpus", "w2v", "align", "expand")
INPUT = re.compile(r"stdin-[0-9a-f]{8}|records-[0-9a-f]{8}\.jsonl")
"""The names of files in ``inputs``."""
_RESULT = re.compile(rf"[a-z0-9]+-[0-9a-f]{{{KEY_DIGITS}}}")
_UNFINISHED = re.compile(r"\..+-[0-9a-f]{8}")


@dataclass(frozen=True)
class Workspace:
    """The folder HOME."""

    root: Path

    @classmethod
    def find(cls, option: Path | None = None) -> "Workspace":
        """``--workspace``, else ``$GREENADAPT_HOME``, else the user's data folder.

        Raises ``ConflictError`` if it is a file, ``InputError`` if its path is not UTF-8.
        """
        if option is None and os.environ.get(HOME):
            option = Path(os.environ[HOME])
        if option is None:
            from platformdirs import user_data_path

            option = user_data_path("greenadapt", appauthor=False)
        root = expand_home(option).absolute()
        require_utf8(root)
        if not next(path for path in (root, *root.parents) if path.exists()).is_dir():
            raise ConflictError(f"the workspace {root} is not a folder", f"give one with --workspace or ${HOME}")
        return cls(root)

    def downloads(self, corpus: str) -> Path:
        """The folder of a corpus's downloaded files."""
        return self.root / "downloads" / corpus

    def place(self, job: Job, corpus: str = "", model: str = "") -> Place:
        """The place of a job's result, with a name if it is of a corpus and a model."""
        folder = self.root / "results" / f"{job.stage}-{job.key[:KEY_DIGITS]}"
        return Place(folder, self._names_folder(corpus, model) / job.stage if corpus else None)

    def names(self) -> list[tuple[str, ...]]:
        """Corpus, model and stage of each name that leads to a result."""
        paths = [path for path in sorted(self.root.glob("names/*/*/*")) if path.is_dir()]
        names = [path.parts[-3:] for path in paths]
        return [parts for parts in names if not any(part.startswith(".") for part in parts)]

    def corpora(self) -> list[str]:
        """Names of the corpora that have results."""
        return [*dict.fromkeys(name for name, _, _ in self.names())]

    def models(self, corpus: str) -> list[str]:
        """Names of the models that have results for ``corpus``."""
        return [*dict.fromkeys(model for name, model, _ in self.names() if name == corpus)]

    def stages(self, corpus: str, model: str) -> list[str]:
        """The stages that have a result for a corpus and a model, those of ``adapt`` first and in its order."""
        stages = [stage for *names, stage in self.names() if names == [corpus, model]]
        return sorted(stages, key=lambda stage: _ORDER.index(stage) if stage in _ORDER else len(_ORDER))

    def results(self, corpus: str, model: str) -> list[Result]:
        """The readable results for a corpus and a model."""
        results = []
        for stage in self.stages(corpus, model):
            with suppress(MissingError, InputError):
                results.append(open_result(self._names_folder(corpus, model) / stage, stage))
        return results

    def find_result(self, corpus: str, model: str, stage: str) -> Result:
        """The newest result of a stage for a corpus and a model.

        Raises ``MissingError`` naming the command that creates it.
        """
        path = self._names_folder(corpus, model) / stage
        if not path.is_dir():
            raise MissingError(
                f"no {stage} of corpus {corpus} for model {model} in {self.root}",
                f"run greenadapt {stage} first, with the same --corpus and --model",
            )
        return open_result(path, stage)

    def find_only_corpus(self, model: str | None = None, stage: str | None = None) -> str:
        """The only corpus that has results: for ``model`` and of ``stage`` if given.

        Raises ``MissingError`` if there is none, ``UsageError`` listing them if there are several.
        """
        fitting = [parts for parts in self.names() if model in (None, parts[1]) and stage in (None, parts[2])]
        names = [*dict.fromkeys(corpus for corpus, _, _ in fitting)]
        if len(names) == 1:
            return names[0]
        if names:
            raise UsageError(
                f"{self.root} has results of {len(names)} corpora ({', '.join(names)})", "choose one with --corpus"
            )
        of_model = f" for model {model}" if model else ""
        raise MissingError(
            f"no {stage or 'result'}{of_model} in {self.root}",
            f"run greenadapt {stage or 'adapt'} first, with --corpus",
        )

    def find_only_model(self, corpus: str) -> str:
        """The only model that has results for ``corpus``.

        Raises ``MissingError`` if there is none, ``UsageError`` listing them if there are several.
        """
        models = self.models(corpus)
        if len(models) == 1:
            return models[0]
        if models:
            raise UsageError(
                f"{corpus} has results for {len(models)} models ({', '.join(models)})", "choose one with --model"
            )
        matches = difflib.get_close_matches(corpus, self.corpora(), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(matches)}?" if matches else "name the model with --model"
        raise MissingError(f"no result for corpus {corpus} in {self.root}", hint)

    def _names_folder(self, corpus: str, model: str) -> Path:
        if not _is_plain(corpus):
            raise MissingError(
                f"no corpus or file is called {corpus}", "greenadapt corpus list shows the available ones"
            )
        if not _is_plain(model):  # an adapted model's folder has its name
            raise InputError(f"the model calls itself {model!r}, which is no name", "correct its greenadapt.json")
        return self.root / "names" / corpus / model


def _is_plain(name: str) -> bool:
    """Whether a name is that of one folder below another."""
    return name not in ("", ".", "..") and not any(character in name for character in "/\\\0")


def is_key_of(folder_name: str, stage: str) -> bool:
    """Whether a folder's name is the one that HOME gives a result of ``stage``: its key, or the stage alone."""
    return folder_name == stage or (folder_name.startswith(f"{stage}-") and bool(_RESULT.fullmatch(folder_name)))


@dataclass(frozen=True)
class UnfinishedResult:
    """The hidden folder of a run that was killed, or that is running."""

    path: Path
    bytes: int
    attempts: Attempts
    writer: str | None
    """The process that works there, if any."""

    @property
    def name(self) -> str:
        """The name of the result."""
        return self.path.name[1:].rsplit("-", 1)[0]


def find_unfinished(folder: Path) -> list[UnfinishedResult]:
    """The unfinished results in ``folder``."""
    paths = [path for path in _list_folder(folder) if _UNFINISHED.fullmatch(path.name) and path.is_dir()]
    return [
        UnfinishedResult(path, tree_size(path), Attempts.read(path), holder(path / LOCK))
        for path in paths
        if not path.is_symlink() and ((path / LOCK).exists() or (path / ATTEMPTS).exists())
    ]


@dataclass(frozen=True)
class UnneededFile:
    """A file or folder of HOME that no named result needs."""

    kind: str
    """``result``, ``unfinished`` or ``input``."""
    path: Path
    bytes: int


def find_unneeded(workspace: Workspace) -> Iterator[UnneededFile]:
    """What ``clean`` removes: results that neither a name nor the inputs of a named result need, unfinished results
    that no process works on, and stored inputs that no result was made from.

    What greenadapt did not make stays: results have a manifest, and inputs are named by their hash.
    """
    results, needed = workspace.root / "results", _find_needed(workspace)
    for path in _list_folder(results):
        is_result = _RESULT.fullmatch(path.name) and (path / MANIFEST).is_file() and not path.is_symlink()
        if is_result and path.resolve() not in needed:
            yield UnneededFile("result", path, tree_size(path))
    for work in find_unfinished(results):
        if work.writer is None:
            yield UnneededFile("unfinished", work.path, work.bytes)
    for path in _list_folder(workspace.root / "inputs"):
        if path.is_file() and INPUT.fullmatch(path.name) and path.resolve() not in needed:
            yield UnneededFile("input", path, tree_size(path))


def _find_needed(workspace: Workspace) -> set[Path]:
    """The real paths of the named results, of the results that they were made from, and of their other inputs."""
    results: set[Path] = set()
    others: set[Path] = set()
    folders = [workspace.root.joinpath("names", *parts) for parts in workspace.names()]
    while folders:
        folder = folders.pop().resolve()
        if folder in results:
            continue
        results.add(folder)
        try:
            inputs = read_manifest(folder).inputs
        except (MissingError, InputError):  # a damaged result, which its name keeps
            continue
        for entry in inputs.values():
            if (source := input_result(entry, folder)) is not None:
                folders.append(source)
            paths = [entry.get("path"), entry.get("source"), *entry.get("sources", {})]
            others.update(Path(path).resolve() for path in paths if path and Path(path).is_absolute())
    return results | others


def remove(item: UnneededFile) -> str:
    """Remove it; returns the error, if any. A result is renamed first, so that nobody reads half of it."""
    try:
        if item.path.is_dir():
            hidden = item.path if item.path.name.startswith(".") else item.path.with_name(f".{item.path.name}-00000000")
            item.path.rename(hidden)
            shutil.rmtree(hidden)
        else:
            item.path.unlink()
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    return ""


def tree_size(path: Path) -> int:
    """The bytes of a file or of all files below a folder; symlinks count as links."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # removed meanwhile
                size += os.lstat(Path(folder) / name).st_size
    return size


def _list_folder(folder: Path) -> list[Path]:
    """The entries of a folder, also hidden, sorted; none if it is no folder."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
