"""Models to serve, made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="NOT TESTED: serve, without fastapi")

from starlette.testclient import TestClient

from tests.support.small_served import HOST, application, make_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def client(models: Path) -> Iterator[TestClient]:
    with TestClient(application(models), HOST) as client:
        yield client
