import json
from pathlib import Path

from greenadapt.pipeline.demo import N_WORDS, demo
from greenadapt.pipeline.session import Session
from greenadapt.progress import Silent
from greenadapt.workspace import Workspace


def test_the_demo_on_two_packages(tmp_path: Path) -> None:
    recipe = tmp_path / "small.toml"
    recipe.write_text('title = "two"\nlicence = "theirs"\nformat = "pydocs"\npackages = ["smart-open", "gensim"]\n')
    shown = demo(Session(Workspace(tmp_path / "ws"), Silent()), str(recipe))
    facts = json.loads(json.dumps(shown.as_dict()))
    assert facts["counts"]["words"] > 100
    assert 1 < facts["fertility"]["after"] < facts["fertility"]["before"] < 2
    assert len({row["word"] for row in facts["neighbours"]}) == N_WORDS
    assert set(facts["cost"]) == {"corpus", "w2v", "align", "expand"}
    assert 0 < facts["alignment"]["cosine"] < 1
    assert Path(facts["folder"], "model.safetensors").is_file()
