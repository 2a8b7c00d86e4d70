"""Coverage-guided changes of a reader's files, by atheris, which has to be installed.

    python torture/guided.py --work DIR --material DIR --seconds 60 READER [READER ...]

``--material`` is the folder ``inputs/material`` in the ``--work`` of ``python torture --only inputs``. Each reader has
a process of its own; its number of inputs, and what ended in anything but a message, are a line of ``guided.jsonl`` in
``--work``. The exit code is 1 if there was any.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

if not __package__:
    sys.path[:] = [*sys.path[1:], str(Path(__file__).parents[1])]


def main() -> int:
    """Run one process for each reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="+", metavar="READER")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--material", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        _guide(options.readers[0], options.work, options.seconds)
        return 0
    bad = 0
    for name in options.readers:
        work = options.work / name
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(options.material, work / "m")
        command = [sys.executable, __file__, name, "--work", work, "--material", options.material, "--inside"]
        command += ["--seconds", str(options.seconds)]
        process = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        result = json.loads((work / "found.json").read_text("utf-8")) if (work / "found.json").is_file() else {}
        if "n" not in result or process.returncode:  # what was found before a crash is there
            result = {**result, "bad": [*result.get("bad", []), ["crashed", process.stderr[-800:]]]}
        line = json.dumps({"reader": name, **result}, ensure_ascii=False)
        with open(options.work / "guided.jsonl", "a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)
        bad += len(result["bad"])
        shutil.rmtree(work)
    return int(bad > 0)


def _guide(name: str, work: Path, seconds: int) -> None:
    """Fuzz in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["greenadapt"], enable_loader_override=False):
        from torture.fuzzing import Tally, limit_memory, outcome_of
        from torture.mutation import mutated
        from torture.readers import READERS

        reader, folder = READERS[name], work / "m"
        originals = {file: (folder / file).read_bytes() for file in reader.names(folder)}
        for file in originals:  # imports what it needs, instrumented
            outcome_of(reader, folder, file)
    limit_memory()
    tally, end, n = Tally(), time.monotonic() + seconds, 0
    corpus = work / "corpus"
    corpus.mkdir()
    for number, content in enumerate(originals.values()):
        (corpus / str(number)).write_bytes(bytes([number]) + content)

    def once(data: bytes) -> None:
        nonlocal n
        n += 1
        names = [*originals]
        file = names[data[0] % len(names)] if data else names[0]
        (folder / file).write_bytes(data[1:])
        verdict, key, detail = outcome_of(reader, folder, file)
        tally.add(verdict, key, detail and f"{file}: {detail} {data[:300]!r}")
        (folder / file).write_bytes(originals[file])
        if time.monotonic() > end or detail:
            result = {"n": n, "counts": tally.counts, "bad": list(tally.bad.values()), "seconds": seconds}
            (work / "found.json").write_text(json.dumps(result), "utf-8")

    def change(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if draw.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return (data[:1] + mutated(data[1:], draw))[:most]

    arguments = [
        sys.argv[0],
        str(corpus),
        f"-max_total_time={seconds}",
        "-max_len=200000",
        "-rss_limit_mb=6000",
        "-timeout=60",
    ]
    atheris.Setup(arguments, once, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    raise SystemExit(main())
