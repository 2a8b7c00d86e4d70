"""The steps from documents to a prepared corpus: split, number, count, shuffle and write.

On one machine they are made once, for all documents; on a cluster once for each part of them.
"""

import shutil
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greenadapt.corpus.shuffle import LineFile, Shuffle, write_array
from greenadapt.corpus.stream import Numbering, SplitBatch
from greenadapt.corpus.word_counts import write_vocabulary
from greenadapt.errors import InputError, ResourceError, byte_size, counted
from greenadapt.progress import Bar, Progress
from greenadapt.storage.arrays import Array, BoolArray, Int32Array, Int64Array, Streamed, write_arrays

VOCABULARY_FILE = "vocabulary.tsv"
STREAM_FILE = "words.safetensors"
MIN_MEMORY = 64 << 20
DISK_PER_TEXT_BYTE = 2
"""Approximate bytes on disk per byte of text: at the peak, each word is stored twice in four bytes."""


@dataclass(frozen=True)
class Stream:
    """Lines in blocks of lengths and ids, and how many lines and ids there are."""

    blocks: Iterator[tuple[Int32Array, Int32Array]]
    n_lines: int
    n_tokens: int


def check_resources(folder: Path, max_memory: int, size_hint: int | None, progress: Progress) -> None:
    """Raise ``ResourceError`` if memory would not suffice, or disk for ``size_hint`` bytes of text."""
    if max_memory < MIN_MEMORY:
        raise ResourceError(
            f"--max-memory is {byte_size(max_memory)}, preparing a corpus needs at least {byte_size(MIN_MEMORY)}"
        )
    if size_hint is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = DISK_PER_TEXT_BYTE * size_hint, shutil.disk_usage(folder).free
    progress.note(f"{byte_size(size_hint)} of text: needs about {byte_size(needed)} of disk in {folder}")
    if needed > free:
        raise ResourceError(
            f"preparing the corpus needs about {byte_size(needed)} of disk, {folder} has {byte_size(free)} free",
            "free some space, or use another --workspace",
        )


def write_numbers(batches: Iterable[SplitBatch], numbers: Numbering, text: LineFile, bar: Bar) -> None:
    """Write the lines of ``batches`` to ``text``, with words numbered by ``numbers``."""
    with open(text.ids, "wb") as ids_file, open(text.lengths, "wb") as lengths_file:
        unfinished = np.zeros(0, np.int32)  # the last line, which the next batch may continue
        for batch in batches:
            row_of = np.fromiter(map(numbers.__getitem__, batch.words), np.int32, len(batch.words))
            write_array(ids_file, row_of[batch.ids])
            lengths = batch.lengths
            if batch.continues:
                lengths[0] += unfinished[0]
            else:
                write_array(lengths_file, unfinished)
            write_array(lengths_file, lengths[:-1])
            unfinished = lengths[-1:]
            bar.advance(batch.n_bytes)
        write_array(lengths_file, unfinished)


def first_of_each(hashes: "array[int] | Array") -> BoolArray:
    """Which of ``hashes``, uint64 ``(n,)``, do not repeat an earlier one."""
    first = np.zeros(len(hashes), bool)
    first[np.unique(np.frombuffer(hashes, np.uint64), return_index=True)[1]] = True
    return first


def count_words(text: LineFile, kept_lines: BoolArray, n_words: int) -> Int64Array:
    """How often each word occurs in the kept lines of ``text``, int64 ``(n_words,)``."""
    counts = np.zeros(n_words, np.int64)
    for first, lengths, ids in text.blocks():
        kept = np.repeat(kept_lines[first : first + len(lengths)], lengths)
        counts += np.bincount(ids[kept], minlength=n_words)
    return counts


def write_by_frequency(words: list[str], counts: Int64Array, n_documents: int, path: Path) -> Int32Array:
    """Write the vocabulary, most frequent words first, ties in code point order; returns the new number of each word.

    Raises ``InputError`` if there are no words.
    """
    if not words:
        raise InputError(
            f"the corpus ({counted(n_documents, 'document')} with text) holds no words", "give one with text"
        )
    by_word = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = by_word[np.argsort(-counts[by_word], kind="stable")]
    write_vocabulary(path, [words[i] for i in order.tolist()], counts[order])
    new_number = np.empty(len(words), np.int32)
    new_number[order] = np.arange(len(words), dtype=np.int32)
    return new_number


def n_buckets(n_tokens: int, max_memory: int) -> int:
    """Enough that a bucket, its lines' keys and its sorted copy stay well within ``max_memory``."""
    return 1 + 8 * 4 * n_tokens // max_memory


def fill(shuffle: Shuffle, text: LineFile, kept_lines: BoolArray, new_number: Int32Array, bar: Bar) -> None:
    """Give ``shuffle`` the kept lines of ``text`` that have words, renumbered."""
    for first, lengths, ids in text.blocks():
        kept = kept_lines[first : first + len(lengths)] & (lengths > 0)
        shuffle.add(lengths[kept], new_number[ids[np.repeat(kept, lengths)]])
        bar.advance(len(ids))


def write_stream(stream: Stream, offsets: Path, path: Path, progress: Progress) -> None:
    """Write ``ids`` and ``lines``; the offsets are only known once the ids are written, so they are kept in a file
    until then.
    """

    def ids() -> Iterator[Int32Array]:
        end = 0
        with open(offsets, "wb") as file, progress.bar("shuffling lines", stream.n_tokens, "words") as bar:
            write_array(file, np.zeros(1, np.int64))
            for lengths, block in stream.blocks:
                write_array(file, np.cumsum(lengths, dtype=np.int64) + end)
                end += len(block)
                yield block
                bar.advance(len(block))

    def lines() -> Iterator[Array]:
        with open(offsets, "rb") as file:
            while len(block := np.fromfile(file, np.int64, 1 << 20)):
                yield block

    arrays = {
        "ids": Streamed((stream.n_tokens,), np.dtype(np.int32), ids()),
        "lines": Streamed((stream.n_lines + 1,), np.dtype(np.int64), lines()),
    }
    write_arrays(path, arrays)
