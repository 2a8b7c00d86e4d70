"""``import greenadapt`` costs nothing, and its names are there."""

import subprocess
import sys


def test_the_import_loads_nothing_heavy_and_the_names_are_there() -> None:
    code = (
        "import sys, greenadapt\n"
        "heavy = ['numpy', 'torch', 'typer', 'rich', 'pydantic', 'tokenizers', 'greenadapt.config']\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "print([name for name in greenadapt.__all__ if getattr(greenadapt, name).__name__ != name])\n"
        "print([name for name in ('torch', 'transformers', 'typer') if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines() == ["[]", "[]", "[]"]
