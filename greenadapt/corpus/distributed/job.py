"""What the tasks of one corpus know, and the folders that they make."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from greenadapt.config import CorpusConfig
from greenadapt.corpus.readers import CorpusReader
from greenadapt.corpus.shuffle import LineFile
from greenadapt.storage.files import Json, naming, write_json
from greenadapt.storage.own_json import read_own_object

TOKENIZER = "tokenizer.json"
DOCUMENTS = "documents.safetensors"
NUMBERS = "numbers.safetensors"
_FACTS = "facts.json"


@dataclass(frozen=True)
class Job:
    """What all tasks need to know; ``folder`` has what they make."""

    reading: CorpusReader
    folder: Path
    config: CorpusConfig
    max_memory: int

    @property
    def splitter_file(self) -> Path:
        """The copy of the tokenizer that nodes see."""
        return self.folder / TOKENIZER

    def text(self, part: int) -> Path:
        """The words of a part by their own numbers."""
        return self.folder / f"text-{part:06}"

    def lines(self, part: int) -> LineFile:
        """These words."""
        return LineFile(self.text(part) / "ids", self.text(part) / "lengths")

    def counts(self, part: int) -> Path:
        """Which documents of a part are kept, and how often words occur in these."""
        return self.folder / f"counts-{part:06}"

    def documents(self, share: int) -> Path:
        """The hashes of the documents of all parts in a range, and the duplicates among them."""
        return self.folder / f"documents-{share:06}"

    def merged(self, level: int, group: int) -> Path:
        """The counts of several parts, or of several such groups."""
        return self.folder / f"merged-{level}-{group:06}"

    def sorted(self, part: int) -> Path:
        """The lines of a part by key."""
        return self.folder / f"sorted-{part:06}"


def made(target: Path, make: Callable[[Path], Json]) -> Json:
    """What ``make`` returns when it fills a folder, which then becomes ``target``; if that is there already, what was
    returned then.

    Another node may be making the same, if it was given up for dead.
    """
    if not target.is_dir():
        own = target.with_name(f"{uuid4().hex}.part")
        own.mkdir()
        try:
            with naming(target):
                write_json(own / _FACTS, make(own))
            own.rename(target)
        except OSError:
            if not target.is_dir():
                raise
        finally:
            shutil.rmtree(own, ignore_errors=True)
    return read_own_object(target / _FACTS, dict[str, Any], "part of a corpus")
