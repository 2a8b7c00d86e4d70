"""SHA-256 of what the commands write, to show that a change of the code changes no result.

    python benchmarks/fingerprint.py --data DATA --work before > before.jsonl
    python benchmarks/fingerprint.py --data DATA --work after --against before.jsonl

Adapts the offline model to the first lines of a text, by both engines, and trains a few steps of each kind of task,
with one worker, one thread and fixed seeds. DATA has corpora/biomedical.txt.gz, ner/NCBI-disease,
classification/sci-cite and qa/xquad.en.json. Prints the name of each file and the hash of its bytes, as JSON lines.
With --against it names the files that differ on stderr, and exits with 1 if there are any.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
KINDS = {".safetensors", ".json", ".jsonl", ".tsv", ".ids"}
UNLIKE = {"manifest.json"}  # has seconds and energy
TASKS = """
[[task]]
name = "diseases"
kind = "ner"
train = "ner.tsv"
test = "ner.tsv"

[[task]]
name = "citations"
kind = "classification"
train = "citations.jsonl"
test = "citations.jsonl"
"""


def main() -> None:
    """Make every result in the work folder, hash its files, and compare with an earlier run."""
    options = _options()
    work = options.work.absolute()
    work.mkdir(parents=True)
    _small_data(options.data, work / "data")
    for name, command in _commands().items():
        _run(name, command, work)
    hashes = dict(_hashes(work))
    for name, digest in hashes.items():
        print(json.dumps({"file": name, "sha256": digest}))
    if options.against is not None:
        sys.exit(_compare(options.against, hashes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with corpora, ner, classification and qa")
    parser.add_argument("--work", type=Path, required=True, help="a new folder, for the results")
    parser.add_argument("--against", type=Path, help="what an earlier run printed")
    return parser.parse_args()


def _small_data(data: Path, folder: Path) -> None:
    """The first lines of each set, in ``folder``."""
    folder.mkdir()
    with gzip.open(data / "corpora" / "biomedical.txt.gz", "rt", encoding="utf-8") as file:
        (folder / "text.txt").write_text("".join(islice(file, 12_000)), "utf-8")
    sentences = (data / "ner" / "NCBI-disease" / "train.tsv").read_text("utf-8").split("\n\n")[:60]
    (folder / "ner.tsv").write_text("\n\n".join(sentences) + "\n", "utf-8")
    texts = (data / "classification" / "sci-cite" / "dev.txt").read_text("utf-8").splitlines()[:60]
    (folder / "citations.jsonl").write_text("\n".join(texts) + "\n", "utf-8")
    (folder / "texts.txt").write_text("\n".join(json.loads(line)["text"] for line in texts) + "\n", "utf-8")
    questions = json.loads((data / "qa" / "xquad.en.json").read_text("utf-8"))
    questions["data"] = questions["data"][:1]
    questions["data"][0]["paragraphs"] = questions["data"][0]["paragraphs"][:3]
    (folder / "questions.json").write_text(json.dumps(questions), "utf-8")
    (folder / "tasks.toml").write_text(TASKS, "utf-8")


def _commands() -> dict[str, list[str]]:
    """The commands by name; paths are relative to the work folder, so that derived names are always the same."""
    adapt = "adapt --corpus data/text.txt --model minilm --min-count 5 --epochs 2 --workers 1"
    tune = (
        "finetune --model adapted --mix sample --epochs 10 --lr 5e-5 --max-steps 6 --batch-size 8 --precision float32"
    )
    common = f"{tune} --max-length 64 --task"
    citations = "classification --train data/citations.jsonl --test data/citations.jsonl"
    lines = {
        "gensim": f"{adapt} --rows map --workspace gensim --engine gensim",
        "fast": f"{adapt} --workspace fast --engine fast --rows map --out adapted",
        "norm": f"{adapt} --workspace fast --engine fast --rows norm --variant norm",
        "ner": f"{common} ner --train data/ner.tsv --test data/ner.tsv --seeds 2 --out ner",
        "classification": f"{common} {citations} --save-logits --out classification",
        "memory": f"{common} {citations} --memory base --out memory",
        "qa": f"{common} qa --train data/questions.json --test data/questions.json --out qa",
        "multitask": f"{tune} --tasks data/tasks.toml --adapter-size 36 --adapter-heads 6 --out multitask",
        "pretrain": "pretrain --model adapted --text data/texts.txt --max-steps 4 --head-steps 2 --precision float32 "
        "--out pretrain",
        "predict-ner": "predict --model ner --input data/texts.txt --tags",
        "predict-multitask": "predict --model multitask --task diseases,citations --input data/texts.txt",
        "answers": "qa --model qa --data data/questions.json --json",
    }
    return {name: line.split() for name, line in lines.items()}


def _run(name: str, command: list[str], work: Path) -> None:
    print(name, file=sys.stderr, flush=True)
    with open(work / f"{name}.log", "w", encoding="utf-8") as log:
        process = subprocess.run(
            [sys.executable, "-m", "greenadapt", *command],
            cwd=work, stdout=subprocess.PIPE, stderr=log, env=os.environ | ONE_THREAD, text=True, check=False,
        )  # fmt: skip
    if process.returncode:
        sys.exit(f"{name} ended with {process.returncode}: {(work / f'{name}.log').read_text()}")
    if command[0] in ("predict", "qa"):
        (work / f"{name}.jsonl").write_text(process.stdout, "utf-8")


def _hashes(work: Path) -> Iterator[tuple[str, str]]:
    """Each file's name and the hash of its bytes, the work folder's path in them left out."""
    for folder, below, files in os.walk(work, followlinks=True):
        below[:] = sorted(name for name in below if not name.startswith(".") and Path(folder, name) != work / "data")
        for path in (Path(folder, name) for name in sorted(files) if Path(name).suffix in KINDS):
            # The folder of a corpus given by path is called by the path's hash, too.
            name = re.sub(r"/text-[0-9a-f]{8}/", "/text/", path.relative_to(work).as_posix())
            if path.name not in UNLIKE:
                yield name, sha256(path.read_bytes().replace(os.fsencode(work), b"WORK")).hexdigest()


def _compare(against: Path, hashes: dict[str, str]) -> int:
    before = {row["file"]: row["sha256"] for row in map(json.loads, against.read_text("utf-8").splitlines())}
    names = sorted({*before, *hashes})
    different = [name for name in names if before.get(name) != hashes.get(name)]
    print(f"{len(names) - len(different)} of {len(names)} files are the same", file=sys.stderr)
    for name in different:
        print(f"differs: {name}", file=sys.stderr)
    return int(bool(different))


if __name__ == "__main__":
    main()
