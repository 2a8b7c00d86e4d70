"""The counts of words of all parts, merged in a tree."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from greenadapt.cluster import Cluster
from greenadapt.corpus.distributed.job import NUMBERS, Job, made
from greenadapt.corpus.steps import VOCABULARY_FILE, write_by_frequency
from greenadapt.corpus.stream import Numbering
from greenadapt.corpus.word_counts import read_vocabulary, write_vocabulary
from greenadapt.storage.arrays import ArrayFile, Int32Array, Int64Array, write_arrays
from greenadapt.storage.files import Json

_AT_ONCE = 16
"""Counts that are merged at once."""


def number_words(cluster: Cluster, job: Job, n_documents: int, folder: Path, n_parts: int) -> tuple[int, int]:
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


def numbers_of(part: int, job: Job, n_levels: int) -> Int32Array:
    """The number in the vocabulary of each word of a part, int32 ``(n_words,)``."""
    numbers: Int32Array | None = None
    group = part
    for level in range(n_levels):
        group, place = divmod(group, _AT_ONCE)
        merged = ArrayFile(job.merged(level, group) / NUMBERS)[str(place)]
        numbers = merged if numbers is None else merged[numbers]
    assert numbers is not None
    return numbers
