"""The command line as manifests and cards record it."""

import shlex
from pathlib import Path

import pytest

from greenadapt.cli.settings import command_line
from tests.support.pages import GROUP


@pytest.mark.parametrize(
    ("command", "recorded"),
    [
        (
            "finetune -m /home/me/model --train owner/n:train --lr 7e-3 --gold-chunks --json",
            "--train owner/n:train --model model --learning-rate 0.007 --gold-chunks",
        ),
        (
            "finetune '--train=a b.tsv' --train /x/c.tsv -q -o /home/me/run --seeds 2",
            "--train 'a b.tsv' --train c.tsv --seeds 2 --out FOLDER",
        ),
        ("w2v -c https://me:secret@host/a.txt?token=secret --drop-duplicates", "--corpus a.txt --drop-duplicates"),
        (f"neighbours {'x' * 5000} ~nobody-here \udcff", f"{'x' * 5000} '~nobody-here' '?'"),
        ("neighbours heart -c text", "heart --corpus text"),
        ("adapt -m bert /home/me/a.txt --seed 2", "a.txt --model bert --seed 2"),
    ],
)
def test_recorded_command(command: str, recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, *words = shlex.split(command)
    context = GROUP.make_context("greenadapt", [name, *words])
    GROUP.get_command(context, name).make_context(name, words, parent=context)
    assert command_line() == f"greenadapt {name} {recorded}"
