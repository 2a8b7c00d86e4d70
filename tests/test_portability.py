"""A model is adapted without the optional packages gensim and torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import tiny_model_in

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(["torch", "transformers", "accelerate", "ray", "gensim"]))
from greenadapt.cli import main
main()
"""


@pytest.mark.slow
def test_a_model_is_adapted_without_gensim_and_torch(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the coronavirus of a patient with tachycardia\n" * 20)

    def call(*arguments: object) -> str:
        command = [sys.executable, "-c", WITHOUT, *map(str, arguments), "--workspace", "ws"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    call("adapt", "text.txt", "-m", tiny_model_in(tmp_path), "--out", "adapted", "--workers", 1, "--min-count", 1)
    output = call("neighbours", "--model", "adapted", "coronavirus")
    assert "row → wordpieces" in output
    assert "word vector → word vectors" in output
