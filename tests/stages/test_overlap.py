"""A result never replaces what it is made from."""

from pathlib import Path

import pytest

from greenadapt.corpus.opening import source_input
from greenadapt.errors import UsageError
from greenadapt.storage.jobs import Job, Outcome, Place, run_job
from tests.conftest import Notes, Run, last_line
from tests.support.small_tasks import TinyModel, ner_file


def build(work: Path) -> Outcome:
    (work / "model").write_text("trained")
    return Outcome({})


@pytest.fixture
def adapted(tmp_path: Path) -> Path:
    path = tmp_path / "all" / "adapted"
    for folder in (path.parent, path):
        run_job(Place(folder, linked=False), Job("expand", {}, {}, build), force=False, progress=Notes())
    (tmp_path / "link").symlink_to(tmp_path / "all")
    return path


@pytest.mark.parametrize(
    ("out", "how"), [("all/adapted", "is"), ("link/adapted", "is"), ("link/adapted/ner", "lies in"), ("all", "holds")]
)
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_read_is_not_written(adapted: Path, tmp_path: Path, out: str, how: str, force: bool) -> None:
    job = Job("finetune", {}, {"model": source_input(str(adapted))}, build)
    with pytest.raises(UsageError, match=rf"{tmp_path / out} {how} {adapted}, which is an input \(model\)"):
        run_job(Place(tmp_path / out, linked=False), job, force=force, progress=Notes())
    assert [path.name for path in sorted(adapted.iterdir())] == ["manifest.json", "model"]
    beside = tmp_path / "all" / "adapted-ner"
    assert run_job(Place(beside, linked=False), job, force=force, progress=Notes()).fresh


def test_by_the_commands(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model("BertForMaskedLM")
    train = ner_file(tmp_path / "train.tsv")
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    for command in (
        ("finetune", "--task", "ner", "--train", train),
        ("pretrain", "--text", train, "--format", "text"),
    ):
        refused = run_alone(*command, "--model", model, "--out", model / "new", "--force", code=2)
        assert f"{model / 'new'} lies in {model}, which is an input (--model)" in last_line(refused)
        refused = run_alone(*command, "--model", model, "--out", model, "--force", code=1)
        assert "holds no greenadapt result" in last_line(refused)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
