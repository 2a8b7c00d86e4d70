"""The trainings of a benchmark are all asked for before the first one is done on a cluster."""

from argparse import Namespace
from pathlib import Path

import pytest

from greenadapt.errors import MissingError
from tests.conftest import benchmark_module
from tests.support.small_cluster import ADDRESS, free_port
from tests.support.small_tasks import TinyModel, ner_request, session


def test_all_that_is_missing_is_asked_for_first(tiny_model: TinyModel, tmp_path: Path) -> None:
    trainings = benchmark_module("trainings")
    request = ner_request(tmp_path, tiny_model())
    calls: list[str] = []

    def run(name: str) -> None:
        calls.append(name)
        trainings.finetune(session(tmp_path, name), request)
        calls.append("trained")

    options = Namespace(cluster=None, gpus_each=None)
    runs = [lambda: run("one"), lambda: run("two")]
    trainings.train_first(session(tmp_path), options, runs)
    assert calls == []
    options.cluster = f"{ADDRESS}:{free_port()}"
    with pytest.raises(MissingError, match=options.cluster):
        trainings.train_first(session(tmp_path), options, runs)
    assert calls == ["one", "two"]
