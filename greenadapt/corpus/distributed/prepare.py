"""From documents to a prepared corpus on the nodes of a cluster: what is done where, and in which order."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

from greenadapt import __version__
from greenadapt.cluster import Cluster
from greenadapt.config import CorpusConfig
from greenadapt.corpus.distributed import tasks
from greenadapt.corpus.distributed.counts import number_words
from greenadapt.corpus.distributed.job import DOCUMENTS, TOKENIZER, Job
from greenadapt.corpus.heldout import HELDOUT
from greenadapt.corpus.pieces import Piece, parts_of
from greenadapt.corpus.readers import CorpusReader
from greenadapt.corpus.seen import write_seen
from greenadapt.corpus.steps import STREAM_FILE, Stream, check_resources, n_buckets, write_stream
from greenadapt.errors import counted
from greenadapt.progress import Progress
from greenadapt.storage.arrays import ArrayFile, Int32Array
from greenadapt.storage.files import Json, hash_json
from greenadapt.tokenization.vocabulary import tokenizer_json

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
    job = Job(reading, _job_folder(folder, parts, splitter_file, config, max_memory), config, max_memory)
    split = _split(cluster, job, parts, progress, size_hint)
    n_documents = sum(each["documents"] for each in split)
    n_shares = 1 + sum(each["hashes"] for each in split) // DOCUMENTS_AT_ONCE
    found = list(cluster.run(tasks.find_duplicates, range(n_shares), job, n_shares, len(parts)))
    kept = list(cluster.run(tasks.count, range(len(parts)), job, n_shares))
    n_words, n_levels = number_words(cluster, job, n_documents, folder, len(parts))
    n_lines, n_tokens = ([each[name] for each in kept] for name in ("lines", "tokens"))
    stream = Stream(_by_key(cluster, job, n_lines, n_levels, progress), sum(n_lines), sum(n_tokens))
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
    cluster: Cluster, job: Job, parts: list[tuple[Piece, ...]], progress: Progress, size_hint: int | None
) -> list[Json]:
    """Split all parts, and have ``job.reading`` count what was read."""
    if done := sum(job.text(part).is_dir() for part in range(len(parts))):
        progress.note(f"{done:,} of {counted(len(parts), 'part')} of the text were split before")
    facts = []
    with progress.bar("splitting text into words", size_hint, "bytes") as bar:
        for each in cluster.run(tasks.split, enumerate(parts), job):
            facts.append(each)
            job.reading.add(each["read"])
            bar.advance(each["text_bytes"])
    job.reading.require_text()
    return facts


def _by_key(
    cluster: Cluster, job: Job, n_lines: list[int], n_levels: int, progress: Progress
) -> Iterator[tuple[Int32Array, Int32Array]]:
    """The lines of all parts, ``n_lines`` of each, in the order of their keys, in blocks of lengths and ids."""
    n_tokens = 0
    with progress.bar("numbering words by frequency", sum(n_lines), "lines") as bar:
        firsts = accumulate(n_lines[:-1], initial=0)
        for each in cluster.run(tasks.sort, enumerate(firsts), job, n_levels):
            n_tokens += each["tokens"]
            bar.advance(each["lines"])
    n_ranges = n_buckets(n_tokens, job.max_memory)
    filled = [part for part, n in enumerate(n_lines) if n]
    yield from cluster.run(tasks.merge_range, range(n_ranges), job, n_ranges, filled)


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
