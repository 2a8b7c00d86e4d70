"""Unfinished work: its folder, whose mark says what job it is for and what it cost so far."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from greenadapt.cost import Cost
from greenadapt.errors import GreenadaptError
from greenadapt.storage.files import Json
from greenadapt.storage.own_json import read_own_object
from greenadapt.storage.ownership import MARK, is_own, read_mark, remove_folder, require_own, write_mark


@dataclass(frozen=True)
class _Mark:
    key: str
    attempts: int
    cost: dict[str, Any]


@dataclass(frozen=True)
class Attempts:
    """The attempts at a job that were killed."""

    key: str
    """Of the job."""
    attempts: int = 0
    cost: Cost | None = None

    @classmethod
    def left(cls, work: Path) -> "Attempts | None":
        """Those that left the folder ``work``; ``None`` if it has no mark, or an invalid one."""
        try:
            path = former_mark(work) if read_mark(work) is None else work / MARK
            values = read_own_object(path, _Mark, "unfinished work")
            return cls(values["key"], values["attempts"], Cost(**values["cost"]) if values["cost"] else None)
        except (OSError, GreenadaptError, TypeError):
            return None

    @classmethod
    def at(cls, key: str, work: Path) -> "Attempts":
        """Those at the job ``key`` that left ``work``."""
        left = cls.left(work)
        return left if left is not None and left.key == key else cls(key)

    def plus(self, cost: Cost) -> "Attempts":
        """These attempts and one more."""
        return Attempts(self.key, self.attempts + 1, self.cost + cost if self.cost else cost)

    def write(self, work: Path) -> None:
        """Mark ``work``."""
        write_mark(work, key=self.key, attempts=self.attempts, cost=self._cost())

    def as_dict(self) -> Json:
        """The cost of all attempts, and how many there were, for the manifest."""
        return {**self._cost(), "attempts": self.attempts}

    def _cost(self) -> Json:
        return self.cost.as_dict() if self.cost else {}


def begin_attempt(work: Path, key: str, *, resumes: bool) -> Attempts:
    """Make the folder ``work`` for one more attempt at the job ``key``; returns those before.

    What they left is kept if the job ``resumes``. Raises ``ConflictError`` if somebody else made the folder.
    """
    require_own(work, is_work)
    left, is_former = Attempts.left(work), read_mark(work) is None
    known = left if left is not None and left.key == key else None
    if not (known and resumes):
        remove_folder(work)
    work.mkdir(parents=True, exist_ok=True)
    before = known or Attempts(key)
    replace(before, attempts=before.attempts + 1).write(work)
    if left is not None and is_former:
        former_mark(work).unlink(missing_ok=True)
    return before


def is_work(folder: Path) -> bool:
    """Whether greenadapt made this folder to work in."""
    return is_own(folder) or (folder.is_dir() and not folder.is_symlink() and Attempts.left(folder) is not None)


def former_mark(work: Path) -> Path:
    """Where version 0.2.0 wrote the mark of the folder ``work``: beside it."""
    return work.with_name(f"{work.name}.key")
