"""The qa stage: questions and documents in, a folder of answers out."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from greenadapt.checkpoints.layout import SCORES
from greenadapt.checkpoints.provenance import model_facts
from greenadapt.cluster import ClusterPool
from greenadapt.corpus.opening import input_name, is_read_once
from greenadapt.errors import UsageError, pluralize
from greenadapt.inference.qa.answering import Answerer, QaRequest
from greenadapt.stages.session import QA, Session
from greenadapt.store.files import Json, read_own_lines, write_json
from greenadapt.store.results import Job, Outcome, Result

ANSWERS = "answers.jsonl"
"""One row per question."""


def answer(session: Session, request: QaRequest) -> Result:
    """Write ``answers.jsonl``, one row per question, and ``scores.json`` into the session's ``out``.

    A killed run resumes after its last answer.
    """
    if pipes := [*filter(is_read_once, request.sources.paths())]:
        raise UsageError(f"--out needs input that can be read again, {input_name(pipes[0])} cannot", "name a file")
    config: Json = {**asdict(request.config), **asdict(request.reading)}
    del config["memory"]  # the path of the general model; the model identifies it
    del config["max_tokens"]
    sources = request.sources
    # The rows name documents and questions by the user's paths.
    config |= {"sources": sources.paths(), "asked": list(sources.question_texts)}
    retrieval = request.retrieval
    if sources.index is not None:
        config |= {"index": sources.index, "passages": retrieval.n_passages}
    elif retrieval.passages is not None:
        config |= {"passages": retrieval.passages}
    config |= {"format": sources.format, "fields": list(sources.fields), "task": request.task}
    if sources.documents:
        config["sample_by"] = sources.sample_by or "line"
    session.check_out(QA, config)
    cluster = ClusterPool(session.cluster, session.gpus_each) if session.cluster else None
    answerer = Answerer(request, session.progress, cluster)
    model = answerer.model

    def build(work: Path) -> Outcome:
        answered = _whole_rows(work / ANSWERS)
        if answered:
            session.progress.note(f"resuming after {pluralize(len(answered), 'answer')}")
        rows = answerer.rows(answered)  # opens the models
        with open(work / ANSWERS, "a", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
        write_json(work / SCORES, answerer.summary())
        counts = {"questions": len(answerer.question_set.questions), "contexts": answerer.question_set.n_contexts}
        return Outcome(counts, {"model": model_facts(model)})

    return session.run(Job(QA, config, answerer.inputs(), checkpoints=(ANSWERS,)), build)


def _whole_rows(file: Path) -> list[Json]:
    """The rows that a killed run wrote; a row that it did not finish is cut off."""
    if not file.is_file():
        return []
    content = file.read_bytes()
    os.truncate(file, content.rfind(b"\n") + 1)
    return [*read_own_lines(file)]
