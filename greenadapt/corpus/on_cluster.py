"""A corpus prepared on the nodes of a cluster: read, split, counted and shuffled in parts."""

import shutil
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from greenadapt import __version__
from greenadapt.cluster import Cluster
from greenadapt.config import CorpusConfig
from greenadapt.corpus.prepared import (
    STREAM_FILE,
    VOCABULARY_FILE,
    LineFile,
    NumberedLines,
    Shuffle,
    check_resources,
    count_words,
    fill,
    first_of_each,
    n_buckets,
    read_vocabulary,
    write_by_frequency,
    write_numbers,
    write_seen,
    write_stream,
    write_vocabulary,
)
from greenadapt.corpus.readers import CorpusReader, Piece, parts_of
from greenadapt.corpus.splitting import (
    HELDOUT,
    BatchSplitter,
    DocumentLog,
    Numbering,
    gather,
    make_batches,
    without_heldout,
)
from greenadapt.errors import counted
from greenadapt.progress import Progress, Silent, SilentBar
from greenadapt.storage.arrays import ArrayFile, Int32Array, Int64Array, UInt64Array, write_arrays
from greenadapt.storage.files import Json, hash_json, naming, write_json
from greenadapt.storage.own_json import read_own_object
from greenadapt.tokenization.vocabulary import WordSplitter, tokenizer_json

TOKENIZER = "tokenizer.json"
DOCUMENTS = "documents.safetensors"
NUMBERS = "numbers.safetensors"
_FACTS = "facts.json"


@dataclass(frozen=True)
class SplitJob:
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


_AT_ONCE = 16
"""Counts that are merged at once."""


def number_words(cluster: Cluster, job: SplitJob, n_documents: int, folder: Path, n_parts: int) -> tuple[int, int]:
    """Merge the counts of all parts, write the vocabulary, and have the number of each word in it where ``numbers_of``
    looks for it; returns how many words there are, and how many levels the tree has.
    """
    level, found = 0, [job.counts(part) for part in range(n_parts)]
    while len(found) > _AT_ONCE:
        groups = [found[i : i + _AT_ONCE] for i in range(0, len(found), _AT_ONCE)]
        found = [job.merged(level, group) for group in range(len(groups))]
        list(cluster.run(_merge_counts, zip(groups, found, strict=True)))
        level += 1
    words, counts, numbers = _merged(found)
    new_number = write_by_frequency(words, counts, n_documents, folder / VOCABULARY_FILE)
    job.merged(level, 0).mkdir(exist_ok=True)
    _write_numbers(job.merged(level, 0), [new_number[each] for each in numbers])
    return len(words), level + 1


def _merge_counts(item: tuple[list[Path], Path]) -> Json:
    folders, target = item

    def make(folder: Path) -> Json:
        words, counts, numbers = _merged(folders)
        write_vocabulary(folder / VOCABULARY_FILE, words, counts)
        _write_numbers(folder, numbers)
        return {"words": len(words)}

    return made(target, make)


def _merged(folders: Sequence[Path]) -> tuple[list[str], Int64Array, list[Int32Array]]:
    """All words in ``folders``, how often they occur, and for each folder the number among these of each of its own."""
    numbering, found = Numbering(), []
    for folder in folders:
        words, counts = read_vocabulary(folder / VOCABULARY_FILE)
        found.append((np.fromiter(map(numbering.__getitem__, words), np.int32, len(words)), counts))
    total = np.zeros(len(numbering), np.int64)
    for numbers, counts in found:
        total[numbers] += counts  # each word is once in a folder
    return list(numbering), total, [numbers for numbers, _ in found]


def _write_numbers(folder: Path, numbers: Sequence[Int32Array]) -> None:
    write_arrays(folder / NUMBERS, {str(place): each for place, each in enumerate(numbers)})


def numbers_of(part: int, job: SplitJob, n_levels: int) -> Int32Array:
    """The number in the vocabulary of each word of a part, int32 ``(n_words,)``."""
    numbers: Int32Array | None = None
    group = part
    for level in range(n_levels):
        group, place = divmod(group, _AT_ONCE)
        merged = ArrayFile(job.merged(level, group) / NUMBERS)[str(place)]
        numbers = merged if numbers is None else merged[numbers]
    assert numbers is not None
    return numbers


def split(item: tuple[int, tuple[Piece, ...]], job: SplitJob) -> Json:
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


def find_duplicates(share: int, job: SplitJob, n_shares: int, n_parts: int) -> Json:
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


def count(part: int, job: SplitJob, n_shares: int) -> Json:
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


def sort(item: tuple[int, int], job: SplitJob, n_levels: int) -> Json:
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

            stream = NumberedLines(blocks(), shuffle.n_lines, shuffle.n_tokens)
            write_stream(stream, folder / "offsets", folder / STREAM_FILE, Silent())
        (folder / "offsets").unlink()
        return {"lines": shuffle.n_lines, "tokens": shuffle.n_tokens}

    facts = made(job.sorted(part), make)
    text.remove()
    return facts


def merge_range(number: int, job: SplitJob, n_ranges: int, parts: Sequence[int]) -> tuple[Int32Array, Int32Array]:
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


DOCUMENTS_AT_ONCE = 4 << 20
"""Of which duplicates are found at once."""


def prepare_on_cluster(  # noqa: PLR0913
    cluster: Cluster,
    reading: CorpusReader,
    splitter_file: Path,
    folder: Path,
    config: CorpusConfig,
    *,
    max_memory: int,
    progress: Progress,
    size_hint: int | None = None,
) -> dict[str, int]:
    """Read, split and write as ``prepare_corpus`` does, whose result this is, on the nodes of ``cluster``.

    All nodes must see ``folder``, which must be empty or hold what an earlier call left when it was stopped, and the
    sources of ``reading``. Each task holds ``max_memory`` bytes or less for the shuffle; this process holds the
    vocabulary and a hash of each document.
    Raises what ``prepare_corpus`` raises, and ``InputError`` if a node does not see the files.
    """
    check_resources(folder, max_memory, size_hint, progress)
    cluster.require_shared(folder)
    cluster.require_files([Path(path) for path in reading.paths])
    parts = parts_of(reading.pieces(), reading.recipe.format, cluster.run, reading.recipe.sample_by)
    job = SplitJob(reading, _job_folder(folder, parts, splitter_file, config, max_memory), config, max_memory)
    split = _split(cluster, job, parts, progress, size_hint)
    n_documents = sum(each["documents"] for each in split)
    n_shares = 1 + sum(each["hashes"] for each in split) // DOCUMENTS_AT_ONCE
    found = list(cluster.run(find_duplicates, range(n_shares), job, n_shares, len(parts)))
    kept = list(cluster.run(count, range(len(parts)), job, n_shares))
    n_words, n_levels = number_words(cluster, job, n_documents, folder, len(parts))
    n_lines, n_tokens = ([each[name] for each in kept] for name in ("lines", "tokens"))
    stream = NumberedLines(_by_key(cluster, job, n_lines, n_levels, progress), sum(n_lines), sum(n_tokens))
    write_stream(stream, job.folder / "offsets", folder / STREAM_FILE, progress)
    write_seen(folder, *(ArrayFile(job.documents(share) / DOCUMENTS)["hashes"] for share in range(n_shares)))
    if config.heldout:
        _join([job.text(part) / HELDOUT for part in range(len(parts))], folder / HELDOUT)
    if lost := cluster.lost():
        progress.warn(f"{counted(len(lost), 'node')} of the cluster died; the others did the work again")
    shutil.rmtree(job.folder)
    return {
        "documents": n_documents,
        "duplicates": sum(each["duplicates"] for each in found),
        "text_bytes": sum(each["text_bytes"] for each in split),
        "lines": stream.n_lines,
        "tokens": stream.n_tokens,
        "words": n_words,
    }


def _split(
    cluster: Cluster, job: SplitJob, parts: list[tuple[Piece, ...]], progress: Progress, size_hint: int | None
) -> list[Json]:
    """Split all parts, and have ``job.reading`` count what was read."""
    if done := sum(job.text(part).is_dir() for part in range(len(parts))):
        progress.note(f"{done:,} of {counted(len(parts), 'part')} of the text were split before")
    facts = []
    with progress.bar("splitting text into words", size_hint, "bytes") as bar:
        for each in cluster.run(split, enumerate(parts), job):
            facts.append(each)
            job.reading.add(each["read"])
            bar.advance(each["text_bytes"])
    job.reading.require_text()
    return facts


def _by_key(
    cluster: Cluster, job: SplitJob, n_lines: list[int], n_levels: int, progress: Progress
) -> Iterator[tuple[Int32Array, Int32Array]]:
    """The lines of all parts, ``n_lines`` of each, in the order of their keys, in blocks of lengths and ids."""
    n_tokens = 0
    with progress.bar("numbering words by frequency", sum(n_lines), "lines") as bar:
        firsts = accumulate(n_lines[:-1], initial=0)
        for each in cluster.run(sort, enumerate(firsts), job, n_levels):
            n_tokens += each["tokens"]
            bar.advance(each["lines"])
    n_ranges = n_buckets(n_tokens, job.max_memory)
    filled = [part for part, n in enumerate(n_lines) if n]
    yield from cluster.run(merge_range, range(n_ranges), job, n_ranges, filled)


def _job_folder(
    folder: Path, parts: list[tuple[Piece, ...]], splitter_file: Path, config: CorpusConfig, max_memory: int
) -> Path:
    """The folder in ``folder`` of exactly this job, with the tokenizer in it; what else is there is removed."""
    texts = [[asdict(piece) for piece in part] for part in parts]
    tokenizer = tokenizer_json(splitter_file)
    key = hash_json([__version__, asdict(config), max_memory, sha256(tokenizer).hexdigest(), texts])
    own = folder / f"parts-{key[:16]}"
    for other in folder.iterdir():
        if other.is_dir() and other != own:
            shutil.rmtree(other)
    own.mkdir(exist_ok=True)
    for unfinished in own.glob("*.part"):
        shutil.rmtree(unfinished)
    (own / TOKENIZER).write_bytes(tokenizer)
    return own


def _join(files: Sequence[Path], target: Path) -> None:
    with open(target, "wb") as joined:
        for file in files:
            with suppress(FileNotFoundError), open(file, "rb") as own:
                shutil.copyfileobj(own, joined)
