"""The values that the commands compute, to show that a change of the code changes none.

    python benchmarks/fingerprint.py --data DATA --work before > before.jsonl
    python benchmarks/fingerprint.py --data DATA --work after --against before.jsonl

Adapts the offline model to the first lines of a text, by all kinds of rows, and trains a few steps of
each kind of task, with one worker, one thread and fixed seeds. Every result is written to a folder by ``--out``, so
that the layout of the workspace does not matter. DATA has corpora/biomedical.txt.gz, ner/NCBI-disease,
classification/sci-cite and qa/xquad.en.json.

Prints the values as JSON lines, with their names: each tensor by the hash of its numbers, each number, text and list of
scores, losses, ids, predictions and answers as it is. With ``--against`` it compares with what an earlier run printed,
names on stderr what differs or is missing, and exits with 1 if anything does. What is new is only counted.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.store.arrays import ArrayFile

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
ABOUT_THE_RUN = {"manifest.json", "energy.json"}
"""Files about the run: time, energy, paths."""
MEASURED = {"seconds", "cost", "version", "time", "path", "file", "source", "model"}
"""Keys whose values are those of the run, or of its place."""
MOST_SHOWN = 40
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
ADAPT = "adapt --corpus data/text.txt --model minilm --workers 1"
TUNE = "finetune --model adapted --epochs 20 --max-steps 6 --precision float32"
NER = "--task ner --train data/ner.tsv --test data/ner.tsv"
CITATIONS = "--task classification --train data/citations.jsonl --test data/citations.jsonl --max-length 64"
QUESTIONS = "--task qa --train data/questions.json --test data/questions.json --max-length 128"
COMMANDS = {
    # Rows and vectors
    "adapt": f"{ADAPT} --out adapted",
    "adapt-paper": f"{ADAPT} --preset paper --out paper",
    "adapt-norm": f"{ADAPT} --epochs 2 --rows norm --out norm",
    "adapt-pieces": f"{ADAPT} --epochs 2 --rows pieces --max-words 500 --out pieces",
    "adapt-auto": f"{ADAPT} --epochs 2 --rows auto --method procrustes --out auto",
    "w2v": "w2v --corpus data/text.txt --model minilm --workers 1 --dim 50 --epochs 1 --out vectors",
    "align": "align --vectors vectors --model minilm --out map",
    "expand": "expand --alignment map --rows map --oov greedy --out greedy",
    "neighbours": "neighbours --model adapted disease patients --json",
    # Tasks, by their defaults
    "ner": f"{TUNE} {NER} --seeds 2 --save-logits --out ner",
    "ner-base": f"{TUNE.replace('adapted', 'minilm')} {NER} --out ner-base",
    "ner-dev": f"{TUNE} {NER} --dev data/ner.tsv --max-steps 16 --patience 1 --out ner-dev",
    "ner-paper": f"{TUNE} {NER} --preset paper --out ner-paper",
    "ner-sample": f"{TUNE} {NER} --mix sample --batch-size 8 --lr 5e-5 --out ner-sample",
    "classification": f"{TUNE} {CITATIONS} --save-logits --out classification",
    "heads": f"{TUNE} {CITATIONS} --head-layers 2 --head-dropout 0.2 --out heads",
    "qa": f"{TUNE} {QUESTIONS} --save-logits --out qa",
    # G-MAP and PALs
    "memory": f"{TUNE} {CITATIONS} --memory base --out memory",
    "memory-single": f"{TUNE} {NER} --memory base --strategy single --out memory-single",
    "pals": f"{TUNE} --tasks data/tasks.toml --out pals",
    "houlsby": f"{TUNE} --tasks data/tasks.toml --adapter houlsby --freeze-encoder --sampling round-robin "
    "--out houlsby",
    "pretrain": "pretrain --model adapted --text data/texts.txt --max-steps 4 --head-steps 2 --precision float32 "
    "--out pretrain",
    # What the models say
    "predict": "predict --model ner --input data/texts.txt",
    "predict-seed": "predict --model ner --input data/texts.txt --seed 1 --pool expanded",
    "predict-citations": "predict --model classification --input data/texts.txt",
    "predict-memory": "predict --model memory --input data/texts.txt",
    "predict-both": "predict --model pals --task diseases,citations --input data/texts.txt",
    "predict-several": "predict --model ner --model ner-dev --input data/texts.txt",
    "evaluate": "evaluate --model ner --test data/ner.tsv --json",
    "answers": "qa --model qa --data data/questions.json --json",
    "answers-documents": "qa --model qa --documents data/documents --question Who? --question When? --top 3 --json",
    "index": "index --documents data/documents --out index",
    "search": "search index patients --json",
    "answers-index": "qa --model qa --index index --questions data/asked.json --passages 5 --json",
}
"""Name → command. Paths are relative to the work folder, so that what is derived from them is the same."""
PRINTED = {"neighbours", "predict", "evaluate", "qa", "search"}
"""Commands whose standard output is compared."""


def main() -> None:
    """Run all commands in the work folder, print their values, and compare with an earlier run."""
    options = _options()
    work = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "data").is_dir():
        _write_data(options.data, work / "data")
    for name, command in COMMANDS.items():
        if not (work / f"{name}.done").exists():  # a stopped run goes on
            _run(name, command.split(), work)
            (work / f"{name}.done").touch()
    values = dict(_values(work))
    for name, value in values.items():
        print(json.dumps({"name": name, "value": value}))
    if options.against is not None:
        sys.exit(_compare(options.against, values))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with corpora, ner, classification and qa")
    parser.add_argument("--work", type=Path, required=True, help="folder of the results; what is done is not run again")
    parser.add_argument("--against", type=Path, help="what an earlier run printed")
    return parser.parse_args()


def _write_data(data: Path, folder: Path) -> None:
    """Write the first lines of each set into ``folder``."""
    (folder / "documents").mkdir(parents=True)
    with gzip.open(data / "corpora" / "biomedical.txt.gz", "rt", encoding="utf-8") as file:
        (folder / "text.txt").write_text("".join(islice(file, 12_000)), "utf-8")
    sentences = (data / "ner" / "NCBI-disease" / "train.tsv").read_text("utf-8").split("\n\n")[:60]
    (folder / "ner.tsv").write_text("\n\n".join(sentences) + "\n", "utf-8")
    texts = (data / "classification" / "sci-cite" / "dev.txt").read_text("utf-8").splitlines()[:60]
    (folder / "citations.jsonl").write_text("\n".join(texts) + "\n", "utf-8")
    (folder / "texts.txt").write_text("\n".join(json.loads(line)["text"] for line in texts) + "\n", "utf-8")
    questions = json.loads((data / "qa" / "xquad.en.json").read_text("utf-8"))
    paragraphs = questions["data"][0]["paragraphs"][:3]
    questions["data"] = [{**questions["data"][0], "paragraphs": paragraphs}]
    (folder / "questions.json").write_text(json.dumps(questions), "utf-8")
    asked = [{"id": str(i), "question": paragraph["qas"][0]["question"]} for i, paragraph in enumerate(paragraphs)]
    (folder / "asked.json").write_text(json.dumps(asked), "utf-8")
    for number, paragraph in enumerate(paragraphs):
        (folder / "documents" / f"{number}.txt").write_text(paragraph["context"] + "\n", "utf-8")
    (folder / "tasks.toml").write_text(TASKS, "utf-8")


def _run(name: str, command: list[str], work: Path) -> None:
    print(name, file=sys.stderr, flush=True)
    home = work / "home" / name
    with open(work / f"{name}.log", "w", encoding="utf-8") as log:
        process = subprocess.run(
            [sys.executable, "-m", "greenadapt", *command],
            cwd=work, stdout=subprocess.PIPE, stderr=log, text=True, check=False,
            env=os.environ | ONE_THREAD | dict.fromkeys(("GREENADAPT_HOME", "GREENADAPT_WORKSPACE"), str(home)),
        )  # fmt: skip
    if process.returncode:
        sys.exit(f"{name} ended with {process.returncode}: {(work / f'{name}.log').read_text()}")
    if command[0] in PRINTED:
        (work / f"{name}.printed").write_text(process.stdout, "utf-8")


def _values(work: Path) -> Iterator[tuple[str, Any]]:
    """The name and value of everything that the commands wrote and printed."""
    for folder, below, files in os.walk(work):
        below[:] = sorted(name for name in below if not name.startswith(".") and name not in ("data", "home"))
        for path in (Path(folder, name) for name in sorted(files)):
            name = path.relative_to(work).as_posix()
            if path.name in ABOUT_THE_RUN or path.name.startswith("."):
                continue
            if path.suffix == ".safetensors":
                yield from _tensors(name, path)
            elif path.suffix in (".jsonl", ".printed"):
                for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
                    yield from _leaves(f"{name}:{number}", json.loads(line))
            elif path.name == "tokenizer.json":
                yield name, sha256(path.read_bytes()).hexdigest()
            elif path.suffix == ".json":
                yield from _leaves(name, json.loads(path.read_text("utf-8")))
            elif path.suffix == ".tsv":
                yield name, sha256(path.read_bytes()).hexdigest()


def _tensors(name: str, path: Path) -> Iterator[tuple[str, str]]:
    """The hash of each tensor's shape and numbers; of half precision numbers in float32."""
    file = ArrayFile(path)
    for tensor in file.names:
        array = file[tensor]
        if not np.issubdtype(array.dtype, np.integer):
            array = np.asarray(array, np.float32)
        yield f"{name}:{tensor}", sha256(str(array.shape).encode() + np.ascontiguousarray(array).tobytes()).hexdigest()


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The numbers and texts in a JSON value, by their path."""
    if isinstance(value, dict):
        for key, entry in value.items():
            if key not in MEASURED:
                yield from _leaves(f"{name}.{key}", entry)
    elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        for number, entry in enumerate(value):
            yield from _leaves(f"{name}[{number}]", entry)
    else:
        yield name, value


def _compare(against: Path, values: dict[str, Any]) -> int:
    before = {row["name"]: row["value"] for row in map(json.loads, against.read_text("utf-8").splitlines())}
    missing = [name for name in before if name not in values]
    different = [name for name, value in before.items() if name in values and values[name] != value]
    n_same = len(before) - len(missing) - len(different)
    n_new = len(values.keys() - before.keys())
    print(f"{n_same:,} of {len(before):,} values are the same, {n_new:,} are new", file=sys.stderr)
    for label, names in (("differs", different), ("missing", missing)):
        for name in names[:MOST_SHOWN]:
            print(f"{label}: {name}", file=sys.stderr)
        if len(names) > MOST_SHOWN:
            print(f"{label}: and {len(names) - MOST_SHOWN:,} more", file=sys.stderr)
    return int(bool(missing or different))


if __name__ == "__main__":
    main()
