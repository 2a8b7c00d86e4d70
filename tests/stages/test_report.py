"""The report says what manifests and files say."""

import json
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lxml import html as parser
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.store.results import read_manifest
from tests.conftest import Run, tiny_model_in
from tests.support.small_tasks import KNOWN, ner_file, worded_model

SETTINGS = ("--task", "ner", "--epochs", 3, "--batch-size", 8, "--learning-rate", 7e-3, "--precision", "float32")
ADDED = ["".join(parts) for parts in product("tvw", "aeiou", "xyz")]


def command(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace ``ws`` with an adapted model, and ``ner`` and ``ner-worded``, that and its base trained alike."""
    folder = tmp_path_factory.mktemp("report")
    model = worded_model(partial(tiny_model_in, folder))
    draw = Random(1)
    (folder / "papers.txt").write_text(
        "".join(" ".join(draw.choices([*KNOWN, *ADDED], k=12)) + "\n" for _ in range(300)), "utf-8"
    )
    space = ("--workspace", folder / "ws")
    common = ("--epochs", 2, "--workers", 1, "--dim", 16, "--rows", "form")
    command("adapt", "-c", folder / "papers.txt", "-m", model, *space, *common)
    (adapted,) = (folder / "ws").glob("names/*/*/expand")
    for name, seed in (("train", 0), ("dev", 1), ("test", 2)):
        ner_file(folder / f"{name}.tsv", 32, seed)
    files = [part for name in ("train", "dev", "test") for part in (f"--{name}", folder / f"{name}.tsv")]
    tuning = ("finetune", "-m", adapted, *files, *SETTINGS, "--compare", model, "--out", folder / "ner", "--json")
    (folder / "compared.json").write_text(command(*tuning))
    return folder


@pytest.fixture(scope="module")
def trained(results: Path) -> Any:
    """The page of the two fine-tuned models."""
    (base,) = results.glob("ner-*")
    command("report", results / "ner", base, "--out", results / "tasks.html")
    return parser.document_fromstring((results / "tasks.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def of_workspace(results: Path) -> tuple[dict[str, Any], Any]:
    """What the command prints, and the page."""
    report = json.loads(command("report", "--workspace", results / "ws", "--out", results / "ws.html", "--json"))
    return report, parser.document_fromstring(Path(report["page"]).read_text("utf-8"))


def tables(page: Any) -> dict[str, list[list[str]]]:
    return {
        table.xpath("string(caption)"): [[cell.text_content() for cell in row] for row in table.xpath("tbody/tr")]
        for table in page.xpath("//table")
    }


@pytest.mark.slow
def test_the_page_has_the_numbers_of_the_manifests(results: Path, of_workspace: tuple[dict[str, Any], Any]) -> None:
    report, page = of_workspace
    assert report["sections"] == ["rows", "map", "cost"]
    assert len(page.xpath("//figure//*[local-name()='svg']")) == 3
    assert report["bytes"] == (results / "ws.html").stat().st_size
    by_caption = tables(page)
    folders = {
        stage: next((results / "ws").glob(f"names/*/*/{stage}")) for stage in ("corpus", "w2v", "align", "expand")
    }
    manifests = {stage: read_manifest(folder) for stage, folder in folders.items()}
    costs = {row[0]: row for row in by_caption["Results and their cost"]}
    assert [*costs] == [*manifests, "all"]
    assert [costs[stage][1] for stage in manifests] == [
        f"{manifest.cost['seconds']:,.1f}" for manifest in manifests.values()
    ]
    figures = manifests["align"].facts["heldout"]["figures"]
    (quality, _form) = by_caption["Rows of held-out words, predicted"]
    assert quality[2] == f"{figures['r2']:.3f}"
    assert quality[5] == f"{figures['base_rows']['cosine']['precision_at_10']:.1%}"


@pytest.mark.slow
def test_the_adapted_model_is_compared_with_its_base(results: Path, trained: Any) -> None:
    ours, theirs = json.loads((results / "compared.json").read_text())["comparison"]
    by_caption = tables(trained)
    (rows,) = (rows for name, rows in by_caption.items() if name.endswith("95 % intervals"))
    assert sorted(row[1] for row in rows) == sorted(f"{row['score']:.2%}" for row in (ours, theirs))
    assert [row[4:] for row in rows if row[4]] == [
        [f"{100 * theirs[name]:+.2f}" for name in ("difference", "low", "high")]
    ]
    # The page also covers what the models were made from.
    assert [row[0] for row in by_caption["Results and their cost"]][:4] == ["corpus", "w2v", "align", "expand"]


def test_a_workspace_without_results_is_refused(run_alone: Run, tmp_path: Path) -> None:
    run_alone("report", code=1)
    run_alone("report", tmp_path, code=1)
    run_alone("report", tmp_path, "-c", "papers", code=2)
    assert not list(tmp_path.glob("*.html"))
