"""All stages on what every machine has: the docstrings of Python packages and the offline model."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from greenadapt.checkpoints.source import MINILM
from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.corpus.splitting import HELDOUT
from greenadapt.errors import MissingError, require_torch
from greenadapt.stages.adapt import AdaptRequest, adapt
from greenadapt.stages.corpus import choose_corpus
from greenadapt.stages.demo.task import DemoTask, TaskPlan, demo_task
from greenadapt.stages.neighbours import neighbours
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json
from greenadapt.storage.results import Result
from greenadapt.tokenization.added_words import AddedWords
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.fertility import Fertility, fertility
from greenadapt.vectors.neighbours import Neighbours

CORPUS = "demo"
HELDOUT_SHARE = 0.01
N_WORDS = 10
# Domain words that a general model splits into pieces; those in this machine's corpus are shown.
PROBES = [
    "dtype",
    "eigenvalues",
    "ndarray",
    "kwargs",
    "iterable",
    "tuple",
    "coroutine",
    "hashable",
    "tokenizer",
    "callable",
    "subclass",
    "timedelta",
    "unicode",
    "bytecode",
    "dataframe",
    "optimizer",
    "namespace",
    "metadata",
    "boolean",
    "polynomials",
]


@dataclass(frozen=True)
class Demo:
    """The results of the demo."""

    stages: list[Result]
    fertility: Fertility
    neighbours: list[Neighbours]
    task: DemoTask | None
    """``None`` if torch is not installed."""

    @property
    def adapted(self) -> Result:
        """The adapted model's folder."""
        return self.stages[-1]

    @property
    def results(self) -> list[Result]:
        """All results, in order."""
        return [*self.stages, *(self.task.stages if self.task else [])]

    @property
    def heldout(self) -> Json:
        """The figures of the new rows on held-out words; see ``diagnostics.HeldOut``."""
        rows = self.adapted.manifest.facts["rows"]
        return dict(rows["heldout"].get(rows["recipe"]) or {})

    def as_dict(self) -> Json:
        """``folder``, ``counts``, ``fertility``, ``alignment``, ``neighbours``, ``task``, and each stage's ``cost``."""
        return {
            "folder": str(self.adapted.path),
            "counts": self.adapted.manifest.counts,
            "fertility": {**asdict(self.fertility), "before": self.fertility.before, "after": self.fertility.after},
            "alignment": self.heldout,
            "neighbours": [asdict(row) for row in self.neighbours],
            "task": self.task.as_dict() if self.task else None,
            "cost": {result.path.name: result.manifest.cost for result in self.results},
        }


def demo(session: Session, corpus: str = CORPUS, task: TaskPlan | None = None) -> Demo:
    """Adapt the offline model to the docstrings of ``corpus``, look at the result, and fine-tune it on a task.

    Without torch the task is left out, and a warning says so.
    """
    text = TextOptions(heldout=HELDOUT_SHARE)
    packages = choose_corpus(session, corpus, text).packages
    plan = AdaptRequest(W2VConfig(workers=session.workers), AlignConfig(), ExpandConfig(rows="form"), text)
    stages = adapt(replace(session, out=None), corpus, MINILM, plan)
    prepared, adapted = stages[0].folder, stages[-1].folder
    with open(prepared / HELDOUT, encoding="utf-8", newline="\n") as file:
        counted = fertility(DualTokenizer.load(adapted), file)
    near = neighbours(session, corpus, MINILM, _probes(adapted), 4)
    try:
        require_torch("the task at the demo's end")
    except MissingError as error:
        session.progress.warn(str(error))
        return Demo(stages, counted, near, None)
    return Demo(stages, counted, near, demo_task(session, stages[-1], packages, task or TaskPlan()))


def _probes(adapted: Path) -> list[str]:
    """``N_WORDS`` of the added words: the probes among them, then the most frequent."""
    added = AddedWords.open(adapted / "words.safetensors")
    words = [added.surface(entry) for entry in range(len(added))]
    return list(dict.fromkeys([*(word for word in PROBES if word in set(words)), *words]))[:N_WORDS]
