"""What an experiment would fetch and compute (``--dry-run``): bytes, hours and prices, measured or computed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from greenadapt.checkpoints.source import PACKAGED, PretrainedModel, find_model
from greenadapt.config import W2VConfig
from greenadapt.corpus.recipes import Recipe as Corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.cost import estimate
from greenadapt.errors import GreenadaptError, byte_size, counted, duration
from greenadapt.stages.corpus import BYTES_PER_SECOND, download_time
from greenadapt.stages.plan import MISSING, UP_TO_DATE, WOULD_RUN, Step
from greenadapt.stages.reproduce.adapted import role_of, vectors_variant
from greenadapt.stages.reproduce.bench import Bench, Run
from greenadapt.stages.reproduce.gmap import is_ensemble
from greenadapt.stages.reproduce.sets import SETS, DataSet, SetFiles
from greenadapt.stages.reproduce.workload import workload
from greenadapt.stages.session import CORPUS, FINETUNE, QA, W2V
from greenadapt.storage.files import Json, expanded, read_object

# Measured on one core of an AMD EPYC, idle: benchmarks/results/, docs/word-vectors.md.
_WORDS_SPLIT = 4_700_000
"""Words a second."""
_WORDS_OF_VECTORS = 422_797 * 768
"""Words a second times the dimension, with a million different words."""
_WORDS_TRAINED = 1_155 * (6 * 384**2)
"""Words a second (59.6 chunks, 19.4 words each on average) times layers and squared width: MiniLM, float32."""
_OF_A_FORWARD_PASS = 1 / 3
"""What reading costs of training."""


def plan_steps(bench: Bench, runs: Sequence[Run]) -> None:
    """Note the steps in the session's plan: data sets, word vectors, and the runs of each data set."""
    plan = bench.session.plan
    if plan is None:
        return
    steps = [_of_set(bench, bench.recipe.sets[name]) for name in dict.fromkeys(run.set for run in runs)]
    for role in _corpora(bench, runs):
        steps += _of_corpus(bench, role)
    for name in dict.fromkeys(run.set for run in runs):
        steps.append(_of_runs(bench, name, [run for run in runs if run.set == name]))
    for step in [*steps, _total(bench, steps)]:
        plan.add(step)


def _of_set(bench: Bench, dataset: DataSet) -> Step:
    """Whether a set's files are here, else what there is to fetch."""
    folder = str(bench.sets.root / SETS / dataset.name)
    missing = bench.sets.missing(dataset)
    if not missing:
        try:
            bench.sets.files(dataset, fetched=False)
        except GreenadaptError as error:
            return Step("data", MISSING, folder, str(error))
        return Step("data", UP_TO_DATE, folder, counts={"set": dataset.name})
    wanted = {one.url: one.size for one in missing if bench.sets.to_download(one)}
    size = sum(wanted.values()) if all(wanted.values()) else None
    status, advice = (WOULD_RUN, "") if bench.session.download else (MISSING, ": add --download")
    why = f"{dataset.name}, {counted(len(wanted), 'file')}, {dataset.licence}{advice}"
    if size is None:
        return Step("data", status, folder, why, basis="its publisher states no size")
    return Step("data", status, folder, why, bytes=size, hours=size / BYTES_PER_SECOND / 3600, basis=_DOWNLOAD)


_DOWNLOAD = f"computed from the stated size at {byte_size(BYTES_PER_SECOND)}/s"


def _files(bench: Bench, dataset: DataSet) -> SetFiles | None:
    try:
        return bench.sets.files(dataset, fetched=False)
    except GreenadaptError:
        return None


def _corpora(bench: Bench, runs: Sequence[Run]) -> list[str]:
    """The roles of the corpora that the runs need."""
    methods = {run.method for run in runs}
    if bench.recipe.kind == "ner":
        return ["domain"] if methods & {"green", "identity", "random"} else []
    wanted = {role_of(method)[0] for method in methods} if bench.recipe.kind == "qa" else set()
    return [role for role in bench.recipe.table("corpora") if role in wanted]


def _of_corpus(bench: Bench, role: str) -> list[Step]:
    """Download and vectors of a corpus."""
    workspace, base = bench.session.workspace, bench.recipe.table("models").get("base")
    try:
        corpus = find_recipe(bench.corpus(role))
    except GreenadaptError as error:
        return [Step(CORPUS, MISSING, str(workspace.root), f"{role}: {error}")]
    model = _model(bench, "base")
    place = workspace.place(corpus.name, model.name if model else str(base), W2V, vectors_variant(bench.recipe))
    if place.current() is not None:
        return [Step(W2V, UP_TO_DATE, str(place.path), counts={"corpus": corpus.name})]
    steps = [] if corpus.is_local else [_download(bench, corpus)]
    words = bench.recipe.table("words").get(role) or (corpus.stated.words if corpus.stated else None)
    why = f"vectors of {corpus.title}"
    if words is None:
        return [*steps, Step(W2V, WOULD_RUN, str(place.path), why, basis="how many words it has is not known")]
    config = bench.recipe.config(W2VConfig, "w2v")
    dim = config.dim or _shape(bench, model)[1]
    seconds = words / _WORDS_SPLIT + words * config.epochs * dim / _WORDS_OF_VECTORS
    basis = f"computed for one core from measured words/s: {words:,} words, {config.epochs} epochs, {dim} dimensions"
    return [*steps, _priced(Step(W2V, WOULD_RUN, str(place.path), why, basis=basis), seconds)]


def _download(bench: Bench, corpus: Corpus) -> Step:
    status, advice = (WOULD_RUN, "") if bench.session.download else (MISSING, ": add --download")
    found = download_time(corpus)
    folder, why = bench.session.workspace.downloads(corpus.name), f"{corpus.title}, {corpus.licence}{advice}"
    return Step(
        CORPUS,
        status,
        str(folder),
        why,
        bytes=corpus.stated.bytes if corpus.stated else None,
        hours=found["hours"] if found else None,
        basis=f"computed from what its recipe states at {found['at']}" if found else "its recipe states no size",
    )


def _of_runs(bench: Bench, name: str, runs: Sequence[Run]) -> Step:
    """The runs of a data set that have no record yet."""
    finished = {(one["set"], one["method"], one["variant"], one["seed"]) for one in bench.records.by_key.values()}
    left = [run for run in runs if (*run.cell, run.seed) not in finished]
    stage, folder = (QA if bench.recipe.kind == "qa" else FINETUNE), str(bench.root / "runs")
    if not left:
        return Step(stage, UP_TO_DATE, folder, counts={"set": name, "runs": len(runs)})
    methods = ", ".join(dict.fromkeys(" ".join(filter(None, [run.method, run.variant])) for run in left))
    why = f"{name}, {counted(len(left), 'run')} of {len(runs)}: {methods}"
    dataset = bench.recipe.sets[name]
    files = _files(bench, dataset)
    can_run = files is not None or (bench.session.download and dataset.published)
    step = Step(stage, WOULD_RUN if can_run else MISSING, folder, why)
    measured = [one for one in bench.records.by_key.values() if one["set"] == name]
    if measured:
        return _as_measured(step, measured, len(left))
    work = workload(bench.recipe, dataset, files)
    if work is None:
        return replace(step, basis="how many words it has is known once it is here")
    layers, width = _shape(bench, _model(bench, "base") or _model(bench, "general"))
    passes: float = len([run for run in left if not is_ensemble(run)])
    if stage == QA:  # windows overlap by half, and an adapted model reads in two tokenizations
        passes = _OF_A_FORWARD_PASS * sum(2 if run.method == "base" else 4 for run in left)
    basis = f"computed for one core from measured words/s: {work.basis}, {layers} layers of {width}"
    return _priced(replace(step, basis=basis), passes * work.words * layers * width**2 / _WORDS_TRAINED)


def _as_measured(step: Step, measured: Sequence[Json], n_runs: int) -> Step:
    """What the finished runs took on average, so many times."""
    mean = {name: float(np.mean([one[name] for one in measured])) for name in ("seconds", "usd_low", "usd_high")}
    return replace(
        step,
        basis=f"measured: mean of {counted(len(measured), 'finished run')} of this set",
        hours=n_runs * mean["seconds"] / 3600,
        usd_low=n_runs * mean["usd_low"],
        usd_high=n_runs * mean["usd_high"],
    )


def _model(bench: Bench, role: str) -> PretrainedModel | None:
    """The model of a role, if it is here: a dry run downloads none."""
    try:
        name = bench.model(role)
        return find_model(name) if name in PACKAGED or expanded(name).is_dir() else None
    except GreenadaptError:
        return None


def _shape(bench: Bench, model: PretrainedModel | None) -> tuple[int, int]:
    """Layers and width of the model, else those that the recipe states."""
    if model is None:
        layers, width = bench.recipe.table("shape").get("layers", 12), bench.recipe.table("shape").get("width", 768)
        return int(layers), int(width)
    config = read_object(model.folder / "config.json", "model folder")
    return int(config["num_hidden_layers"]), int(config["hidden_size"])


def _priced(step: Step, seconds: float) -> Step:
    """With the hours and the price of one busy core."""
    cost = estimate(seconds, seconds, 0)
    return replace(step, hours=seconds / 3600, usd_low=cost.usd_low, usd_high=cost.usd_high)


def _total(bench: Bench, steps: Sequence[Step]) -> Step:
    """What is known of all together."""
    computing = [step for step in steps if step.usd_low is not None]
    downloads = sum(step.hours or 0 for step in steps if step.usd_low is None)
    unknown = sum(step.hours is None and step.status != UP_TO_DATE for step in steps)
    more = f"; downloads take {duration(3600 * downloads)} beside" if downloads else ""
    more += f"; {counted(unknown, 'step')} of unknown size" if unknown else ""
    if all(step.status == UP_TO_DATE for step in steps):
        return Step("all", UP_TO_DATE, str(bench.root))
    sums: Json = {
        name: sum(getattr(step, name) or 0 for step in computing) for name in ("hours", "usd_low", "usd_high")
    }
    sums["bytes"] = sum(step.bytes or 0 for step in steps) or None
    why = f"computing of {counted(len(computing), 'step')} above, missing ones too{more}"
    return Step("all", WOULD_RUN, str(bench.root), why, basis="sums", **sums)
