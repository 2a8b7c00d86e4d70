"""A corpus prepared on the nodes of a cluster: read, split, counted and shuffled in parts.

A task fills a folder with a name of its own, which the command then renames: a result is there whole or not at all, and
the next command finds those that an interrupted one finished.
"""

import shutil
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
    LineBlocks,
    LineFile,
    Shuffle,
    check_resources,
    count_words,
    is_first_occurrence,
    n_buckets,
    read_vocabulary,
    write_by_frequency,
    write_numbers,
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
from greenadapt.store.arrays import ArrayFile, Int32Array, Int64Array, UInt64Array, write_arrays
from greenadapt.store.files import Json, hash_json, naming, read_own_object, write_json
from greenadapt.tokenization.files import TOKENIZER_FILE
from greenadapt.tokenization.vocabulary import WordSplitter, tokenizer_json

DOCUMENTS = "documents.safetensors"
NUMBERS = "numbers.safetensors"
_FACTS = "facts.json"
PARTS = ("parts-*",)
"""Patterns of the folders that ``prepare_on_cluster`` leaves in its folder, and that its result does not need."""
FINISHED_PARTS = (f"parts-*/*/{_FACTS}",)
"""Patterns of the files from which it resumes."""


@dataclass(frozen=True)
class SplitJob:
    """The settings that all tasks share; their results are folders in ``folder``."""

    reading: CorpusReader
    folder: Path
    config: CorpusConfig
    max_memory: int

    def path(self, name: str, number: int) -> Path:
        """The folder of a result of a task.

        - ``text`` of a part: its lines as word numbers of that part;
        - ``documents`` in a range of hashes: the duplicates among them;
        - ``counts`` of a part: its word counts without duplicates;
        - ``sorted`` of a part: its lines, sorted by key.
        """
        return self.folder / f"{name}-{number:06}"

    def lines(self, part: int) -> LineFile:
        """The lines of a part, in the word numbers of that part."""
        folder = self.path("text", part)
        return LineFile(folder / "ids", folder / "lengths")


def make_all(
    cluster: Cluster, job: SplitJob, name: str, make: Callable[..., Json], items: Sequence[Any], *arguments: Any
) -> Iterator[Json]:
    """Make each result ``job.path(name, number)`` that is missing; yields the facts of all of them, in order.

    A node calls ``make(item, folder, job, *arguments)``, which fills the folder and returns the facts.
    """
    targets = [job.path(name, number) for number in range(len(items))]
    missing = [item for item, target in zip(items, targets, strict=True) if not target.is_dir()]
    attempts = cluster.run(_attempt, missing, make, job, *arguments)
    for target in targets:
        if not target.is_dir():
            next(attempts).rename(target)
        yield read_own_object(target / _FACTS, dict[str, Any], "part of a corpus")


def _attempt(item: Any, make: Callable[..., Json], job: SplitJob, *arguments: Any) -> Path:
    folder = job.folder / f"{uuid4().hex}.part"
    folder.mkdir()
    try:
        with naming(folder):
            write_json(folder / _FACTS, make(item, folder, job, *arguments))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def split(pieces: tuple[Piece, ...], folder: Path, job: SplitJob) -> Json:
    """Read a part, and split it into words."""
    splitter, numbers, log = _splitter(job.folder / TOKENIZER_FILE), Numbering(), DocumentLog()
    documents = without_heldout(job.reading.documents(pieces), job.config.heldout, folder)
    batches = make_batches(documents, log, cut_lines=splitter.chunkwise)
    write_numbers(map(splitter, batches), numbers, LineFile(folder / "ids", folder / "lengths"), SilentBar())
    (folder / "words").write_bytes("\n".join(numbers).encode())
    write_arrays(folder / DOCUMENTS, {"hashes": np.array(log.hashes), "n_lines": np.array(log.n_lines)})
    read = {"read": job.reading.counts, "skipped": job.reading.skipped}
    return {"documents": len(log.hashes), "text_bytes": log.n_bytes, **read}


@lru_cache(maxsize=1)
def _splitter(file: Path) -> BatchSplitter:
    """The splitter of this process, shared by all parts since it caches chunks of text."""
    return BatchSplitter(WordSplitter.load(file))


def find_duplicates(share: int, folder: Path, job: SplitJob, n_shares: int, n_parts: int) -> Json:
    """Find the duplicates among the documents whose hash is in range ``share`` of ``n_shares``."""
    hashes, parts, documents = [], [], []
    for part in range(n_parts):
        arrays = ArrayFile(job.path("text", part) / DOCUMENTS)
        chosen = _in_share(arrays["hashes"], share, n_shares)
        hashes.append(arrays["hashes"][chosen])
        parts.append(np.full(len(chosen), part, np.int32))
        documents.append(chosen)
    all_hashes = np.concatenate(hashes)
    is_kept = np.ones(len(all_hashes), bool) if job.config.keep_duplicates else is_first_occurrence(all_hashes)
    duplicates = {"part": np.concatenate(parts)[~is_kept], "document": np.concatenate(documents)[~is_kept]}
    write_arrays(folder / DOCUMENTS, duplicates)
    return {"duplicates": len(is_kept) - int(is_kept.sum())}


def _in_share(hashes: UInt64Array, share: int, n_shares: int) -> Int64Array:
    return np.flatnonzero((hashes >> np.uint64(32)) * np.uint64(n_shares) >> np.uint64(32) == share)


def count(part: int, folder: Path, job: SplitJob, n_shares: int) -> Json:
    """Count the words of a part without its duplicate documents."""
    n_lines: Int64Array = ArrayFile(job.path("text", part) / DOCUMENTS)["n_lines"]
    is_kept = np.ones(len(n_lines), bool)
    for share in range(n_shares):
        arrays = ArrayFile(job.path("documents", share) / DOCUMENTS)
        is_kept[arrays["document"][slice(*np.searchsorted(arrays["part"], [part, part + 1]))]] = False
    content = (job.path("text", part) / "words").read_bytes().decode()
    words = content.split("\n") if content else []
    kept_lines = np.repeat(is_kept, n_lines)
    text = job.lines(part)
    counts = count_words(text, kept_lines, len(words))
    write_vocabulary(folder / VOCABULARY_FILE, words, counts)
    write_arrays(folder / DOCUMENTS, {"kept_lines": kept_lines})
    with_words = np.fromfile(text.lengths, np.int32) > 0
    return {"lines": int((kept_lines & with_words).sum()), "tokens": int(counts.sum())}


def number_words(job: SplitJob, n_documents: int, folder: Path, n_parts: int) -> int:
    """Merge the counts of all parts, and write the vocabulary and, for ``sort``, the number of each part's words.

    Returns the number of words.
    """
    merged, counts = Numbering(), np.zeros(0, np.int64)
    for part in range(n_parts):
        words, counts_of_part = read_vocabulary(job.path("counts", part) / VOCABULARY_FILE)
        numbers = np.fromiter(map(merged.__getitem__, words), np.int32, len(words))
        if len(merged) > len(counts):  # at least doubled, so that it is seldom copied
            counts = np.concatenate([counts, np.zeros(len(merged), np.int64)])
        counts[numbers] += counts_of_part  # a part has each word once
        write_arrays(job.path("counts", part) / NUMBERS, {"merged": numbers})
    new_number = write_by_frequency(list(merged), counts[: len(merged)], n_documents, folder / VOCABULARY_FILE)
    write_arrays(job.folder / NUMBERS, {"new": new_number})
    return len(merged)


def sort(item: tuple[int, int], folder: Path, job: SplitJob) -> Json:
    """Renumber the words of a part and sort its lines by key; ``item`` is the part and the number of its first line."""
    part, first_line = item
    text = job.lines(part)
    counted_part = job.path("counts", part)
    numbers = ArrayFile(job.folder / NUMBERS)["new"][ArrayFile(counted_part / NUMBERS)["merged"]]
    shuffle = Shuffle(folder, job.config.seed, n_buckets(text.n_tokens, job.max_memory), first_line)
    shuffle.add(text, ArrayFile(counted_part / DOCUMENTS)["kept_lines"], numbers, SilentBar())
    with open(folder / "keys", "wb") as keys:

        def blocks() -> LineBlocks:
            for block, lengths, ids in shuffle.lines():
                keys.write(block.tobytes())
                yield lengths, ids

        write_stream(folder / STREAM_FILE, blocks(), shuffle.n_lines, shuffle.n_tokens, folder / "offsets", Silent())
    (folder / "offsets").unlink()
    return {"lines": shuffle.n_lines}


def merge_range(number: int, job: SplitJob, n_ranges: int, parts: Sequence[int]) -> tuple[Int32Array, Int32Array]:
    """Merge the lines of ``parts`` with keys in range ``number`` of ``n_ranges``, sorted by key: lengths and ids."""
    width = (1 << 64) // n_ranges
    bounds = [number * width] if number + 1 == n_ranges else [number * width, (number + 1) * width]
    blocks = []
    for part in parts:
        keys = np.memmap(job.path("sorted", part) / "keys", np.uint64, "r")
        begin, end = [*np.searchsorted(keys, np.array(bounds, np.uint64)).tolist(), len(keys)][:2]
        arrays = ArrayFile(job.path("sorted", part) / STREAM_FILE)
        lines = arrays["lines"][begin : end + 1]
        blocks.append((keys[begin:end], np.diff(lines).astype(np.int32), arrays["ids"][lines[0] : lines[-1]]))
    lengths, ids = (np.concatenate([block[i] for block in blocks]) for i in (1, 2))
    order = np.argsort(np.concatenate([keys for keys, _, _ in blocks]))
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    return lengths[order], gather(ids, starts[order], lengths[order])


DOCUMENTS_AT_ONCE = 4 << 20
"""Documents whose duplicates one task finds."""


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
    """Prepare a corpus on the nodes of ``cluster``; files and result are those of ``prepare_corpus``.

    All nodes must see the sources and ``folder``, which must be empty or of an interrupted call. Each task uses at most
    ``max_memory`` bytes for the shuffle; this process holds the vocabulary and a hash of each document.
    Raises the errors of ``prepare_corpus``, and ``InputError`` if a node does not see the files.
    """
    check_resources(folder, max_memory, size_hint, progress)
    cluster.require_shared(folder)
    cluster.require_files([Path(path) for path in reading.paths])
    parts = parts_of(reading.pieces(), reading.recipe.format, cluster.run, reading.recipe.sample_by)
    job = SplitJob(reading, _job_folder(folder, parts, splitter_file, config, max_memory), config, max_memory)
    split_facts = _split_parts(cluster, job, parts, progress, size_hint)
    n_documents = sum(facts["documents"] for facts in split_facts)
    n_shares = 1 + n_documents // DOCUMENTS_AT_ONCE
    duplicates = list(make_all(cluster, job, "documents", find_duplicates, range(n_shares), n_shares, len(parts)))
    line_counts = list(make_all(cluster, job, "counts", count, range(len(parts)), n_shares))
    n_words = number_words(job, n_documents, folder, len(parts))
    n_lines, n_tokens = ([facts[name] for facts in line_counts] for name in ("lines", "tokens"))
    sizes = sum(n_lines), sum(n_tokens)
    lines = _by_key(cluster, job, n_lines, n_buckets(sizes[1], job.max_memory), progress)
    write_stream(folder / STREAM_FILE, lines, *sizes, job.folder / "offsets", progress)
    if config.heldout:
        with open(folder / HELDOUT, "wb") as output:
            for part in range(len(parts)):
                with suppress(FileNotFoundError), open(job.path("text", part) / HELDOUT, "rb") as file:
                    shutil.copyfileobj(file, output)
    return {
        "documents": n_documents,
        "duplicates": sum(facts["duplicates"] for facts in duplicates),
        "text_bytes": sum(facts["text_bytes"] for facts in split_facts),
        "lines": sum(n_lines),
        "tokens": sum(n_tokens),
        "words": n_words,
    }


def _split_parts(
    cluster: Cluster, job: SplitJob, parts: list[tuple[Piece, ...]], progress: Progress, size_hint: int | None
) -> list[Json]:
    """Split all parts, and add their counts to ``job.reading``."""
    if n_split := sum(job.path("text", part).is_dir() for part in range(len(parts))):
        progress.note(f"{n_split:,} of {counted(len(parts), 'part')} of the text were split before")
    facts = []
    with progress.bar("splitting text into words", size_hint, "bytes") as bar:
        for part_facts in make_all(cluster, job, "text", split, parts):
            facts.append(part_facts)
            job.reading.add(part_facts["read"], part_facts["skipped"])
            bar.advance(part_facts["text_bytes"])
    job.reading.require_text()
    return facts


def _by_key(cluster: Cluster, job: SplitJob, n_lines: list[int], n_ranges: int, progress: Progress) -> LineBlocks:
    """Sort the parts, of ``n_lines`` each, then yield all lines in the order of keys: lengths and ids of each range."""
    with progress.bar("numbering words by frequency", sum(n_lines), "lines") as bar:
        first_lines = accumulate(n_lines[:-1], initial=0)
        for part, facts in enumerate(make_all(cluster, job, "sorted", sort, [*enumerate(first_lines)])):
            job.lines(part).remove()
            bar.advance(facts["lines"])
    filled = [part for part, n in enumerate(n_lines) if n]
    yield from cluster.run(merge_range, range(n_ranges), job, n_ranges, filled)


def _job_folder(
    folder: Path, parts: list[tuple[Piece, ...]], splitter_file: Path, config: CorpusConfig, max_memory: int
) -> Path:
    """Create the folder of this job in ``folder``, with the tokenizer; remove folders of other jobs."""
    texts = [[asdict(piece) for piece in part] for part in parts]
    tokenizer = tokenizer_json(splitter_file)
    key = hash_json([__version__, asdict(config), max_memory, sha256(tokenizer).hexdigest(), texts])
    job_folder = folder / f"parts-{key[:16]}"
    for path in folder.iterdir():
        if path.is_dir() and path != job_folder:
            shutil.rmtree(path)
    job_folder.mkdir(exist_ok=True)
    for unfinished in job_folder.glob("*.part"):
        shutil.rmtree(unfinished)
    (job_folder / TOKENIZER_FILE).write_bytes(tokenizer)
    return job_folder
