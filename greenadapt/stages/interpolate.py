"""The interpolate stage: a domain model and a general one in, the model between them out."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from greenadapt.checkpoints.interpolation import Interpolation, n_base_rows
from greenadapt.checkpoints.layout import FACTS_FILE
from greenadapt.checkpoints.provenance import (
    adapted_input,
    base_id,
    check_model,
    copy_task,
    model_facts,
    note_code,
    reads_sentences,
    starting_model,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.checkpoints.writer import copy_side_files, write_weights
from greenadapt.errors import UsageError
from greenadapt.report.interpolation_card import InterpolationCard
from greenadapt.stages.session import INTERPOLATE, Session, commands_of
from greenadapt.storage.files import Json, write_json
from greenadapt.storage.names import short
from greenadapt.storage.results import Job, Outcome, Result
from greenadapt.tokenization.writer import copy_tokenizers


@dataclass(frozen=True)
class InterpolateRequest:
    """The models to interpolate, and their weight."""

    model: str
    """The domain model, from which the added words, head and tokenizers are taken."""
    general: str
    weight: float
    """The weight of ``general``."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise UsageError(f"--weight is {self.weight:g}, must be between 0 and 1")


def interpolate(session: Session, request: InterpolateRequest) -> Result:
    """Write the model between two others as a folder that transformers and ``finetune`` load.

    Raises ``UsageError`` if ``session.out`` is not given, ``InputError`` if the models differ in more than
    their weights.
    """
    if session.out is None:
        raise UsageError("no output folder", "give one with --out")
    domain, general = starting_model(request.model), find_model(request.general)
    place, config = session.place("", domain.name, INTERPOLATE), {"weight": request.weight}
    session.check(place, INTERPOLATE, config)
    for each in (domain, general):
        check_model(each, whole=True)
    inputs = {"model": adapted_input(domain), "general": adapted_input(general)}

    def build(work: Path) -> Outcome:
        note_code(domain, session.progress)
        mixed = Interpolation(Checkpoint.open(domain.folder), Checkpoint.open(general.folder), request.weight)
        return _write(mixed, work, {"model": model_facts(domain), "general": model_facts(general)})

    def card(work: Path, outcome: Outcome, cost: Json) -> str:
        return InterpolationCard(
            model=short(request.model),
            base=base_id(domain),
            commands=commands_of(session),
            general=short(request.general),
            weight=request.weight,
            reads_sentences=reads_sentences(work),
        ).text()

    job = Job(INTERPOLATE, config, inputs, build, card=card)
    with session.locked(None, domain.name):
        return session.run(place, job)


def _write(mixed: Interpolation, work: Path, facts: Json) -> Outcome:
    domain = mixed.domain
    tensors = mixed.tensors()
    write_weights(work, tensors)
    write_json(work / "config.json", domain.config)
    copy_tokenizers(domain.folder, work)
    copy_side_files(domain.folder, work)
    copy_task(domain.folder, work)
    if (domain.folder / FACTS_FILE).is_file():
        shutil.copyfile(domain.folder / FACTS_FILE, work / FACTS_FILE)
    n_rows, n_mixed = n_base_rows(domain), len(mixed.pairs)
    counts = {"weights": n_mixed, "kept": len(tensors) - n_mixed, "base_rows": n_rows, "rows": domain.n_rows - n_rows}
    return Outcome(counts, facts)
