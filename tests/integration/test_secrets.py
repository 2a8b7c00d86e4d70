"""Secrets of the environment are in no output and in no file, whatever is run."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Run, tiny_model_in
from tests.support.small_tasks import ner_file

SECRET = "swordfish-0123456789"
VARIABLES = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "GREENADAPT_SERVE_TOKEN",
    "OPENAI_API_KEY",
    "RAY_AUTH_TOKEN",
)


@pytest.mark.slow
def test_secrets_are_nowhere(tmp_path: Path, run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("HF_ENDPOINT", f"http://user:{SECRET}@127.0.0.1:9")
    model = partial(tiny_model_in, tmp_path)(name="base")
    (tmp_path / "text.txt").write_text("the tachycardia of a patient with coronavirus\n" * 300)
    ner_file(tmp_path / "train.tsv")
    quick = ("--workers", 1, "--epochs", 1, "--min-count", 1, "--dim", 8)
    results = [
        run_alone("adapt", "-c", "text.txt", "-m", model, *quick, "--verbose"),
        run_alone("status"),
        run_alone("cost"),
        run_alone("doctor"),
        run_alone("corpus", "prepare", f"https://me:{SECRET}@127.0.0.1:9/a.txt", code=1),
        run_alone("corpus", "prepare", f"https://{SECRET}:x@bucket/a.txt", code=1),
        run_alone("corpus", "prepare", "text.txt", "-m", "owner/none", code=1),
        run_alone("finetune", "--train", "owner/none:train", "--task", "ner", "-m", model, code=1),
        run_alone("push", model, "owner/name", code=1),
    ]
    shutil.rmtree(model)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 10  # those of a workspace
    holding = [path for path in files if SECRET.encode() in path.read_bytes()]
    assert holding == []
    assert not [result for result in results if SECRET in result.stdout + result.stderr]
