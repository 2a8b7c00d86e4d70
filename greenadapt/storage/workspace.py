"""Where results lie by name: ``<workspace>/<corpus>/<model>/<stage>``."""

import difflib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from greenadapt import __version__
from greenadapt.errors import ConflictError, InputError, MissingError, UsageError
from greenadapt.storage.files import replace_json
from greenadapt.storage.jobs import Place
from greenadapt.storage.locks import lock
from greenadapt.storage.names import expanded, require_utf8
from greenadapt.storage.own_json import read_own
from greenadapt.storage.results import MANIFEST, Result

HOME = "GREENADAPT_HOME"
_ELSEWHERE = ".elsewhere"
"""The folder of records of results that --out wrote, a file each."""
_VARIANT = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class _Elsewhere:
    folder: str
    greenadapt: str


@dataclass(frozen=True)
class Workspace:
    """The folder that holds every result by name."""

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
        root = expanded(option).absolute()
        require_utf8(root)
        if not next(path for path in (root, *root.parents) if path.exists()).is_dir():
            raise ConflictError(f"the workspace {root} is not a folder", f"give one with --workspace or ${HOME}")
        return cls(root)

    def downloads(self, corpus: str) -> Path:
        """The folder of a corpus's downloaded files."""
        return self.root / corpus / ".sources"

    def memory_cache(self) -> Path:
        """The cache of general models' states (``finetune --cache-memory``); may be deleted."""
        return self.root / ".memory"

    def folds(self) -> Path:
        """What is kept of finished folds (``assess --train``); may be deleted."""
        return self.root / ".assess"

    def reproduced(self, experiment: str) -> Path:
        """The folder of an experiment of ``reproduce``."""
        return self.root / "reproduce" / experiment

    def remember(self, folder: Path) -> None:
        """Keep in mind that a result is written to ``folder``, unless that lies in the workspace.

        A workspace is not created for that, and it is no error if it cannot be written.
        """
        name = sha256(os.fsencode(folder)).hexdigest()[:16]
        record = self.root / _ELSEWHERE / f"{name}.json"
        if folder.is_relative_to(self.root) or record.is_file():
            return
        with suppress(OSError, UnicodeEncodeError):
            record.parent.mkdir(exist_ok=True)
            replace_json(record, {"greenadapt": __version__, "folder": str(folder)})

    def elsewhere(self) -> list[Path]:
        """The folders that were remembered, whether or not there still is a result."""
        folders = []
        for record in sorted((self.root / _ELSEWHERE).glob("*.json")):
            with suppress(InputError, MissingError, OSError):
                folder = Path(read_own(record, _Elsewhere, "record").folder)
                folders += [folder] if folder.is_absolute() else []
        return sorted(folders)

    def corpora(self) -> list[str]:
        """Names of the corpora that have a folder here."""
        return _visible_folders(self.root)

    def models(self, corpus: str) -> list[str]:
        """Names of the models that have results for ``corpus``; none if that is not a plain name."""
        if not _is_plain(corpus):
            return []
        return [name for name in _visible_folders(self.root / corpus) if self.stages(corpus, name)]

    def stages(self, corpus: str, model: str) -> list[str]:
        """Names (``stage`` or ``stage@variant``) of the finished results for a corpus and a model."""
        folder = self.root / corpus / model
        return [name for name in _visible_folders(folder) if (folder / name / MANIFEST).is_file()]

    def _stages_of(self, corpus: str, model: str) -> set[str]:
        """The stages that have a finished result, under whatever variant."""
        return {name.split("@")[0] for name in self.stages(corpus, model)}

    def results(self, corpus: str, model: str) -> list[Result]:
        """The finished results for a corpus and a model."""
        places = (self.place(corpus, model, *name.split("@", 1)) for name in self.stages(corpus, model))
        return [result for place in places if (result := place.current()) is not None]

    def only_corpus(self, model: str | None = None, stage: str | None = None) -> str:
        """The one corpus that has results: for ``model`` if given, and of ``stage`` if given.

        Raises ``MissingError`` if there is none, ``UsageError`` listing them if there are several.
        """
        known = [
            corpus
            for corpus in self.corpora()
            for own in self.models(corpus)
            if model in (None, own) and (stage is None or stage in self._stages_of(corpus, own))
        ]
        names = [*dict.fromkeys(known)]
        if len(names) == 1:
            return names[0]
        if names:
            raise UsageError(
                f"{self.root} has results of {len(names)} corpora ({', '.join(names)})", "choose one with --corpus"
            )
        what = f"no {stage or 'result'}" + (f" for model {model}" if model else "")
        raise MissingError(f"{what} in {self.root}", f"run greenadapt {stage or 'adapt'} first, with --corpus")

    def only_model(self, corpus: str) -> str:
        """The one model that has results for ``corpus``.

        Raises ``MissingError`` if there is none, ``UsageError`` listing them if there are several.
        """
        models = self.models(corpus)
        if len(models) == 1:
            return models[0]
        if models:
            raise UsageError(
                f"{corpus} has results for {len(models)} models ({', '.join(models)})", "choose one with --model"
            )
        near = difflib.get_close_matches(corpus, filter(self.models, self.corpora()), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "name the model with --model"
        raise MissingError(f"no result for corpus {corpus} in {self.root}", hint)

    def place(self, corpus: str, model: str, stage: str, variant: str | None = None) -> Place:
        """The place of a stage's result for a corpus and a model."""
        if variant is not None and not _VARIANT.fullmatch(variant):
            raise UsageError(
                f"variant {variant!r} is not a valid name",
                "begin with a letter or a digit, and use these, dots, dashes and underscores",
            )
        name = f"{stage}@{variant}" if variant else stage
        return Place(self._folder(corpus, model) / name)

    def find_place(self, corpus: str, model: str, stage: str, variant: str | None = None) -> Place:
        """The place of a later stage's input: under the same variant, else the plain one.

        Raises ``MissingError`` naming the command that creates it.
        """
        for name in (variant, None):
            place = self.place(corpus, model, stage, name)
            if (place.path / MANIFEST).is_file():
                return place
        raise MissingError(
            f"no {stage} of corpus {corpus} for model {model} in {self.root}",
            f"run greenadapt {stage} first, with the same --corpus and --model",
        )

    @contextmanager
    def locked(self, corpus: str, model: str, command: str | None = None) -> Iterator[None]:
        """Be the only writer of a corpus's results for a model while the block runs."""
        with lock(self._folder(corpus, model) / ".lock", command=command):
            yield

    def _folder(self, corpus: str, model: str) -> Path:
        if not _is_plain(corpus):
            raise MissingError(
                f"no corpus or file is called {corpus}", "greenadapt corpus list shows the available ones"
            )
        if not _is_plain(model):  # an adapted model's folder says what it is called
            raise InputError(f"the model calls itself {model!r}, which is no name", "correct its greenadapt.json")
        return self.root / corpus / model


def _is_plain(name: str) -> bool:
    """Whether a name is that of one folder below another."""
    return name not in ("", ".", "..") and not any(character in name for character in "/\\\0")


def _visible_folders(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
