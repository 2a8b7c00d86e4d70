"""What each kind of experiment trains or asks for the cells of its tables."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from greenadapt.config import (
    AdapterConfig,
    AlignMethod,
    QaConfig,
    ReadingOptions,
    RunConfig,
    SamplingConfig,
    TaskConfig,
    TrainConfig,
)
from greenadapt.errors import InputError
from greenadapt.inference.qa.answering import QaRequest
from greenadapt.inference.qa.inquiry import InquirySources
from greenadapt.progress import Silent
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import Finetuning
from greenadapt.stages.qa import answer, read_summary
from greenadapt.stages.reproduce.adapted import adapted_model, role_of, write_text
from greenadapt.stages.reproduce.bench import Bench, Run, model_hash
from greenadapt.stages.reproduce.gmap import GMap
from greenadapt.stages.reproduce.recipe import Kind, make_config
from greenadapt.storage.files import Json, hash_file, hash_json, plain
from greenadapt.tasks.questions import read_questions


@dataclass(frozen=True)
class _Trained(ABC):
    """An experiment of which each run is one fine-tuning."""

    bench: Bench

    def record(self, run: Run) -> Json:
        """The record of a run, made if it is missing."""
        return self.bench.trained(run, self.request(run))

    def finetunings(self, run: Run) -> list[Finetuning | None]:
        """What ``record`` would train."""
        return [self.bench.finetuning(run, self.request(run))]

    @abstractmethod
    def request(self, run: Run) -> FinetuneRequest:
        """What is trained."""


@dataclass(frozen=True)
class Ner(_Trained):
    """Entity recognition (arXiv 2004.03354, section 4): base model, adapted ones, and a model of the domain."""

    def request(self, run: Run) -> FinetuneRequest:
        """Training on training and development sentences together."""
        recipe, files = self.bench.recipe, self.bench.files(run)
        train = (*files.train, *filter(None, [files.dev]))
        return FinetuneRequest.of_one(
            model=self._model(run, [*train, *filter(None, [files.test])]),
            train=train,
            test=files.test,
            task=recipe.config(TaskConfig, "task", run.set, task="ner"),
            training=recipe.config(TrainConfig, "training", run.set),
            run=recipe.config(RunConfig, "run", run.set),
            seeds=(run.seed,),
        )

    def _model(self, run: Run, texts: list[str]) -> str:
        maps: dict[str, AlignMethod | None] = {"green": None, "identity": "identity", "random": "random"}
        if run.method in ("base", "reference"):
            return self.bench.model(run.method)
        if run.method not in maps:
            raise _unknown(run, ["base", "reference", *maps])
        return adapted_model(self.bench, "domain", run.set, texts, maps[run.method])


@dataclass(frozen=True)
class Qa:
    """Questions on whole papers (arXiv 2004.03354, section 5): a QA model as it is, and adapted, without training."""

    bench: Bench

    def record(self, run: Run) -> Json:
        """The record of a run, made if it is missing; a method other than ``base`` is one of ``role_of``."""
        bench, data = self.bench, self.bench.files(run).test or ""
        model = bench.model("base") if run.method == "base" else self._adapted(run, data)
        reading = bench.recipe.config(ReadingOptions, "reading", run.set)
        request = QaRequest(model, InquirySources(data=data), config=QaConfig(), reading=reading)
        asked = {"model": model_hash(model), "data": hash_file(Path(data)), "reading": plain(vars(reading))}
        key = hash_json([run.method, asked])
        if key in bench.records.by_key:
            return bench.records.by_key[key]
        bench.session.progress.note(run.name)
        place = replace(bench.inner("runs", run.place(key)), cluster=bench.session.cluster)
        result = answer(place, request)
        scores = {name: value for name, value in read_summary(result)["scores"].items() if isinstance(value, float)}
        return bench.add(run, key, scores, result.manifest.cost, asked)

    def finetunings(self, run: Run) -> list[Finetuning | None]:
        """Nothing is trained."""
        return []

    def _adapted(self, run: Run, data: str) -> str:
        asked = read_questions(data, Silent())
        texts = [*dict.fromkeys(one.context for one in asked), *(one.question for one in asked)]
        file = write_text(texts, self.bench.root / "texts" / f"{run.set}.txt")
        role, is_greedy = role_of(run.method)
        return adapted_model(self.bench, role, run.set, [file], is_greedy=is_greedy)


@dataclass(frozen=True)
class ManyTasks(_Trained):
    """Several tasks on one encoder (arXiv 1902.02671): a method is an adapter, a variant a way of sampling."""

    def request(self, run: Run) -> FinetuneRequest:
        """All tasks together; the epoch with the best average on the development sets counts."""
        recipe = self.bench.recipe
        adapters = recipe.table("adapters")
        if run.method not in adapters:
            raise _unknown(run, [*adapters])
        return FinetuneRequest(
            model=self.bench.model("base"),
            tasks=self.bench.files(run).tasks,
            adapter=make_config(AdapterConfig, adapters[run.method], f"recipe {recipe.name}, adapter {run.method}"),
            sampling=recipe.config(SamplingConfig, "sampling", sampling=run.variant),
            training=recipe.config(TrainConfig, "training", keep="best"),
            run=recipe.config(RunConfig, "run"),
            seeds=(run.seed,),
        )


def _unknown(run: Run, known: list[str]) -> InputError:
    return InputError(f"no method {run.method} for {run.set}", f"the methods are {', '.join(known)}")


Experiment = Ner | Qa | ManyTasks | GMap
EXPERIMENTS: dict[Kind, Callable[[Bench], Experiment]] = {"ner": Ner, "qa": Qa, "memory": GMap, "tasks": ManyTasks}
