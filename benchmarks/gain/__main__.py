"""Are adapted models better? Sets × label budgets × seeds × arms × models, in one table.

    python benchmarks/gain --data DATA --arms base control pieces-both both --budgets 300 --seeds 3

``recipe`` tries ``--rates`` and ``--step-counts`` on development sets, for the base model and for ``both``, and prints
the table and the choice. ``run`` trains with that choice, unless ``--learning-rate`` and ``--steps`` are given; all
arms make the same number of steps. ``report`` makes the table of what is there.

Training examples are drawn by the seed, the same for all arms. All arms, sets and budgets come under one seed before
the next seed, and all sets and both arms before the next point of the grid, so that a stopped laboratory has a balanced
table. Each finished run is a line in ``--results``, with all of its settings, its scores and the counts of each test
sentence, and no weights: ``gain-MODEL-BUDGET.jsonl``, and ``recipe-MODEL.jsonl``. What is there is not run again, also
not on another machine. Other settings are other runs: the table has those that the command asks for.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import get_args

if not __package__:  # started as a folder
    sys.path[0] = str(Path(__file__).parents[1])

from records import resumable
from trainings import add_cluster_options, train_first

from gain.arms import ARMS, BASE, CONTROL, DEFAULT, runnable, with_base
from gain.recipe import TRIED, UNTRIED, Recipe, Tried
from gain.report import write_report
from gain.runs import Cell, Lab, Limits, recipe_file
from gain.sets import DOMAINS, find_set, texts_in
from greenadapt.config import Decoding, SessionOptions, TrainConfig
from greenadapt.errors import MissingError
from greenadapt.stages.session import Session
from greenadapt.store.files import Json
from greenadapt.store.workspace import Workspace

RESULTS = Path(__file__).parents[1] / "results"


def main(arguments: list[str] | None = None) -> None:
    """Do the missing runs, and print the table after each seed."""
    options = _options(arguments)
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    from greenadapt.cli.output.console import make_progress

    session = Session(Workspace(options.work / "workspace"), make_progress(), workers=options.workers)
    limits = Limits(
        options.test_sentences,
        options.dev_sentences,
        options.max_length,
        options.max_tokens,
        options.chunk,
        options.decoding,
    )
    lab = Lab(session, options.work, options.results, _texts(options), limits)
    {"run": _run, "recipe": _recipe, "report": _report}[options.command](lab, options)


def _run(lab: Lab, options: argparse.Namespace) -> None:
    arms = runnable(with_base(options.arms), lab.session.progress)
    seeds = _seeds(options)
    train_first(lab.session, options, [partial(lab.run, *run) for run in _runs_of(lab, options, arms, seeds)])
    records: list[Json] = []
    for seed in seeds:
        records += [lab.run(*run) for run in _runs_of(lab, options, arms, [seed])]
        print(write_report(records, options.table), flush=True)


def _report(lab: Lab, options: argparse.Namespace) -> None:
    runs = _runs_of(lab, options, with_base(options.arms), _seeds(options))
    records = [lab.find(cell, arm, seed, training) for cell, arm, seed, training, _ in runs]
    print(write_report([record for record in records if record is not None], options.table), flush=True)


def _recipe(lab: Lab, options: argparse.Namespace) -> None:
    grid = [
        (cell, arm, seed, Recipe(steps, dict.fromkeys(TRIED, rate)).training(arm, _shared(options)))
        for seed in _seeds(options)
        for steps in options.step_counts
        for rate in options.rates
        for cell in _cells(options)
        for arm in TRIED
    ]
    train_first(lab.session, options, [partial(lab.try_out, *point) for point in grid])
    for cell, arm, seed, training in grid:
        record = lab.try_out(cell, arm, seed, training)
        print(f"{cell}, {arm}, seed {seed}, {training.max_steps} steps at {training.learning_rate:g}: "
              f"{100 * record['dev']['mean']:.2f}", flush=True)  # fmt: skip
    for model in options.model:
        for budget in options.budgets:
            tried = _tried(lab, options, model, budget)
            print(f"\n{model}, {budget or 'all'} labelled examples\n\n{tried.table()}\n\nChoice: {tried.choice}")


def _tried(lab: Lab, options: argparse.Namespace, model: str, budget: int | None) -> Tried:
    """The grid of examples that are read alike; that of any others, if there is none."""
    records = [record for record in lab.records(recipe_file(model)).by_key.values() if record["budget"] == budget]
    readings = [lab.reading(cell) for cell in _cells(options)]
    read_alike = [record for record in records if record["settings"]["task"] in readings]
    return Tried.of(read_alike or records, options.batch_size)


def _runs_of(
    lab: Lab, options: argparse.Namespace, arms: Iterable[str], seeds: Iterable[int]
) -> Iterator[tuple[Cell, str, int, TrainConfig, str]]:
    """The arguments of ``Lab.run`` for each run, in the order of work."""
    cells = list(_cells(options))
    recipes = {model: _chosen(lab, options, model) for model in options.model}
    for seed, cell, arm in product(seeds, cells, list(arms)):
        label = options.label if ARMS[arm].reads_text else ""
        yield cell, arm, seed, recipes[cell.model].training(arm, _shared(options)), label


def _chosen(lab: Lab, options: argparse.Namespace, model: str) -> Recipe:
    """Steps and rates of a model: set by options, or chosen on the grid in its records, maybe of fewer labels."""
    if options.learning_rate and options.steps:
        return Recipe(options.steps, dict.fromkeys(TRIED, options.learning_rate))
    chosen = _tried(lab, options, model, options.recipe_budget).choice
    if chosen is None:
        lab.session.progress.warn(
            f"{options.results} has no finished grid of steps and rates for {model} with batches of "
            f"{options.batch_size}: {UNTRIED}; the command recipe tries others"
        )
        chosen = UNTRIED
    rates = chosen.rates if not options.learning_rate else dict.fromkeys(TRIED, options.learning_rate)
    return Recipe(options.steps or chosen.steps, rates)


def _shared(options: argparse.Namespace) -> TrainConfig:
    return TrainConfig(precision=options.precision, batch_size=options.batch_size)


def _seeds(options: argparse.Namespace) -> range:
    return range(options.first_seed, options.first_seed + options.seeds)


def _cells(options: argparse.Namespace) -> Iterator[Cell]:
    sets = [find_set(options.data, name) for name in options.sets]
    for model in options.model:
        for budget in options.budgets:
            for dataset in sets:
                yield Cell(model, dataset, budget)


def _texts(options: argparse.Namespace) -> dict[str, Path]:
    """The unlabelled text of each set: ``SET=FILE``, or ``FILE`` for all other sets, or that of its domain."""
    files: dict[str, Path] = {}
    for text in options.corpus:
        name, equals, file = text.partition("=")
        files |= {name: Path(file)} if equals else {"": Path(text)}
    return files if "" in files else {**texts_in(options.data), **files}


def _number(text: str) -> int | None:
    return None if text == "all" else int(text)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("gain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("command", nargs="?", default="run", choices=["recipe", "run", "report"])
    add(
        "--data",
        type=Path,
        default=Path("data"),
        help="folder with ner, classification, qa and corpora; ./data by default",
    )
    add("--corpus", nargs="+", default=[], metavar="[SET=]FILE",
        help="unlabelled text of the domain, of all sets or of one; that of known sets is in DATA/corpora")  # fmt: skip
    add("--work", type=Path, default=Path("build/gain"), help="where models are kept; build/gain by default")
    add("--results", type=Path, default=RESULTS, help="folder of the records; benchmarks/results by default")
    set_names = [name for _, names in DOMAINS.values() for name in names]
    add("--sets", nargs="+", default=set_names, help="folders, or FILE:FOLD for questions in FILE.json; by default "
        + ", ".join(set_names))  # fmt: skip
    add("--budgets", nargs="+", type=_number, default=[300], help="training examples, numbers or all")
    add("--seeds", type=int, default=3, help="how many")
    add("--first-seed", type=int, default=0)
    add("--arms", nargs="+", default=[BASE, CONTROL, "without-vectors", DEFAULT], choices=[*ARMS])
    add("--model", nargs="+", default=["minilm"])
    add("--label", default="", help="added to the names of adapted arms, such as @2M for a corpus")
    add("--learning-rate", type=float, help="peak rate of all arms; that of the recipe by default")
    add("--steps", type=int, help="of all arms; those of the recipe by default")
    add("--recipe-budget", type=_number, default=300, help="training examples with which the recipe was chosen")
    add("--rates", nargs="+", type=float, default=[2e-4, 1e-4, 3e-4, 5e-5], help="of recipe, in the order of work")
    add("--step-counts", nargs="+", type=int, default=[300, 600, 1200], help="the same")
    add("--batch-size", type=int, default=16)
    add("--test-sentences", type=_number, default=1000, help="measure on so many, drawn once, or all")
    add("--dev-sentences", type=_number, default=500, help="the same, where rate and steps are chosen")
    add("--precision", default=TrainConfig.precision, choices=["auto", "float32", "bfloat16"])
    add("--max-length", type=int, help="pieces read at once; the model's limit by default")
    add("--max-tokens", type=int, default=SessionOptions.max_tokens)
    add("--chunk", type=int, help="words of a sentence that are read at once; all by default")
    add("--decoding", default=Limits.decoding, choices=get_args(Decoding), help="of entities")
    add("--workers", type=int, default=1, help="processes that read the corpus")
    add("--threads", type=int, help="of torch; its own choice by default")
    add("--table", type=Path, help="file for the table; table.md in --work by default")
    add_cluster_options(parser)
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        raise MissingError(
            f"no folder {options.data}", "give --data FOLDER, with sets in ner/NAME and texts in corpora/"
        )
    options.work.mkdir(parents=True, exist_ok=True)
    options.table = options.table or options.work / "table.md"
    return options


if __name__ == "__main__":
    resumable(main)
