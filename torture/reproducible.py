"""Do several Pythons make the same bytes of the same text, model and configuration, with one worker?

    python torture/reproducible.py --corpus text.txt --model minilm --work DIR PYTHON [PYTHON ...]

Each interpreter, which must have greenadapt's dependencies but need not have torch, runs ``adapt`` with both engines in
a workspace of its own. Prints the digest of each file by stage, or that they differ; the exit code is then 1.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ENGINES = ("fast", "gensim")
CARD = "README.md"


def digests(python: str, home: Path, corpus: Path, model: str, engine: str) -> dict[str, str]:
    """``stage/file`` → SHA-256 of what an interpreter makes in the workspace ``home``, which is made empty."""
    shutil.rmtree(home, ignore_errors=True)
    command = [
        python, "-m", "greenadapt", "adapt", "-c", str(corpus), "-m", model, "--workers", "1", "--workspace", str(home),
        "--engine", engine, "--epochs", "2", "--dim", "50", "--min-count", "2", "--quiet",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{python}: {process.stderr.strip().splitlines()[-1:]}")
    files = {}
    for path in sorted(home.glob("*/*/*/manifest.json")):
        for name, entry in json.loads(path.read_text("utf-8"))["files"].items():
            if Path(name).name != CARD:  # which tells times and costs
                files[f"{path.parent.name}/{name}"] = entry["sha256"]
    return files


def main() -> int:
    """Run all, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    differs = False
    for engine in ENGINES:
        builds = {
            python: digests(python, options.work / engine / str(i), options.corpus, options.model, engine)
            for i, python in enumerate(options.pythons)
        }
        for name in sorted({name for digests_of_build in builds.values() for name in digests_of_build}):
            is_same = len({digests_of_build.get(name) for digests_of_build in builds.values()}) == 1
            differs = differs or not is_same
            verdict = (
                next(iter(builds.values())).get(name, "")[:16]
                if is_same
                else "DIFFERS " + str([digests_of_build.get(name) for digests_of_build in builds.values()])
            )
            print(f"{engine} {name}: {verdict}", flush=True)
    for python in options.pythons:
        version = subprocess.run(
            [python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True
        ).stdout
        print(f"{python}: {version.strip()}")
    print("different bytes" if differs else "the same bytes")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
