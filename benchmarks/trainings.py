"""The trainings of a benchmark; with ``--cluster`` they all run at once before the first result is read."""

import argparse
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from greenadapt.stages.finetune import compare, train
from greenadapt.stages.finetune.on_cluster import train_on_cluster
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import Session
from greenadapt.store.results import Result

_wanted: list[tuple[Session, FinetuneRequest]] | None = None
"""What is asked for while it is only noted."""


class _NotTrained(Exception):  # noqa: N818  (it is no error)
    """Ends what needs the result of a training."""


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a cluster for the trainings."""
    parser.add_argument("--cluster", help="a Ray cluster for the trainings: HOST:PORT, auto or local")
    parser.add_argument("--gpus-each", type=float, help="with --cluster: of each training; 1 if there are GPUs")


def finetune(session: Session, request: FinetuneRequest) -> Result:
    """The stage; it only collects the results that ``train_first`` has trained."""
    if _wanted is not None:
        _wanted.append((session, request))
        raise _NotTrained
    return compare.finetune(session, request)


def train_first(session: Session, options: argparse.Namespace, runs: Iterable[Callable[[], object]]) -> None:
    """With ``--cluster``, do the trainings of all ``runs``, each of which calls ``finetune`` for what is missing."""
    global _wanted
    if options.cluster is None:
        return
    requests: list[tuple[Session, FinetuneRequest]] = []
    _wanted = requests
    try:
        for run in runs:
            with suppress(_NotTrained):
                run()
    finally:
        _wanted = None
    spread = replace(session, cluster=options.cluster, gpus_each=options.gpus_each)
    trainings = [train.check_finetune(*request) for request in requests]
    names = ["/".join(training.folder.parts[-2:]) for training in trainings]
    train_on_cluster(spread, trainings, names)
