"""The compiled code is named by its source, so that no cache of other arithmetic is used."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greenadapt.vectors.engine import lanes


@pytest.mark.slow
def test_an_edit_of_the_arithmetic_changes_the_name_of_the_cache(tmp_path: Path) -> None:
    shutil.copytree(Path(lanes.__file__).parents[2], tmp_path / "greenadapt", ignore=shutil.ignore_patterns("*.nb?"))
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(tmp_path)!r})
for file in ("local.py", "lanes.py"):
    with open(Path({str(tmp_path)!r}, "greenadapt/vectors/engine", file), "a") as opened:
        opened.write("# edited\\n")
    for name in [name for name in sys.modules if name.startswith("greenadapt")]:
        del sys.modules[name]
    from greenadapt.vectors.engine.chunks import train_lines
    print(train_lines.py_func.__qualname__)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, edited = run.stdout.splitlines()
    assert before != edited
