"""Are adapted models better? Sets × label budgets × seeds × arms × models, in one table.

    python benchmarks/gain --data DATA --corpus TEXT --work DIR --sets NCBI-disease BC2GM --budgets 300 600 --seeds 3 \\
        --arms base control norm --model minilm

``plan`` chooses peak rate and epochs for each set, budget and model: on the base model's development score, over
``--rates`` and ``--epoch-counts``; every arm then has the same. ``run`` does so first for what is not planned, unless
``--learning-rate`` and ``--epochs`` are given. ``report`` makes the table of what is there.

Training examples are drawn by the seed, the same for all arms. All arms, sets and budgets come under one seed before
the next seed, so that a stopped laboratory has a balanced table. Each finished run is a line of ``runs.jsonl`` in
``--work`` with all of its settings; its statistics are beside it. The same command goes on from there. Other settings
are other runs: the table has those that the command asks for.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

if not __package__:  # started as a folder
    sys.path[0] = str(Path(__file__).parents[1])

from records import resumable
from trainings import add_cluster_options, train_first

from gain.arms import ARMS, BASE, CONTROL, runnable, with_base
from gain.report import write_report
from gain.runs import Cell, Lab, Limits
from gain.sets import find_set
from greenadapt.config import RunConfig, TrainConfig
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json
from greenadapt.storage.workspace import Workspace


def main(arguments: list[str] | None = None) -> None:
    """Do what is missing, and print the table after each seed."""
    options = _options(arguments)
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    from greenadapt.cli.output.console import make_progress

    session = Session(Workspace(options.work / "workspace"), make_progress(), workers=options.workers)
    limits = Limits(options.test_sentences, options.dev_sentences, options.max_length, options.max_tokens)
    lab = Lab(session, options.work, dict(map(_corpus, options.corpus)), limits)
    if options.command == "plan":
        for cell in _cells(options):
            training = _training(lab, options, cell)
            print(f"{cell.model}, {cell.of.name}, {cell.budget or 'all'}: {training.epochs} epochs at "
                  f"{training.learning_rate:g}", flush=True)  # fmt: skip
        return
    if options.command == "report":
        print(write_report(lab, _asked_for(lab, options), options.table), flush=True)
        return
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    arms = runnable(with_base(options.arms), session.progress)
    spread = [arm for arm in arms if not ARMS[arm].trial]  # a trial changes this process
    planned = [(cell, _training(lab, options, cell)) for cell in _cells(options)]
    each = [
        partial(lab.run, cell, arm, seed, training, _label(arm, options))
        for seed in seeds
        for cell, training in planned
        for arm in spread
    ]
    train_first(session, options, each)
    done: list[Json] = []
    for seed in seeds:
        for cell, training in planned:
            done += [lab.run(cell, arm, seed, training, _label(arm, options)) for arm in arms]
        print(write_report(lab, done, options.table), flush=True)


def _cells(options: argparse.Namespace) -> Iterator[Cell]:
    sets = [find_set(options.data, name) for name in options.sets]
    for model in options.model:
        for budget in options.budgets:
            for one in sets:
                yield Cell(model, one, budget)


def _training(lab: Lab, options: argparse.Namespace, cell: Cell) -> TrainConfig:
    """The settings of a cell, given or planned."""
    shared = TrainConfig(precision=options.precision, batch_size=options.batch_size)
    rates = [options.learning_rate] if options.learning_rate else options.rates
    epochs = [options.epochs] if options.epochs else options.epoch_counts
    grid = {"learning_rate": rates, "epochs": epochs}
    if len(rates) == len(epochs) == 1:
        return replace(shared, learning_rate=rates[0], epochs=epochs[0])
    points = [{name: [value] for name, value in zip(grid, values, strict=True)} for values in product(*grid.values())]
    train_first(lab.session, options, [partial(lab.plan, cell, point, shared) for point in points])
    return lab.plan(cell, grid, shared)


def _asked_for(lab: Lab, options: argparse.Namespace) -> list[Json]:
    """The finished runs of the sets, budgets, models and arms that are asked for; of equal ones the last."""
    asked = {
        "set": options.sets,
        "budget": options.budgets,
        "model": options.model,
        "arm": [f"{arm}{_label(arm, options)}" for arm in with_base(options.arms)],
    }
    asked_for = [
        one
        for one in lab.runs.by_key.values()
        if all(one[name] in known for name, known in asked.items())
        and options.learning_rate in (None, one["settings"]["training"]["learning_rate"])
        and options.epochs in (None, one["settings"]["training"]["epochs"])
    ]
    # Only what ran under the same conditions is compared: those of the base model's last run.
    conditions = {_place(one): _conditions(one) for one in asked_for if one["arm"] == BASE}
    same = [one for one in asked_for if conditions.get(_place(one)) == _conditions(one)]
    return list({(*_place(one), one["arm"], one["seed"]): one for one in same}.values())


def _place(one: Json) -> tuple[object, ...]:
    return one["model"], one["set"], one["budget"]


def _conditions(one: Json) -> list[object]:
    """What arms that are compared have in common, besides the training examples of each seed."""
    settings = one["settings"]
    training = [settings["training"][name] for name in ("learning_rate", "epochs", "batch_size", "precision")]
    return [settings["measured"], settings["task"], settings["max_tokens"], *training]


def _label(arm: str, options: argparse.Namespace) -> str:
    """What is added to the name of an arm that depends on the corpus."""
    return options.label if ARMS[arm].reads_text else ""


def _corpus(given: str) -> tuple[str, Path]:
    """``FILE`` or ``SET=FILE``."""
    name, equals, file = given.partition("=")
    return (name, Path(file)) if equals else ("", Path(given))


def _budget(given: str) -> int | None:
    return None if given == "all" else int(given)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("gain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="run", choices=["plan", "run", "report"])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of sets, or of folders ner, classification, qa"
    )
    parser.add_argument("--corpus", nargs="+", default=[], metavar="[SET=]FILE",
                        help="unlabelled text of the domain, of all sets or of one")  # fmt: skip
    parser.add_argument("--work", type=Path, required=True, help="where all of it is kept")
    parser.add_argument("--sets", nargs="+", required=True, help="folders, or FILE:FOLD for questions in FILE.json")
    parser.add_argument("--budgets", nargs="+", type=_budget, default=[300], help="training examples, numbers or all")
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--arms", nargs="+", default=[BASE, CONTROL, "norm"], choices=[*ARMS])
    parser.add_argument("--model", nargs="+", default=["minilm"])
    parser.add_argument("--label", default="", help="added to the names of adapted arms, such as @2M for a corpus")
    parser.add_argument("--learning-rate", type=float, help="peak rate; planned by default")
    parser.add_argument("--epochs", type=int, help="planned by default")
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-4, 2e-4, 4e-4], help="to choose from")
    parser.add_argument("--epoch-counts", nargs="+", type=int, default=[8, 20], help="to choose from")
    parser.add_argument("--batch-size", type=int, default=TrainConfig.batch_size)
    parser.add_argument("--test-sentences", type=int, help="measure on so many, drawn once; all by default")
    parser.add_argument("--dev-sentences", type=int, default=500, help="the same, where rate and epochs are chosen")
    parser.add_argument("--precision", default=TrainConfig.precision, choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--max-length", type=int, help="pieces read at once; the model's limit by default")
    parser.add_argument("--max-tokens", type=int, default=RunConfig.max_tokens)
    parser.add_argument("--workers", type=int, default=2, help="processes for corpus and vectors")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    parser.add_argument("--table", type=Path, help="file for the table; table.md in --work by default")
    add_cluster_options(parser)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    options.table = options.table or options.work / "table.md"
    return options


if __name__ == "__main__":
    resumable(main)
