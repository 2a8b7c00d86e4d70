"""What is compared, and the models it is made with."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.stages.align import align
from greenadapt.stages.expand import expand
from greenadapt.stages.session import Session
from greenadapt.stages.w2v import w2v
from greenadapt.storage.files import hash_json, plain

BASE, CONTROL = "base", "control"
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Arm:
    """How a model is adapted and fine-tuned; each field has the options of one stage that differ from the defaults."""

    rows: Options | None = None
    """Of ``ExpandConfig``; ``None`` leaves the model as it is."""
    map: Options = field(default_factory=dict)
    """Of ``AlignConfig``."""
    vectors: Options = field(default_factory=dict)
    """Of ``W2VConfig``."""
    training: Options = field(default_factory=dict)
    """Of ``TrainConfig``."""


ARMS: dict[str, Arm] = {
    BASE: Arm(),
    CONTROL: Arm(),  # two base models that differ in their random seed, averaged
    "map": Arm({"rows": "map"}),
    "norm": Arm({"rows": "norm"}),
    "pieces": Arm({"rows": "pieces"}),
    "blend": Arm({"rows": "blend"}),
    "identity": Arm({"rows": "map"}, map={"method": "identity"}),
    "random": Arm({"rows": "map"}, map={"method": "random"}),
}
"""Name → arm."""


def with_base(arms: Iterable[str]) -> list[str]:
    """The arms in order of work: the base model, which all others are compared with, comes first."""
    return list(dict.fromkeys([BASE, *arms]))


def adapted_model(session: Session, corpus: Path, model: str, arm: Arm, folder: Path) -> str:
    """The model of an arm, made from ``corpus`` in ``folder`` unless it is there; arms share equal stages."""
    if arm.rows is None:
        return model
    training = W2VConfig(**{"workers": session.workers, **arm.vectors})
    place = folder / corpus.name.split(".")[0] / Path(model).name
    training = replace(training, workers=min(2, training.workers))  # more than one give one kind of result
    vectors = place / f"w2v-{_short(training)}"
    w2v(replace(session, out=vectors), str(corpus), model, training, TextOptions())
    fitting = AlignConfig(**arm.map)
    aligned = place / f"align-{_short(training, fitting)}"
    align(replace(session, out=aligned), None, model, fitting, vectors)
    made = ExpandConfig(**arm.rows)
    out = place / f"expand-{_short(training, fitting, made)}"
    return str(expand(replace(session, out=out), None, None, made, aligned).path)


def _short(*configs: Any) -> str:
    return hash_json([plain(asdict(config)) for config in configs])[:8]
