"""The interpolate stage: a domain model and a general one in, the model between them out."""

import shutil
from dataclasses import asdict
from pathlib import Path

from greenadapt.checkpoints.interpolation import Interpolation, n_base_rows
from greenadapt.checkpoints.layout import FACTS_FILE
from greenadapt.checkpoints.provenance import (
    adapted_input,
    base_id,
    check_model,
    copy_task,
    licence_of,
    model_facts,
    note_code,
    reads_sentences,
    starting_model,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.checkpoints.writer import copy_side_files, write_weights
from greenadapt.config import InterpolateConfig
from greenadapt.errors import UsageError
from greenadapt.report.cards import InterpolationCard
from greenadapt.stages.session import INTERPOLATE, Session, commands_of
from greenadapt.storage.files import Json, short, write_json
from greenadapt.storage.jobs import Job, Outcome
from greenadapt.storage.results import Result
from greenadapt.tokenization.export import copy_tokenizers


def interpolate(session: Session, model: str, general: str, config: InterpolateConfig) -> Result:
    """Write the model between two others as a folder that transformers and ``finetune`` load.

    The added words, head and tokenizers are those of the domain model, ``model``.

    Raises ``UsageError`` if ``session.out`` is not given, ``InputError`` if the models differ in more than
    their weights.
    """
    if session.out is None:
        raise UsageError("no output folder", "give one with --out")
    domain, other = starting_model(model), find_model(general)
    place = session.place("", domain.name, INTERPOLATE)
    session.check(place, INTERPOLATE, asdict(config))
    for each in (domain, other):
        check_model(each, whole=True)
    inputs = {"model": adapted_input(domain), "general": adapted_input(other)}

    def build(work: Path) -> Outcome:
        note_code(domain, session.progress)
        mixed = Interpolation(Checkpoint.open(domain.folder), Checkpoint.open(other.folder), config.weight)
        return _write(mixed, work, {"model": model_facts(domain), "general": model_facts(other)})

    def card(work: Path, outcome: Outcome, cost: Json) -> str:
        return InterpolationCard(
            model=short(model),
            base=base_id(domain),
            licence_of_base=licence_of(domain),
            commands=commands_of(session),
            general=short(general),
            weight=config.weight,
            reads_sentences=reads_sentences(work),
            cost=cost,
        ).text()

    job = Job(INTERPOLATE, asdict(config), inputs, build, card=card)
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
