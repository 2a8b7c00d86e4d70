"""Every snippet of the guide runs, in order, with a small model for the one that it names."""

import re
from pathlib import Path
from typing import Any

import pytest

from greenadapt.stages.finetune import request
from tests.support.hub import Hub
from tests.support.small_tasks import TinyModel, known_text, ner_file, qa_file, worded_model

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_every_snippet_runs(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hub: Hub
) -> None:
    model = worded_model(tiny_model)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENADAPT_HOME", str(tmp_path / "ws"))
    monkeypatch.setattr(request, "_MIN_STEPS", 4)
    Path("papers.txt").write_text(known_text(), "utf-8")
    ner_file(Path("train.tsv"))
    ner_file(Path("test.tsv"), 15, 1)
    qa_file(Path("questions.json"))
    assert len(SNIPPETS) == 6
    names: dict[str, Any] = {}
    for snippet in SNIPPETS:
        exec(compile(snippet.replace('"minilm"', repr(str(model))), str(GUIDE), "exec"), names)
    assert len(names["encoded"].base.ids) > len(names["encoded"].expanded.ids)
    assert {*names["adapted"].words} > {"tachycardia", "coronavirus"}
    assert {"line", "text", "label", "score", "probabilities"} == {*names["row"]}
    assert {"config.json", "model.safetensors"} < {path for _, path in hub.files}
    assert hub.repos == {"me/reviews": True}
    assert "--epochs is 0, must be greater than or equal to 1" in capsys.readouterr().out
