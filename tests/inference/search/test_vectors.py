"""Vectors of paragraphs in files that are merged."""

from pathlib import Path

import numpy as np
import pytest

from greenadapt.errors import ResourceError
from greenadapt.inference.search.store import FolderStore
from greenadapt.inference.search.vectors import VectorFiles
from tests.integration.test_full_disk import full_at


def test_batches_are_merged_into_few_files_that_find_the_nearest(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    (tmp_path / "vectors").mkdir()
    files, reader = VectorFiles(FolderStore(tmp_path)), VectorFiles(FolderStore(tmp_path))
    for begin in range(0, 200, 10):
        files.add(range(begin, begin + 10), vectors[begin : begin + 10])
    files.add([3, 199], vectors[[3, 199]])  # again, as after a kill
    assert len([*(tmp_path / "vectors").iterdir()]) <= 5
    reader.refresh()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for query in (0, 57, 199):
        cosines = unit @ unit[query]
        nearest = reader.search(vectors[query], 5)
        assert [key for key, _ in nearest] == np.argsort(-cosines)[:5].tolist()
        assert [cosine for _, cosine in nearest] == pytest.approx(np.sort(-cosines)[:5] * -1, abs=2e-3)
    assert 57 in reader
    assert 200 not in reader

    files.drop(lambda keys: {key for key in keys if key % 2 == 0})
    reader.refresh()
    assert [key for key, _ in reader.search(vectors[57], 200)] != []
    assert all(key % 2 == 0 for key, _ in reader.search(vectors[57], 200))
    assert len(reader) == 100

    for key in (7, 8):  # both times in a file of the same name
        files.drop(lambda _: set())
        files.add([key], vectors[[key]])
        reader.refresh()
        assert [nearest for nearest, _ in reader.search(vectors[key], 5)] == [key]


@pytest.mark.parametrize("missing", [300, 20_000])
def test_a_full_disk_leaves_the_vectors_before(tmp_path: Path, missing: int) -> None:
    """The last bytes are written when usearch closes the file, and it does not notice if that fails."""
    vectors = np.random.default_rng(0).normal(size=(500, 32)).astype(np.float32)
    for name in ("whole", "full"):
        (tmp_path / name / "vectors").mkdir(parents=True)
    VectorFiles(FolderStore(tmp_path / "whole")).add(range(500), vectors)
    [whole] = (tmp_path / "whole" / "vectors").iterdir()
    files = VectorFiles(FolderStore(tmp_path / "full"))
    with full_at(whole.stat().st_size - missing), pytest.raises(ResourceError, match=r"00000001.*full"):
        files.add(range(500), vectors)
    assert len(VectorFiles(FolderStore(tmp_path / "full"))) == 0
    files.add(range(500), vectors)
    assert (tmp_path / "full" / "vectors" / whole.name).read_bytes() == whole.read_bytes()
