"""Hostile input: changed files for every reader, requests to ``serve``, and named cases."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from torture.campaign import Part
from torture.child import Child
from torture.hostile import CASES, Hostile
from torture.material import write_models, write_texts
from torture.outcomes import Outcome, Verdict
from torture.readers import READERS

_BATCH = 400
"""Inputs of a reader in a process."""
_SECONDS = 240
_STARTS = ("uname", "lscpu", "ldconfig")
"""Programs by which libraries learn about the machine."""


class Inputs(Part):
    """``fuzz/READER`` and ``named/CASE``. Each attempt is a process, which is watched."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._folder = folder
        self._child = Child()
        self._material = folder / "material"

    def cases(self) -> list[str]:
        return [*(f"fuzz/{name}" for name in (*READERS, "http")), *(f"named/{name}" for name in CASES)]

    def once(self, case: str) -> bool:
        return case.startswith("named/")

    def attempt(self, case: str, seed: int) -> Iterator[Outcome]:
        self._prepare()
        kind, _, name = case.partition("/")
        work = self._folder / f"{kind}-{name}"
        shutil.rmtree(work, ignore_errors=True)
        yield from self._fuzzed(work, name, seed) if kind == "fuzz" else self._named(work, CASES[name])
        shutil.rmtree(work, ignore_errors=True)

    def close(self) -> None:
        self._child.close()

    def _prepare(self) -> None:
        if (self._material / "done").is_file():
            return
        shutil.rmtree(self._material, ignore_errors=True)
        write_texts(self._material)
        write_models(self._material / "models")
        (self._material / "done").touch()

    def _fuzzed(self, work: Path, name: str, seed: int) -> Iterator[Outcome]:
        shutil.copytree(self._material, work / "m")
        files = {key: str(work / key) for key in ("out", "error", "seen", "at")}
        answer = self._child.ask(
            reader=name, seed=seed, n=_BATCH, folder=str(work / "m"), writable=[".", ".."],
            readable=[".", str(self._material)], seconds=_SECONDS, starts=_STARTS, environment=_environment(work),
            **files,
        )  # fmt: skip
        if answer["code"] != 0:
            verdict: Verdict = "hung" if answer["code"] is None else "crashed"
            last = (work / "at").read_text() if (work / "at").is_file() else "none"
            message = (work / "error").read_text("utf-8", "replace")[-600:]
            yield Outcome(verdict, f"input {last}, exit code {answer['code']}: {message}")
            return
        result = json.loads((work / "seen").read_text("utf-8"))
        bad = sum(result["counts"].pop(verdict, 0) for verdict in ("unclear", "crashed", "hung", "traceback"))
        for verdict, n in result["counts"].items():
            yield Outcome(verdict, n=n)
        for number, (verdict, detail) in enumerate(result["bad"]):
            yield Outcome(verdict, detail, n=bad - len(result["bad"]) + 1 if number == 0 else 1)
        for message in result["seen"]:
            yield Outcome("leaked", message)

    def _named(self, work: Path, case: Hostile) -> Iterator[Outcome]:
        for folder in ("in", "ws", "tmp", "home"):
            (work / folder).mkdir(parents=True)
        shutil.copytree(self._material, work / "in", dirs_exist_ok=True)
        (work / "secret.txt").write_text("swordfish\n" * 3)
        for arguments in case.prepare(work / "in"):
            files = {key: str(work / key) for key in ("out", "error", "seen")}
            for file in files.values():
                Path(file).unlink(missing_ok=True)
            held = case.held(work)
            answer = self._child.ask(
                arguments=arguments, folder=str(work / "in"), readable=["."], seconds=case.seconds,
                writable=["../ws", "../tmp", "../home", "runs"], environment=_environment(work), **files,
                starts=_STARTS,
            )  # fmt: skip
            yield case.judged(arguments, answer["code"], work, held)


def _environment(work: Path) -> dict[str, str]:
    return {
        "GREENADAPT_HOME": str(work / "ws"), "HOME": str(work / "home"), "TMPDIR": str(work / "tmp"),
        "XDG_CACHE_HOME": str(work / "home"), "HF_HOME": str(work / "home"), "HF_HUB_OFFLINE": "1",
        "NUMBA_CACHE_DIR": str(work / "home"), "COLUMNS": "200", "HF_TOKEN": "hf_swordfish",
    }  # fmt: skip
