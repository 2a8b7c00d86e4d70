"""Every command that writes, on inputs so small that it takes about a second: what it reads, and what it must leave."""

import json
import random
import shutil
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.conftest import tiny_model_in
from tests.support.processes import MODULE, Forked
from tests.support.small_multitask import task_file
from tests.support.small_tasks import VOCABULARY, adapted, known_text, ner_file, qa_file, texts_file, worded_model

Command = tuple[str, ...]
_TRAINED = {
    "ner": "--task ner --train ner.tsv --test ner2.tsv",
    "qa": "--task qa --train qa.json --test qa2.json",
    "many": "--tasks tasks.toml",
}
"""What later commands read, and how it is trained."""
_FILE = Path(__file__).with_name("stages.toml")


@dataclass(frozen=True)
class Stage:
    """A command of ``stages.toml``."""

    name: str
    run: Command
    before: tuple[Command, ...] = ()
    earlier: tuple[Command, ...] = ()
    probe: Command = ()
    """Its output says what a result has, where the same command does not give the same bytes or changes them bit by
    bit.
    """
    force: str = "--force"
    """The option by which ``run`` replaces what ``earlier`` made."""
    again: str = ""
    """Where the command cannot run twice: what it says, with exit code 1, if it has run."""


def stages() -> dict[str, Stage]:
    """All, by name, in the order of the file."""
    content = tomllib.loads(_FILE.read_text("utf-8"))
    names = content.pop("names")

    def filled(text: str) -> Command:
        return tuple(text.format(**names).split())

    return {
        name: Stage(
            name,
            filled(table["run"]),
            tuple(map(filled, table.get("before", ()))),
            tuple(map(filled, table.get("earlier", ()))),
            filled(table.get("probe", "")),
            table.get("force", "--force"),
            table.get("again", ""),
        )
        for name, table in content.items()
    }


def make_inputs(folder: Path) -> None:
    """Make models, texts and labelled files, unless they exist."""
    if (folder / "complete").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    draw = random.Random(1)
    new = ["".join(draw.choices("bcdfgaeiou", k=7)) for _ in range(300)]
    lines = [" ".join(draw.choices([*VOCABULARY * 6, *new], k=25)) + "\n" for _ in range(1300)]
    for name, n in {"text": 1000, "more": 1300, "short": 60, "few": 12}.items():
        (folder / f"{name}.txt").write_text("".join(lines[:n]))
    tiny = partial(tiny_model_in, folder)
    adapted(tiny)
    worded_model(tiny)
    (folder / "words.txt").write_text(known_text())
    tiny(name="trained", initializer_range=0.3)
    for number, suffix in enumerate(("", "2")):
        ner_file(folder / f"ner{suffix}.tsv", 40 - 20 * number, number)
        texts_file(folder / f"texts{suffix}.jsonl", 40 - 20 * number, number)
        qa_file(folder / f"qa{suffix}.json", 20 - 10 * number, number)
    tasks = {"entities": ("ner", "ner"), "topics": ("classification", "ill.1"), "third": ("classification", "ill.1")}
    blocks = {}
    for name, (kind, source) in tasks.items():
        files = {part: task_file(folder, source, part).name for part in ("train", "test")}
        values = {"name": name, "kind": kind, **files, "max-length": 64}
        blocks[name] = "[[task]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    (folder / "tasks.toml").write_text(blocks["entities"] + blocks["topics"])
    (folder / "third.toml").write_text(blocks["third"])
    (folder / "complete").touch()


def reads_models(stage: Stage) -> bool:
    """Whether it reads what ``make_models`` makes."""
    return any(f"../in/{name}" in command for command in (stage.run, *stage.before) for name in _TRAINED)


def make_models(folder: Path) -> None:
    """Train the models that later commands read, by the commands themselves."""
    if (folder / "trained-all").exists():
        return
    for name, options in _TRAINED.items():
        run_all([tuple(f"finetune {options} -m adapted --epochs 2 --batch-size 8 --lr 7e-3 -o {name}".split())], folder)
    (folder / "trained-all").touch()


def run_all(commands: Iterable[Command], folder: Path) -> None:
    """Run commands that must succeed, or copy files."""
    for command in commands:
        if command[0] == "cp":
            source, target = (folder / name for name in command[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
            continue
        ended = Forked([*MODULE, *command], folder).completed(300)
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr[-2000:]}")
