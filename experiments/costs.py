"""What an experiment would fetch and compute (``--dry-run``): data, hours and prices, measured or computed."""

from collections.abc import Sequence
from statistics import fmean

from benchmarks.tables import aligned
from experiments.bench import Experiment, Run
from experiments.recipe import DataSet, Recipe
from greenadapt.checkpoints.source import NAMED_MODELS, find_model
from greenadapt.corpus.recipes import find_recipe
from greenadapt.cost import estimate
from greenadapt.errors import GreenadaptError, counted
from greenadapt.store.files import Json, expanded, read_object

# Words a second on one core of an AMD EPYC, idle: benchmarks/results/.
_SPLIT = 4_700_000
_VECTORS = 422_797 * 768
"""Times the dimension, with a million different words."""
_TRAINED = 1_155 * (6 * 384**2)
"""Times layers and squared width (59.6 chunks a second, 19.4 words each on average): MiniLM, float32."""
_PIECES = 128
"""The longest text of many tasks, in pieces."""
_SUMS = ("hours", "usd_low", "usd_high")


def steps(experiment: Experiment, runs: Sequence[Run]) -> list[Json]:
    """The vectors of each corpus, the runs of each data set, and all together."""
    roles = dict.fromkeys(role for run in runs if (role := experiment.corpus_of(run)) is not None)
    parts = [_of_corpus(experiment, role) for role in roles]
    for name in dict.fromkeys(run.set for run in runs):
        parts.append(_of_runs(experiment, name, [run for run in runs if run.set == name]))
    unknown = sum(step["hours"] is None for step in parts)
    basis = f"sum; {counted(unknown, 'step')} of unknown size" if unknown else "sum"
    return [*parts, _step("all", basis=basis) | {key: sum(step[key] or 0 for step in parts) for key in _SUMS}]


def page(parts: Sequence[Json]) -> str:
    """The steps as a table, and below it what is missing."""
    rows, notes = [["step", "runs", "data", "hours", "dollars", "basis"]], []
    for step in parts:
        hours, low, high = (step[key] for key in _SUMS)
        priced = ["", ""] if hours is None else [f"{hours:,.1f}", f"{low:,.2f} to {high:,.2f}"]
        data = step["data"]
        if data not in ("", "here"):
            notes.append(data)
            data = f"[{len(notes)}]"
        rows.append([step["step"], step["runs"], data, *priced, step["basis"]])
    return aligned(rows) + "".join(f"\n{number}. {note}" for number, note in enumerate(notes, 1))


def _step(name: str, runs: str = "", data: str = "", seconds: float | None = None, basis: str = "") -> Json:
    """A step with the hours and the price of one busy core."""
    sums: Json = dict.fromkeys(_SUMS)
    if seconds is not None:
        cost = estimate(seconds, seconds, 0)
        sums = dict(zip(_SUMS, (seconds / 3600, cost.usd_low, cost.usd_high), strict=True))
    return {"step": name, "runs": runs, "data": data, **sums, "basis": basis}


def _of_corpus(experiment: Experiment, role: str) -> Json:
    """The vectors of a corpus, whether or not they are trained already."""
    name, recipe = f"vectors of {role}", experiment.recipe
    try:
        corpus = find_recipe(experiment.corpus(role))
    except GreenadaptError as error:
        return _step(name, data=str(error), basis="unknown")
    words = recipe.words.get(role) or (corpus.stated.words if corpus.stated else None)
    if words is None:
        return _step(name, data=corpus.title, basis="how many words it has is not known")
    config = recipe.config("w2v")
    dim = config.dim or _shape(experiment)[1]
    seconds = words / _SPLIT + words * config.epochs * dim / _VECTORS
    basis = f"computed: {words:,} words, {config.epochs} epochs, {dim} dimensions"
    return _step(name, data=corpus.title, seconds=seconds, basis=basis)


def _of_runs(experiment: Experiment, name: str, runs: Sequence[Run]) -> Json:
    """The runs of a data set that have no record yet."""
    dataset, data = experiment.recipe.sets[name], "here"
    measured = [record for record in experiment.records.by_key.values() if record["set"] == name]
    finished = {Run(*(record[key] for key in ("set", "method", "variant", "seed"))) for record in measured}
    missing = [run for run in runs if run not in finished]
    try:
        experiment.sets.files(dataset, fetched=False)
    except GreenadaptError as error:
        data = str(error)
    counts = f"{len(missing)} of {len(runs)}"
    if not missing:
        return _step(name, counts, data, 0, "finished")
    if measured:
        basis = f"measured: mean of {counted(len(measured), 'finished run')}"
        return _step(name, counts, data, len(missing) * fmean(record["seconds"] for record in measured), basis)
    words, basis = workload(experiment.recipe, dataset)
    if not words:
        return _step(name, counts, data, basis=basis)
    layers, width = _shape(experiment)
    seconds = sum(map(experiment.passes, missing)) * words * layers * width**2 / _TRAINED
    return _step(name, counts, data, seconds, f"computed: {basis}, {layers} layers of {width}")


def workload(recipe: Recipe, dataset: DataSet) -> tuple[int, str]:
    """The words that a run reads in all epochs, 0 if the recipes state too little, and how that is known."""
    training = recipe.config("training", dataset.name)
    if dataset.kind == "tasks":
        texts = (recipe.config("sampling").steps_per_epoch or 0) * training.epochs * training.batch_size
        return texts * _PIECES, f"{texts:,} texts of at most {_PIECES} words"
    epochs = training.epochs if dataset.train else 1
    if dataset.words:
        return dataset.words * epochs, f"{dataset.words:,} words, {counted(epochs, 'epoch')}"
    if dataset.examples:
        length = recipe.config("task", dataset.name, task=dataset.kind).max_length or _PIECES
        basis = f"{dataset.examples:,} texts of at most {length} words, {counted(epochs, 'epoch')}"
        return dataset.examples * length * epochs, basis
    return 0, "its recipe states no size"


def _shape(experiment: Experiment) -> tuple[int, int]:
    """Layers and width of the model if it is here (a dry run downloads none), else those that the recipe states."""
    name = experiment.models.get("base") or experiment.models.get("general") or ""
    if name not in NAMED_MODELS and not (name and expanded(name).is_dir()):
        return experiment.recipe.shape.get("layers", 12), experiment.recipe.shape.get("width", 768)
    config = read_object(find_model(name).folder / "config.json", "model folder")
    return int(config["num_hidden_layers"]), int(config["hidden_size"])
