"""What is compared, and the models it is made with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from draws import draw_lines

from gain.peers import Adapted, missing, with_rows_of
from gain.vectors import KINDS, OTHER, replace_vectors, text_of_another_domain
from greenadapt.checkpoints.provenance import model_input
from greenadapt.checkpoints.source import find_model
from greenadapt.config import AlignConfig, ExpandConfig, PretrainConfig, TextOptions, TrainConfig, W2VConfig
from greenadapt.progress import Progress
from greenadapt.stages.align import align
from greenadapt.stages.expand import expand
from greenadapt.stages.pretrain import PretrainRequest, pretrain
from greenadapt.stages.session import Session
from greenadapt.stages.w2v import w2v
from greenadapt.store.files import Json, hash_file, hash_json, to_plain

BASE, CONTROL, DEFAULT = "base", "control", "default"
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Arm:
    """How a model is adapted and fine-tuned; each field has the options of one stage that differ from the defaults."""

    rows: Options | None = None
    """Of ``ExpandConfig``; ``None`` leaves the model as it is."""
    map: Options = field(default_factory=dict)
    """Of ``AlignConfig``."""
    vectors: Options | None = field(default_factory=dict)
    """Of ``W2VConfig``; ``None`` leaves rate and epochs to the size of the text, as ``adapt`` does."""
    training: Options = field(default_factory=dict)
    """Of ``TrainConfig``."""
    other_vectors: str = ""
    """What the model reads instead of the vectors of its words, of ``KINDS``."""
    averaged_with: str = ""
    """The arm that has another random seed, and is otherwise the same: the mean of both models is measured."""
    peer: str = ""
    """Whose program makes the rows instead, of ``PEERS``."""
    pretraining: Options | None = None
    """Instead of being adapted, the model is pre-trained on so many ``words`` drawn from the text; the other options
    are those of ``PretrainConfig`` and ``TrainConfig``.
    """

    @property
    def reads_text(self) -> bool:
        return self.rows is not None or self.pretraining is not None


# Masked language modelling in one pass over a part of the text.
_PRETRAINING: Options = {"epochs": 1, "learning_rate": 2e-4, "heldout": 0.0, "precision": "bfloat16"}
_WITHOUT_VECTORS = Arm({"rows": "form"}, vectors=None, training={"mix": "both"})
# What adapt and finetune do without options.
_WITHOUT_OPTIONS = replace(_WITHOUT_VECTORS, training={"mix": "both", "word_vectors": True})
# One pass in the base tokenization.
_ONE_PASS = replace(_WITHOUT_VECTORS, training={"mix": "base", "pool": "base", "word_vectors": True})

ARMS: dict[str, Arm] = {
    BASE: Arm(),
    CONTROL: Arm(averaged_with=BASE),
    "map": Arm({"rows": "map"}),
    "norm": Arm({"rows": "norm"}),
    "pieces": Arm({"rows": "pieces"}),
    "form": Arm({"rows": "form"}),
    "both": Arm({"rows": "form"}, training={"mix": "both"}),
    DEFAULT: _WITHOUT_OPTIONS,
    "without-vectors": _WITHOUT_VECTORS,
    "without-vectors-pair": replace(_WITHOUT_VECTORS, averaged_with="without-vectors"),
    "pieces-both": Arm({"rows": "pieces"}, training={"mix": "both"}),  # knows the words, and nothing of the text
    "random-both": Arm({"rows": "pieces"}, training={"mix": "both"}, peer="random"),
    "identity": Arm({"rows": "map"}, map={"method": "identity"}),
    "random": Arm({"rows": "map"}, map={"method": "random"}),
    "pretrain": Arm(pretraining={**_PRETRAINING, "words": 100_000, "head_steps": 20}),
    "pretrain10": Arm(pretraining={**_PRETRAINING, "words": 1_000_000, "head_steps": 100}),
    "omp": Arm({"rows": "map"}, peer="omp"),
    "focus": Arm({"rows": "map"}, peer="focus"),
    "vectors": _ONE_PASS,
    **{f"vectors-{kind}": replace(_ONE_PASS, other_vectors=kind) for kind in KINDS},
}
"""Name → arm."""


def with_base(arms: Iterable[str]) -> list[str]:
    """The arms in order of work; the base model, with which all others are compared, comes first."""
    return list(dict.fromkeys([BASE, *arms]))


def runnable(arms: Iterable[str], progress: Progress) -> list[str]:
    """Those arms whose packages are installed, others with a warning."""
    lacks = {arm: missing(ARMS[arm].peer) if ARMS[arm].peer else "" for arm in arms}
    for arm, package in lacks.items():
        if package:
            progress.warn(f"left out {arm}: {package} is not installed")
    return [arm for arm, package in lacks.items() if not package]


def adapted_model(session: Session, corpus: Path, model: str, arm: Arm, folder: Path) -> str:
    """The model of an arm, made from ``corpus`` in ``folder``; arms share equal stages, and what is there is left as it
    is, so that a new version of the program goes on with the same models.
    """
    if arm.pretraining is not None:
        return _pretrained(session, corpus, model, arm.pretraining, _place_of(corpus, model, folder))
    if arm.rows is None:
        return model
    vectors, fitted, rows = _vectors_of(arm), AlignConfig(**arm.map), ExpandConfig(**arm.rows)
    target = _place_of(corpus, model, folder)
    settings = [_vector_settings(arm), changed_settings(fitted), changed_settings(rows)]
    trained, aligned, expanded = (
        target / f"{stage}-{hash_json(settings[:n_configs])[:8]}"
        for n_configs, stage in enumerate(("w2v", "align", "expand"), start=1)
    )
    if not trained.is_dir():
        w2v(replace(session, out=trained), str(corpus), model, vectors, TextOptions())
    if not aligned.is_dir():
        align(replace(session, out=aligned), None, model, fitted, trained)
    if not expanded.is_dir():
        expand(replace(session, out=expanded), None, None, rows, aligned)
    if arm.peer:
        expanded = with_rows_of(arm.peer, Adapted(model, corpus, trained, aligned, rows, expanded, session.workers))
    if arm.other_vectors:
        source = expanded
        if arm.other_vectors == OTHER:
            text, own = text_of_another_domain(corpus), replace(arm, other_vectors="")
            source = Path(adapted_model(session, text, model, own, folder))
        expanded = replace_vectors(arm.other_vectors, expanded, source)
    return str(expanded)


def described(corpus: Path, arm: Arm) -> Json:
    """All that decides an arm's model besides the base model, as far as it is known before training."""
    text = hash_file(corpus)
    if arm.pretraining is not None:
        return {"text": text, "pretraining": to_plain(dict(arm.pretraining))}
    stages = {"map": AlignConfig(**arm.map), "rows": ExpandConfig(**(arm.rows or {}))}
    settings = {stage: changed_settings(config) for stage, config in stages.items()}
    return {"text": text, "vectors": _vector_settings(arm), **settings, "peer": arm.peer}


def _vectors_of(arm: Arm) -> W2VConfig:
    settings: dict[str, Any] = {"workers": 1}  # gives the same vectors every time
    if arm.vectors is not None:  # else rate and epochs go by the size of the text
        settings |= {"epochs": W2VConfig.epochs, "alpha": W2VConfig.alpha, **arm.vectors}
    return W2VConfig(**settings)


def _vector_settings(arm: Arm) -> Json | str:
    return "by the size of the text" if arm.vectors is None else changed_settings(_vectors_of(arm))


def _place_of(corpus: Path, model: str, folder: Path) -> Path:
    text = f"{corpus.name.split('.')[0]}-{hash_file(corpus)[:8]}"
    return folder / text / f"{find_model(model).name}-{identity(model)[:8]}"


def _pretrained(session: Session, corpus: Path, model: str, options: Options, target: Path) -> str:
    out = target / f"pretrain-{hash_json(dict(options))[:8]}"
    if not out.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        text = draw_lines(corpus, options["words"], target / f"words-{options['words']}.txt")
        configs = [
            kind(**{setting.name: options[setting.name] for setting in fields(kind) if setting.name in options})
            for kind in (PretrainConfig, TrainConfig)
        ]
        pretrain(
            replace(session, out=out), PretrainRequest(model, (str(text),), config=configs[0], training=configs[1])
        )
    return str(out)


@cache
def identity(model: str) -> str:
    """A hash of a model's content."""
    return str(model_input(find_model(model))["sha256"])


_DEFAULTS: Mapping[type, Options] = {ExpandConfig: {"rows": "map"}}
"""Defaults when the first records were made, where they have changed since."""


def changed_settings(config: Any) -> Json:
    """The options of a configuration that differ from the defaults, as they were at first: keys that are made from them
    stay the same when the configuration gets new options or defaults.
    """
    defaults = {f.name: f.default for f in fields(config)} | dict(_DEFAULTS.get(type(config), {}))
    options = {name: value for name, default in defaults.items() if (value := getattr(config, name)) != default}
    return dict(to_plain(options))
