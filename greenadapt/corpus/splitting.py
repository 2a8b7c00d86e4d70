"""Split documents into word numbers, in several processes or on a cluster, in the order of the documents.

Documents are held out of training by a hash of their content, so that every run holds out the same documents.
"""

from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np

from greenadapt.cluster import ClusterPool
from greenadapt.corpus.text import Document
from greenadapt.errors import ResourceError
from greenadapt.store.arrays import Int32Array, Int64Array
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.workers import worker_pool

Item = TypeVar("Item")
Result = TypeVar("Result")
BATCH_BYTES = 1 << 20
_MEMORY_OF_CHUNKS = 32 << 20  # approximate bytes of the chunks and words that a process caches


@dataclass
class DocumentLog:
    """The hash and the number of lines of every document with text, added while the documents are read."""

    hashes: "array[int]" = field(default_factory=lambda: array("Q"))
    n_lines: "array[int]" = field(default_factory=lambda: array("q"))
    n_bytes: int = 0


@dataclass(frozen=True)
class TextBatch:
    """Lines joined by line breaks; with ``continues``, the first is the rest of the previous batch's last line."""

    text: bytes
    continues: bool


@dataclass(frozen=True)
class SplitBatch:
    """A batch as word numbers.

    ``ids``, int32 ``(n_tokens,)``, are rows of ``words``, the batch's distinct words; ``lengths``, int32
    ``(n_lines,)``, are the numbers of words of its lines.
    """

    words: list[str]
    ids: Int32Array
    lengths: Int32Array
    continues: bool
    n_bytes: int


def make_batches(documents: Iterable[Document], log: DocumentLog, cut_lines: bool) -> Iterator[TextBatch]:
    """Yield the lines of ``documents`` in batches of about ``BATCH_BYTES``; ``cut_lines`` cuts longer lines."""
    lines: list[bytes] = []
    size, continues = 0, False
    for document in documents:
        encoded = encoded_lines(document)
        for data in encoded:
            for number, part in enumerate(_parts(data) if cut_lines else [data]):
                if lines and (number > 0 or size + len(part) > BATCH_BYTES):
                    yield TextBatch(b"\n".join(lines), continues)
                    lines, size, continues = [], 0, number > 0
                lines.append(part)
                size += len(part)
                log.n_bytes += len(part)
        if encoded:
            log.hashes.append(document_hash(encoded))
            log.n_lines.append(len(encoded))
    if lines:
        yield TextBatch(b"\n".join(lines), continues)


def document_hash(encoded: Iterable[bytes]) -> int:
    """The 64-bit hash of the ``encoded_lines`` of a document in a ``DocumentLog``."""
    digest = blake2b(digest_size=8)
    for data in encoded:
        digest.update(data)
        digest.update(b"\n")
    return int.from_bytes(digest.digest(), "little")


def encoded_lines(document: Document) -> list[bytes]:
    """The lines with text as UTF-8; lone surrogates, which are not text, are replaced."""
    lines = (line for line in document.lines if line and not line.isspace())
    return [line.replace("\n", "\r").encode("utf-8", "replace") for line in lines]


def _parts(line: bytes) -> Iterator[bytes]:
    """Cut ``line`` before spaces; a part keeps its leading space, since some splitters depend on it."""
    begin = 0
    while len(line) - begin > BATCH_BYTES:
        end = line.rfind(b" ", begin + 1, begin + BATCH_BYTES)
        if end < 0:
            end = line.find(b" ", begin + BATCH_BYTES)
        if end < 0:
            break
        yield line[begin:end]
        begin = end
    yield line[begin:]


class BatchSplitter(dict[str, int]):
    """Splits batches of text into words; a chunk, the text between two spaces, is split once and remembered.

    The dictionary has the row of each chunk: its words are ``_words`` number ``_ids[_starts[row] : _starts[row + 1]]``.
    A chunk at the start of a line begins with a line break, since it may be split in another way there.
    """

    def __init__(self, splitter: WordSplitter) -> None:
        super().__init__()
        self._splitter = splitter
        self.chunkwise = splitter.chunkwise
        """Whether lines may be cut before a space."""
        self._forget()

    def _forget(self) -> None:
        self.clear()
        self._words = Numbering()
        self._ids, self._starts = array("i"), array("q", [0])
        self._size = 0  # approximate bytes of memory

    def __missing__(self, chunk: str) -> int:
        words = self._splitter.split(chunk[1:]) if chunk[:1] == "\n" else self._splitter.split_chunk(chunk)
        self._ids.extend(map(self._words.__getitem__, words))
        self._starts.append(len(self._ids))
        self[chunk] = row = len(self)
        self._size += len(chunk) + 160 + 4 * len(words)  # a string, a dictionary entry, an offset, and the words
        return row

    def __call__(self, batch: TextBatch) -> SplitBatch:
        lines = batch.text.decode()
        if self.chunkwise:
            chunks = f"\n{lines}".replace("\n", " \n").split(" ")[1:]
            per_line = [line.count(" ") + 1 for line in lines.split("\n")]
        else:
            chunks = [f"\n{line}" for line in lines.split("\n")]
            per_line = [1] * len(chunks)
        # All words of the batch, as rows of the table's words, and how many are in each chunk.
        rows = np.fromiter(map(self.__getitem__, chunks), np.int64, len(chunks))
        starts = np.frombuffer(self._starts, np.int64)
        lengths = np.diff(starts).astype(np.int32)[rows]
        ids = gather(np.frombuffer(self._ids, np.int32), starts[rows], lengths)
        # The same words as rows of the batch's distinct words.
        is_used = np.zeros(len(self._words), bool)
        is_used[ids] = True
        row_in_batch = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
        vocabulary = list(self._words)
        words = [vocabulary[i] for i in np.flatnonzero(is_used).tolist()]
        line_lengths = np.add.reduceat(lengths, np.cumsum([0, *per_line[:-1]]), dtype=np.int32)
        if self._size > _MEMORY_OF_CHUNKS:
            self._forget()
        return SplitBatch(words, row_in_batch[ids], line_lengths, batch.continues, len(batch.text))


class Numbering(dict[str, int]):
    """Numbers words from 0 in the order in which they are first looked up."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


def gather(values: Int32Array, starts: Int64Array, lengths: Int32Array) -> Int32Array:
    """Concatenate ``values[starts[i] : starts[i] + lengths[i]]`` for all ``i``; both are ``(n,)``."""
    if len(starts) == 1:  # one line may be as long as a corpus: no copy
        return np.asarray(values[starts[0] : starts[0] + lengths[0]])
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.asarray(values[np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)])


def split_batches(
    batches: Iterable[TextBatch], splitter_file: Path, workers: int, cluster: str | None = None
) -> Generator[SplitBatch, None, None]:
    """Split ``batches`` and yield the results in order: in ``workers`` processes (1: in this one), or on the nodes of
    the ``cluster`` at an address.

    At most a few batches are in memory. Raises the errors of ``map_in_processes`` and of ``ClusterPool.map``.
    """
    if cluster is not None:
        yield from ClusterPool(cluster, gpus=0).map(_load_splitter, batches, splitter_file)
    elif workers == 1:
        yield from map(_load_splitter(splitter_file), batches)
    else:
        yield from map_in_processes(partial(_split_in_worker, splitter_file), batches, workers)


def map_in_processes(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """Yield ``function`` of each of ``items``, in order, computed by a ``worker_pool``; a few items are in memory.

    Raises ``ResourceError`` if a process is killed.
    """
    pool = worker_pool(workers)
    results: deque[Future[Result]] = deque()
    try:
        for item in items:
            results.append(pool.submit(function, item))
            if len(results) > 2 * workers:
                yield results.popleft().result()
        while results:
            yield results.popleft().result()
    except BrokenProcessPool:
        raise ResourceError(
            f"one of the {workers} processes that read the text was killed, perhaps for lack of memory",
            "use fewer --workers",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _load_splitter(splitter_file: Path) -> BatchSplitter:
    return BatchSplitter(WordSplitter.load(splitter_file))


_loaded_splitter = lru_cache(maxsize=1)(_load_splitter)  # in worker processes alone, which read one text


def _split_in_worker(splitter_file: Path, batch: TextBatch) -> SplitBatch:
    return _loaded_splitter(splitter_file)(batch)


HELDOUT = "heldout.txt"


def hold_out(documents: Iterable[Document], share: float, folder: Path) -> Iterator[Document]:
    """Yield the documents to train on; hold out a ``share``.

    Held-out documents are appended to ``heldout.txt`` in ``folder``, one paragraph per line.
    """
    if not share:
        yield from documents
        return
    with open(folder / HELDOUT, "a", encoding="utf-8", newline="\n") as file:
        for document in documents:
            if draw(document) >= share:
                yield document
            else:
                file.writelines(line.replace("\n", " ") + "\n" for line in document.lines)


def draw(document: Document) -> float:
    """A pseudo-random number in [0, 1) that depends only on the text."""
    digest = blake2b("\n".join(document.lines).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
