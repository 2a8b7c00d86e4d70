"""The documents of a prepared corpus, as one hash each, to tell new documents from those."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from greenadapt.corpus.decoding import Document
from greenadapt.corpus.stream import document_hash
from greenadapt.storage.arrays import ArrayFile, UInt64Array, write_arrays

SEEN_FILE = "documents.safetensors"


def write_seen(folder: Path, *hashes: UInt64Array) -> None:
    """Write ``hashes``, uint64, sorted, to ``documents.safetensors``: eight bytes per document."""
    write_arrays(folder / SEEN_FILE, {"hashes": np.sort(np.concatenate(hashes))})


def read_seen(folder: Path) -> UInt64Array:
    """The hashes that ``write_seen`` wrote to ``folder``, ``(n_documents,)``."""
    return ArrayFile(folder / SEEN_FILE)["hashes"]


class SeenDocuments:
    """Documents by their ``hashes``, uint64 ``(n_documents,)``, sorted; it takes twelve bytes for each.

    With ``repeats`` a document is new if it is read more often than ``hashes`` has it, otherwise only if they lack it.
    """

    def __init__(self, hashes: UInt64Array, *, repeats: bool) -> None:
        self._hashes = array("Q", hashes.tobytes())
        self._read = array("I", bytes(4 * len(hashes)))  # how often, at the first of equal hashes
        self._repeats = repeats
        self._n_read = 0

    @property
    def n_gone(self) -> int:
        """How many of the documents have not been read again."""
        return len(self._hashes) - self._n_read

    def new(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Those of ``documents`` that are new; counts the others as read."""
        for document in documents:
            if not self._is_seen(document_hash(document)):
                yield document

    def _is_seen(self, value: int) -> bool:
        hashes, read = self._hashes, self._read
        at = bisect_left(hashes, value)
        if at == len(hashes) or hashes[at] != value:
            return False
        this = at + read[at]
        if this == len(hashes) or hashes[this] != value:  # read as often as it was before
            return not self._repeats
        read[at] += 1
        self._n_read += 1
        return True
