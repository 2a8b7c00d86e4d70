"""Hashes, licences, and the wheel."""

import hashlib
import os
from pathlib import Path

import pytest

from torture.supply import check_hashes, check_licences, dependencies, refused

ROOT = Path(__file__).parents[2]


def test_every_version_that_is_checked_has_hashes() -> None:
    assert list(check_hashes()) == []


def test_the_licences_of_what_is_installed_are_allowed() -> None:
    assert {"numpy", "tokenizers", "gensim"} <= dependencies("greenadapt").keys()
    assert list(check_licences()) == []
    assert refused("MIT AND GPL-3.0-only") == ["GPL-3.0-only"]
    assert refused("GPL-2.0 OR BSD-3-Clause") == []
    assert refused("Proprietary") == ["Proprietary"]


@pytest.mark.slow
def test_a_wheel_is_the_same_when_it_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hatchling.build import build_wheel

    monkeypatch.chdir(ROOT)
    wheels = []
    for i, epoch in enumerate(("1700000000", "1700000000", "1800000000")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        os.utime(ROOT / "greenadapt" / "py.typed")
        (tmp_path / str(i)).mkdir()
        wheel = tmp_path / str(i) / build_wheel(str(tmp_path / str(i)))
        wheels.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert wheels[0] == wheels[1] != wheels[2]
