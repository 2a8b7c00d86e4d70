"""The demo's last part: a task in the domain, once with the base model and once with the adapted one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.layout import LOGITS, PREDICTIONS, SEEDS, TASK_FILE, read_described
from greenadapt.checkpoints.source import MINILM
from greenadapt.config import TrainConfig
from greenadapt.corpus.pydocs import fingerprint_pydocs
from greenadapt.inference.models import averaged_over_seeds
from greenadapt.progress import Silent
from greenadapt.stages.demo.identifiers import identifier_set
from greenadapt.stages.finetune.compare import compare, read_predictions
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import FINETUNE, Session
from greenadapt.storage.files import Json, hash_json
from greenadapt.storage.jobs import Job, Outcome
from greenadapt.storage.results import Result
from greenadapt.tasks.base import load_task
from greenadapt.tasks.metrics import paired

IDENTIFIERS = "identifiers"
MODELS = ("adapted", "base", "base, two seeds averaged")


@dataclass(frozen=True)
class TaskPlan:
    """The size of the demo's training and test; three seeds of both models take three minutes or so on two cores.

    The learning rate was chosen with the base model on other sentences of the same packages, the epochs for speed. The
    base model makes as many steps as the adapted one: it reads each sentence twice where that reads both tokenizations.
    """

    train: int = 300
    """Sentences."""
    test: int = 800
    """Sentences."""
    epochs: int = 3
    learning_rate: float = 2e-4
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class DemoTask:
    """Code identifiers found in docstrings, by the adapted model, the base model, and the base model at equal cost."""

    stages: list[Result]
    """The labelled sentences, and the two fine-tuned models, the adapted one first."""
    rows: list[Json]
    """As those of ``compare.Comparison``, in the order of ``MODELS``; the score is F1."""

    def as_dict(self) -> Json:
        """``sentences`` of both parts, ``seeds``, and ``rows``."""
        seeds = self.stages[1].manifest.config["seeds"]
        return {"sentences": self.stages[0].manifest.counts, "seeds": seeds, "rows": self.rows}


def demo_task(session: Session, adapted: Result, packages: Sequence[str], plan: TaskPlan) -> DemoTask:
    """Fine-tune ``adapted`` and the offline model on identifiers in docstrings of ``packages`` (empty: all).

    Everything goes to the workspace, beside ``adapted``. Raises ``MissingError`` if torch is not installed.
    """
    corpus = adapted.manifest.facts["corpus"]
    sentences = _sentences(session, corpus, packages, plan)
    request = FinetuneRequest.of_one(
        model=str(adapted.path),
        train=(str(sentences.path / "train.tsv"),),
        test=str(sentences.path / "test.tsv"),
        training=TrainConfig(epochs=plan.epochs, learning_rate=plan.learning_rate, mix="both"),
        seeds=plan.seeds,
        save_logits=True,
    )
    out = session.workspace.place(corpus, MINILM, FINETUNE).path
    compared = compare(replace(session, out=out, updates=True), request, [MINILM])
    rows = [*compared.rows, _control(request, *compared.results)]
    named = [{**row, "model": name} for row, name in zip(rows, MODELS, strict=True)]
    return DemoTask([sentences, *compared.results], named)


def _sentences(session: Session, corpus: str, packages: Sequence[str], plan: TaskPlan) -> Result:
    def build(work: Path) -> Outcome:
        session.progress.note("looking for marked code in docstrings")
        made = identifier_set(plan.train, plan.test, names=packages, workers=session.workers)
        made.write(work)
        return Outcome({"train": len(made.train), "test": len(made.test)})

    config = {"train": plan.train, "test": plan.test, "packages": list(packages)}
    inputs = {"docstrings": {"sha256": hash_json(fingerprint_pydocs(packages))}}
    with session.locked(corpus, MINILM):
        place = session.workspace.place(corpus, MINILM, IDENTIFIERS)
        return session.run(place, Job(IDENTIFIERS, config, inputs, build))


def _control(request: FinetuneRequest, ours: Result, base: Result) -> Json:
    """The row of the base model at the cost of two passes."""

    task = load_task(read_described(ours.folder / TASK_FILE))
    examples = task.read(request.test or "", Silent())
    own = [read_predictions(ours.folder / SEEDS / str(seed) / PREDICTIONS) for seed in request.seeds]
    logits = [base.folder / SEEDS / str(seed) / LOGITS for seed in request.seeds]
    averaged = averaged_over_seeds(task, examples, logits)
    ours_sums, theirs = (np.stack([task.statistics(examples, one) for one in each]) for each in (own, averaged))
    found = paired(ours_sums, theirs, task.main_score)
    # The averages share models, so their deviation does not show how runs vary.
    return {"folder": str(base.path), "score": found.theirs, "std": None, **asdict(found)}
