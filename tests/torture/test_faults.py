"""A short slice of the campaign with fixed seeds: faults in one stage, and ten processes that start the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torture import concurrency, downloads, faults, trials, uploads

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torture")


@pytest.fixture(scope="module")
def parts(folder: Path) -> Iterator[dict[str, Any]]:
    """All parts in one folder, so that they share inputs and start states."""
    kinds = (faults.Faults, downloads.Downloads, uploads.Uploads, concurrency.Concurrency)
    instances = {kind.__name__: kind(folder, 1.0) for kind in kinds}
    yield instances
    for part in instances.values():
        part.close()


@pytest.mark.parametrize(
    ("part", "case"),
    [
        *(("Faults", f"{kind}/corpus") for kind in ("kill", "term", "size", "lock")),
        ("Downloads", "download/truncate"),
        ("Downloads", "download/lie"),
        ("Uploads", "upload/cut"),
        ("Concurrency", "ten/corpus"),
    ],
)
def test_nothing_is_lost(parts: dict[str, Any], part: str, case: str) -> None:
    records = list(parts[part].attempt(case, 1))
    assert [record.outcome for record in records] == ["survived"], records


def test_a_result_that_is_not_whole_is_noticed(parts: dict[str, Any]) -> None:
    """What would be lost is found: a file of a result with other bytes, and a result that is gone."""
    bench = parts["Faults"]._bench
    stage = bench.stages["corpus"]
    reference = bench.reference(stage, True)
    for damage in ("changed", "gone"):
        bench.restore(stage, True)
        [link] = bench.run.glob("ws/*/*/corpus")
        if damage == "changed":
            (link / "vocabulary.tsv").write_text("")
        else:
            link.unlink()
        with pytest.raises(trials.PromiseError) as error:
            bench.require(stage, reference.before, reference.after)
        assert error.value.outcome.outcome == "lost"
