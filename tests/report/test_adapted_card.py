import dataclasses
import json
from typing import Any

import pytest

from greenadapt.config import AlignConfig, ExpandConfig, W2VConfig
from greenadapt.report.adapted_card import Made


def as_manifest(config: Any) -> dict[str, Any]:
    return dict(json.loads(json.dumps(dataclasses.asdict(config))))


@pytest.mark.parametrize(
    ("stage", "config", "default", "options"),
    [
        ("w2v", W2VConfig(), W2VConfig(), ""),
        ("w2v", W2VConfig(window=7, cbow_mean=False), W2VConfig(), " --window 7 --cbow-sum"),
        ("w2v", W2VConfig(dim=64), W2VConfig(dim=32), " --dim 64"),
        ("w2v", W2VConfig(engine="fast"), W2VConfig(), " --engine fast"),
        (
            "w2v",
            W2VConfig(engine="fast", gradient="corrected"),
            W2VConfig(),
            " --engine fast --gradient corrected",
        ),
        ("align", AlignConfig(method="ridge", ridge=0.5), AlignConfig(), " --method ridge --ridge 0.5"),
        (
            "expand",
            ExpandConfig(restrict_to=("a b.txt", "c"), replace_all=True, max_words=9),
            ExpandConfig(),
            " --replace-all --max-words 9 --restrict-to 'a b.txt' --restrict-to c",
        ),
    ],
)
def test_the_command_has_every_setting_that_is_not_the_default(
    stage: str, config: Any, default: Any, options: str
) -> None:
    command = Made(stage, as_manifest(config), default).command(["--corpus", "pydocs"])
    assert command == f"greenadapt {stage} --corpus pydocs{options}"


def test_one_worker_is_part_of_the_command() -> None:
    manifest = as_manifest(W2VConfig()) | {"workers": "one"}
    assert Made("w2v", manifest, W2VConfig()).command([]) == "greenadapt w2v --workers 1"
    assert Made("w2v", manifest | {"workers": "several"}, W2VConfig()).command([]) == "greenadapt w2v"
