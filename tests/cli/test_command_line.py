"""The command line as manifests and cards keep it."""

from pathlib import Path
from typing import Any

import pytest
import typer.main

from greenadapt.cli import app
from greenadapt.cli.options import COMMAND


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (
            [
                "finetune",
                "-m",
                "/home/me/model",
                "--train",
                "owner/n:train",
                "--lr",
                "7e-3",
                "--whole-sentences",
                "--json",
            ],
            "--model model --train owner/n:train --learning-rate 7e-3 --whole-sentences",
        ),
        (
            [
                "finetune",
                "--train=a b.tsv",
                "--train",
                "/x/c.tsv",
                "--force",
                "-q",
                "-o",
                "/home/me/run",
                "--seeds",
                "2",
            ],
            "--train 'a b.tsv' --train c.tsv --seeds 2 --out FOLDER",
        ),
        (["w2v", "-c", "https://me:secret@host/a.txt?token=secret", "--cbow-sum"], "--corpus a.txt --cbow-sum"),
        (["w2v", "--workspace", "/home/me/ws", "--dim", "3"], "--dim 3"),
        (["neighbours", "x" * 5000, "~nobody-here", "\udcff"], f"{'x' * 5000} '~nobody-here' '?'"),
        (["neighbours", "heart", "-c", "text"], "heart --corpus text"),
        (["adapt", "-m", "bert", "/home/me/a.txt", "--seed", "2"], "--model bert --seed 2 --corpus a.txt"),
    ],
)
def test_what_is_kept(given: list[str], kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    group: Any = typer.main.get_command(app)
    context = group.make_context("greenadapt", given)
    group.get_command(context, given[0]).make_context(given[0], given[1:], parent=context)
    assert COMMAND.get() == f"greenadapt {given[0]} {kept}"
