"""What is done with one part of a corpus, or with one range of all parts, on any node."""

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from greenadapt.corpus.distributed.counts import numbers_of
from greenadapt.corpus.distributed.job import DOCUMENTS, Job, made
from greenadapt.corpus.heldout import without_heldout
from greenadapt.corpus.pieces import Piece
from greenadapt.corpus.shuffle import LineFile, Shuffle
from greenadapt.corpus.steps import (
    STREAM_FILE,
    VOCABULARY_FILE,
    Stream,
    count_words,
    fill,
    first_of_each,
    n_buckets,
    write_numbers,
    write_stream,
)
from greenadapt.corpus.stream import BatchSplitter, DocumentLog, Numbering, gather, make_batches
from greenadapt.corpus.word_counts import write_vocabulary
from greenadapt.progress import Silent, SilentBar
from greenadapt.storage.arrays import ArrayFile, Int32Array, Int64Array, UInt64Array, write_arrays
from greenadapt.storage.files import Json
from greenadapt.tokenization.vocabulary import WordSplitter


def split(item: tuple[int, tuple[Piece, ...]], job: Job) -> Json:
    """Read a part, and split it into words."""
    part, pieces = item

    def make(folder: Path) -> Json:
        splitter, numbers, log, heldout = _splitter(job.splitter_file), Numbering(), DocumentLog(), array("Q")
        documents = without_heldout(job.reading.documents_of(pieces), job.config.heldout, folder, heldout)
        batches = make_batches(documents, log, cut_lines=splitter.chunkwise)
        write_numbers(map(splitter, batches), numbers, LineFile(folder / "ids", folder / "lengths"), SilentBar())
        _write_words(folder, numbers)
        arrays = {"hashes": np.array(log.hashes), "n_lines": np.array(log.n_lines), "heldout": np.array(heldout)}
        write_arrays(folder / DOCUMENTS, arrays)
        n_documents = {"documents": len(log.hashes), "hashes": len(log.hashes) + len(heldout)}
        return {**n_documents, "text_bytes": log.n_bytes, "read": job.reading.counts}

    return made(job.text(part), make)


@lru_cache(maxsize=1)
def _splitter(file: Path) -> BatchSplitter:
    """One for all parts that a process splits, since it remembers chunks of text."""
    return BatchSplitter(WordSplitter.load(file))


def _write_words(folder: Path, words: Sequence[str] | Numbering) -> None:
    (folder / "words").write_bytes("\n".join(words).encode())


def _read_words(folder: Path) -> list[str]:
    text = (folder / "words").read_bytes().decode()
    return text.split("\n") if text else []


def find_duplicates(share: int, job: Job, n_shares: int, n_parts: int) -> Json:
    """The documents whose hash is in one of ``n_shares`` ranges, and which of them repeat an earlier one."""

    def make(folder: Path) -> Json:
        hashes, parts, documents, heldout = [], [], [], []
        for part in range(n_parts):
            arrays = ArrayFile(job.text(part) / DOCUMENTS)
            chosen = _in_share(arrays["hashes"], share, n_shares)
            hashes.append(arrays["hashes"][chosen])
            parts.append(np.full(len(chosen), part, np.int32))
            documents.append(chosen)
            heldout.append(arrays["heldout"][_in_share(arrays["heldout"], share, n_shares)])
        known = np.concatenate(hashes)
        kept = np.ones(len(known), bool) if job.config.keep_duplicates else first_of_each(known)
        arrays_of_share = {
            "hashes": np.sort(np.concatenate([known[kept], *heldout])),
            "part": np.concatenate(parts)[~kept],
            "document": np.concatenate(documents)[~kept],
        }
        write_arrays(folder / DOCUMENTS, arrays_of_share)
        return {"duplicates": len(kept) - int(kept.sum())}

    return made(job.documents(share), make)


def _in_share(hashes: UInt64Array, share: int, n_shares: int) -> Int64Array:
    return np.flatnonzero((hashes >> np.uint64(32)) * np.uint64(n_shares) >> np.uint64(32) == share)


def count(part: int, job: Job, n_shares: int) -> Json:
    """Count the words of the documents of a part that do not repeat earlier ones."""

    def make(folder: Path) -> Json:
        n_lines: Int64Array = ArrayFile(job.text(part) / DOCUMENTS)["n_lines"]
        kept = np.ones(len(n_lines), bool)
        for share in range(n_shares):
            arrays = ArrayFile(job.documents(share) / DOCUMENTS)
            kept[arrays["document"][slice(*np.searchsorted(arrays["part"], [part, part + 1]))]] = False
        kept_lines, words, text = np.repeat(kept, n_lines), _read_words(job.text(part)), job.lines(part)
        counts = count_words(text, kept_lines, len(words))
        write_vocabulary(folder / VOCABULARY_FILE, words, counts)
        write_arrays(folder / DOCUMENTS, {"kept_lines": kept_lines})
        with_words = np.fromfile(text.lengths, np.int32) > 0
        return {"lines": int((kept_lines & with_words).sum()), "tokens": int(counts.sum())}

    return made(job.counts(part), make)


def sort(item: tuple[int, int], job: Job, n_levels: int) -> Json:
    """The lines of a part, of which the first has the given number, with their words renumbered, sorted by key."""
    part, first = item
    text = job.lines(part)

    def make(folder: Path) -> Json:
        shuffle = Shuffle(folder, job.config.seed, n_buckets(text.n_tokens, job.max_memory), first)
        kept_lines = ArrayFile(job.counts(part) / DOCUMENTS)["kept_lines"]
        fill(shuffle, text, kept_lines, numbers_of(part, job, n_levels), SilentBar())
        with open(folder / "keys", "wb") as keys:

            def blocks() -> Iterator[tuple[Int32Array, Int32Array]]:
                for block, lengths, ids in shuffle.keyed_lines():
                    keys.write(block.tobytes())
                    yield lengths, ids

            stream = Stream(blocks(), shuffle.n_lines, shuffle.n_tokens)
            write_stream(stream, folder / "offsets", folder / STREAM_FILE, Silent())
        (folder / "offsets").unlink()
        return {"lines": shuffle.n_lines, "tokens": shuffle.n_tokens}

    facts = made(job.sorted(part), make)
    text.remove()
    return facts


def merge_range(number: int, job: Job, n_ranges: int, parts: Sequence[int]) -> tuple[Int32Array, Int32Array]:
    """The lines of all ``parts`` whose key is in one of ``n_ranges`` ranges, sorted by key: lengths and ids."""
    width = (1 << 64) // n_ranges
    limits = [number * width] if number + 1 == n_ranges else [number * width, (number + 1) * width]
    found = []
    for part in parts:
        keys = np.memmap(job.sorted(part) / "keys", np.uint64, "r")
        begin, end = [*np.searchsorted(keys, np.array(limits, np.uint64)).tolist(), len(keys)][:2]
        arrays = ArrayFile(job.sorted(part) / STREAM_FILE)
        lines = arrays["lines"][begin : end + 1]
        found.append((keys[begin:end], np.diff(lines).astype(np.int32), arrays["ids"][lines[0] : lines[-1]]))
    lengths, ids = (np.concatenate([each[i] for each in found]) for i in (1, 2))
    order = np.argsort(np.concatenate([keys for keys, _, _ in found]))
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    return lengths[order], gather(ids, starts[order], lengths[order])
