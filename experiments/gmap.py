"""G-MAP (arXiv 2212.03613): a general model as the memory of a domain model, and baselines.

python experiments/gmap.py --data classification --only chemprot --method dapt --method chunk --seeds 1
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

if not __package__:  # started as a script
    sys.path[0] = str(Path(__file__).parents[1])

import numpy as np

from benchmarks.records import resumable
from experiments.bench import Experiment, Run, model_hash
from experiments.command import parse, parser_of, reproduce
from greenadapt.checkpoints.layout import LOGITS, SEEDS
from greenadapt.config import MemoryConfig, PretrainConfig, TextOptions
from greenadapt.errors import InputError
from greenadapt.inference.models import ensemble_logits
from greenadapt.models.streaming import ViewOutputs, pool_views
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.pretrain import PretrainRequest, pretrain
from greenadapt.store.arrays import Array, ArrayFile
from greenadapt.store.files import Json, hash_file, hash_json

GENERAL, DOMAIN = "general", "domain"


@dataclass(frozen=True)
class Method:
    """Which model is fine-tuned, and with which memory; or an ensemble of other methods."""

    start: str = DOMAIN
    tapt: bool = False
    """Whether it is pre-trained on the texts of the task first."""
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


class GMap(Experiment):
    """The epoch with the best score on the development set is tested; without such a set, as of NewsQA, the last."""

    def record(self, run: Run) -> Json:
        """An ensemble costs what its members cost."""
        method: Method = run.choose(METHODS)
        if not method.members:
            return self.trained(run, self._request(run, method))
        members = self.trainings(run)
        records = [self.record(member) for member in members]
        key = hash_json([run.method, *(record["key"] for record in records)])
        if key in self.records.by_key:
            return self.records.by_key[key]
        folders = [self.logits_folder(member, record["key"]) for member, record in zip(members, records, strict=True)]
        scores = ensemble_scores(folders, run.seed, self.files(run).test or "")
        cost = {name: sum(record[name] for record in records) for name in ("seconds", "usd_low", "usd_high")}
        return self.add(run, key, scores, cost)

    def trainings(self, run: Run) -> list[Run]:
        members = METHODS[run.method].members if run.method in METHODS else ()
        return [replace(run, method=member) for member in members] or [run]

    def _request(self, run: Run, method: Method) -> FinetuneRequest:
        recipe, files, kind = self.recipe, self.files(run), self.recipe.sets[run.set].kind
        classes = {"label_kind": "classes"} if kind == "classification" else {}
        return FinetuneRequest.of_one(
            model=self._model(run, method, files.train),
            train=(files.train,),
            dev=files.dev,
            test=files.test,
            task=recipe.config("task", run.set, task=kind, **classes),
            training=recipe.config("training", run.set, keep="best" if files.dev else "last"),
            max_tokens=recipe.config("run", run.set).max_tokens,
            seeds=(run.seed,),
            save_logits=run.method in _MEMBERS,
            memory=None if method.memory is None else self.model(GENERAL),
            memory_config=method.memory or MemoryConfig(),
        )

    def _model(self, run: Run, method: Method, texts: str) -> str:
        """The model that the method fine-tunes; a domain model of the user is that of all sets."""
        domain = DOMAIN if self.models.get(DOMAIN) else str(self.recipe.own.get(run.set, {}).get(DOMAIN, DOMAIN))
        model = self.model(GENERAL if method.start == GENERAL else domain)
        if not method.tapt:
            return model
        if self.recipe.sets[run.set].kind != "classification":
            raise InputError(f"{run.set} has no lines of text to pre-train on", "TAPT is for sets of texts")
        training = self.recipe.config("tapt", run.set)
        request = PretrainRequest(
            model,
            (texts,),
            reading=TextOptions(format="jsonl", fields=("text",)),
            config=PretrainConfig(heldout=0),
            training=training,
            max_tokens=self.recipe.config("run", run.set).max_tokens,
        )
        key = hash_json([model_hash(model), hash_file(Path(texts)), asdict(training)])[:8]
        return str(pretrain(self.inner("models", f"{run.set}-tapt-{key}"), request).path)


def ensemble_scores(folders: Sequence[Path], seed: int, test: str) -> Json:
    """The scores of the mean probabilities of fine-tuned models, from the logits that ``finetune --save-logits`` saves.

    Raises ``InputError`` if the models were tested on other examples.
    """
    models = [TaskFolder.open_without_weights(folder, seed) for folder in folders]
    task = models[0].task
    examples = task.read(test, Silent())
    logits = [read_logits(model) for model in models]
    for model, arrays in zip(models, logits, strict=True):
        if len(arrays) != len(examples):
            raise InputError(f"{model.folder} was tested on {len(arrays)} examples, {test} has {len(examples)}")
    means = [ensemble_logits(arrays, "probabilities", task.head) for arrays in zip(*logits, strict=True)]
    predictions = [task.decode(*pair) for pair in zip(examples, means, strict=True)]
    return {name: value for name, value in task.score(examples, predictions).items() if isinstance(value, float)}


def read_logits(model: TaskFolder) -> list[Array]:
    """(n_units, k) float32 of each test example, of the view or the mean that the model is used with."""
    [file] = [ArrayFile(path) for path in model.folder.glob(f"{SEEDS}/*/{LOGITS}")]
    base, expanded = (file[view if view in file else "base"] for view in ("base", "expanded"))
    values = pool_views(ViewOutputs(base, expanded), model.settings["pool"])
    return np.split(values, file["offsets"][1:-1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the tables of the paper."""
    reproduce(GMap, "gmap", parse(parser_of(__doc__), arguments))


if __name__ == "__main__":
    resumable(main)
