"""A general model beside a domain model (arXiv 2212.03613): fine-tuning with and without its memory, and baselines."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from greenadapt.config import (
    GMAP_PRETRAINING,
    MemoryConfig,
    PretrainConfig,
    RunConfig,
    TaskConfig,
    TrainConfig,
)
from greenadapt.errors import InputError
from greenadapt.inference.kept_runs import KeptRun, score_ensemble
from greenadapt.progress import Silent
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import Finetuning
from greenadapt.stages.pretrain import PretrainRequest, pretrain
from greenadapt.stages.reproduce.bench import Bench, Run, model_hash
from greenadapt.stages.reproduce.recipe import make_config
from greenadapt.stages.reproduce.sets import SetFiles
from greenadapt.storage.files import Json, hash_file, hash_json

GENERAL, DOMAIN = "general", "domain"


@dataclass(frozen=True)
class Method:
    """Which model is fine-tuned, and with which memory; or an ensemble of other methods."""

    start: str = DOMAIN
    """``general`` or ``domain``."""
    tapt: bool = False
    """Whether that is trained on the texts of the task first."""
    memory: MemoryConfig | None = None
    members: tuple[str, ...] = ()


METHODS: Mapping[str, Method] = {
    "fine-tuning": Method(GENERAL),
    "dapt": Method(),
    "tapt": Method(GENERAL, tapt=True),
    "dapt+tapt": Method(tapt=True),
    "logits": Method(memory=MemoryConfig("logits")),
    "ensemble": Method(members=("fine-tuning", "dapt")),
    "single": Method(memory=MemoryConfig("single")),
    "multiple": Method(memory=MemoryConfig("multiple")),
    "gated": Method(memory=MemoryConfig("gated")),
    "chunk": Method(memory=MemoryConfig("chunk")),
    "g-map*": Method(tapt=True, memory=MemoryConfig("chunk")),
    "unfrozen": Method(memory=MemoryConfig("chunk", frozen=False)),
    "cross": Method(memory=MemoryConfig("chunk", attention="cross")),
    "gate": Method(memory=MemoryConfig("chunk", attention="gate")),
}
_MEMBERS = {member for method in METHODS.values() for member in method.members}


@dataclass(frozen=True)
class GMap:
    """The runs of G-MAP. As the paper says, the epoch with the best score on the development set is tested; where the
    paper has no such set, as of NewsQA, it is the last one.
    """

    bench: Bench

    def record(self, run: Run) -> Json:
        """The record of a run, made if it is missing; an ensemble takes the time that its members take."""
        if not _method(run).members:
            return self.bench.trained(run, self.request(run))
        members = _members(run)
        records = [self.record(member) for member in members]
        key = hash_json([run.method, *(record["key"] for record in records)])
        if key in self.bench.records.by_key:
            return self.bench.records.by_key[key]
        kept = [self.bench.kept(member, record["key"]) for member, record in zip(members, records, strict=True)]
        runs = [KeptRun.open(folder) for folder in kept]
        examples = runs[0].model.task.read(self.bench.files(run).test or "", Silent())
        (scored,) = score_ensemble(runs, examples, "probabilities")
        scores = {name: value for name, value in scored.scores.items() if isinstance(value, float)}
        cost = {name: sum(record[name] for record in records) for name in ("seconds", "usd_low", "usd_high")}
        return self.bench.add(run, key, scores, cost)

    def finetunings(self, run: Run) -> list[Finetuning | None]:
        """What ``record`` would train."""
        members = _members(run) or [run]
        return [self.bench.finetuning(member, self.request(member)) for member in members]

    def request(self, run: Run) -> FinetuneRequest:
        """The fine-tuning of a method that is no ensemble."""
        recipe, method, files = self.bench.recipe, _method(run), self.bench.files(run)
        is_frozen = method.memory is not None and method.memory.frozen
        kind = recipe.sets[run.set].kind
        classes = {"label_kind": "classes"} if kind == "classification" else {}
        settings = recipe.config(RunConfig, "run", run.set)
        return FinetuneRequest.of_one(
            model=self._model(run, files),
            train=files.train,
            dev=files.dev,
            test=files.test,
            task=recipe.config(TaskConfig, "task", run.set, task=kind, **classes),
            training=recipe.config(TrainConfig, "training", run.set, keep="best" if files.dev else "last"),
            run=replace(settings, cache_memory=settings.cache_memory and is_frozen),
            seeds=(run.seed,),
            save_logits=run.method in _MEMBERS,
            memory=None if method.memory is None else self.bench.model(GENERAL),
            memory_config=method.memory or MemoryConfig(),
        )

    def _model(self, run: Run, files: SetFiles) -> str:
        """What the method fine-tunes; made where it is not there yet."""
        method = _method(run)
        model = self.bench.model(GENERAL) if method.start == GENERAL else self._domain_model(run.set)
        return self._task_adapted(run, model, files) if method.tapt else model

    def _domain_model(self, dataset: str) -> str:
        """The one that the user gave for all sets, else that of the set's own domain."""
        own = self.bench.recipe.settings.get("own", {}).get(dataset, {})
        return self.bench.model(DOMAIN if DOMAIN in self.bench.models else own.get(DOMAIN, DOMAIN))

    def _task_adapted(self, run: Run, model: str, files: SetFiles) -> str:
        """The model after training on the texts of the task."""
        recipe = self.bench.recipe
        if recipe.sets[run.set].kind != "classification":
            raise InputError(f"{run.set} has no lines of text to pre-train on", "TAPT is for sets of texts")
        training = make_config(TrainConfig, {**GMAP_PRETRAINING, **recipe.table("tapt", run.set)}, "tapt")
        request = PretrainRequest(
            model,
            files.train,
            format="jsonl",
            fields=("text",),
            config=PretrainConfig(heldout=0),
            training=training,
            run=recipe.config(RunConfig, "run", run.set),
        )
        made = hash_json([model_hash(model), *(hash_file(Path(file)) for file in files.train), asdict(training)])[:8]
        return str(pretrain(self.bench.inner("models", f"{run.set}-tapt-{made}"), request).path)


def is_ensemble(run: Run) -> bool:
    """Whether a run trains nothing of its own."""
    return run.method in METHODS and bool(METHODS[run.method].members)


def _method(run: Run) -> Method:
    if run.method not in METHODS:
        raise InputError(f"no method {run.method} for {run.set}", f"the methods are {', '.join(METHODS)}")
    return METHODS[run.method]


def _members(run: Run) -> list[Run]:
    return [replace(run, method=member) for member in _method(run).members]
