"""The runs of ``engines.py``: each in a process of its own, and kept in a folder.

What is asked of a run is a dictionary: ``side``, ``text``, ``dim``, ``workers``, ``epochs``, ``alpha``, ``seed``,
``min_count``, for word2vec.c the hash of the ``program``, and ``measures``, some of ``quality`` (figures of the text),
``neighbours`` (those shared with the references), ``reference`` (its own are kept to compare with). Its key is a hash
of that and of everything else that decides it (``whole``).
"""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import engine_texts
import numpy as np
import planted
import vector_quality
from engine_sides import OWN, Job, trained
from records import Records

import greenadapt
from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.storage.files import Json, hash_file, hash_json
from greenadapt.storage.outputs import open_file
from greenadapt.vectors.word_vectors import WordVectors

_PACKAGES = {"fast": ("numba", "numpy"), "gensim": ("gensim", "numpy"), "gensim-lists": ("gensim", "numpy")}
_MEASURING = ("vector_quality.py", "planted.py")
_REFERENCE = {"epochs": 15, "alpha": W2VConfig.alpha, "seed": 99, "workers": 2, "measures": ["reference"]}


class Runs:
    """The runs in a folder: ``records.jsonl`` has a line with the request and the result of each run."""

    def __init__(self, work: Path, program: Path | None) -> None:
        self._work, self._program = work, program
        self._records = Records(work / "records.jsonl")

    def result(self, request: Json) -> Json:
        """What came of a run, which is made if it was not yet.

        That is ``words`` a second, ``memory`` in MB, ``quality`` (name → figure) and ``notes``.
        """
        request = whole(request)
        key = hash_json(request)
        if key not in self._records.by_key:
            if "neighbours" in request["measures"]:
                for side in OWN:
                    self.result(_reference_run(request, side))
            result = self._start(request)
            self._records.add({"key": key, "asked": request, "result": result})
            settings = ", ".join(f"{name} {request[name]}" for name in ("dim", "workers", "epochs", "alpha", "seed"))
            print(f"{request['side']}, {settings}: {result['words']:,.0f} words/s", file=sys.stderr)
        return self._records.by_key[key]["result"]

    def _start(self, request: Json) -> Json:
        folder = engine_texts.made(request["text"], self._work, is_written=request["side"] == "word2vec-c")
        program = None if self._program is None else str(self._program)
        call = json.dumps({"asked": request, "folder": str(folder), "program": program})
        process = subprocess.run([sys.executable, __file__, call], stdout=subprocess.PIPE, text=True)
        if process.returncode:
            sys.exit(f"this run failed: {json.dumps(request)}")
        return json.loads(process.stdout.splitlines()[-1])


def _reference_run(request: Json, side: str) -> Json:
    """The request of the run whose neighbours those of ``request`` are compared with."""
    return {**{name: request[name] for name in ("text", "dim", "min_count")}, **_REFERENCE, "side": side}


def whole(request: Json) -> Json:
    """``request`` with the rest of what decides a run: code, packages, and the keys of the references."""
    package, side, files = Path(greenadapt.__file__).parent, request["side"], []
    if side in OWN:
        files += [*sorted((package / "vectors" / "engines").glob("*.py")), package / "vectors" / "cbow.py"]
    if request["measures"]:
        files += [Path(__file__).parent / name for name in _MEASURING]
    full = {
        **request,
        "code": {file.name: hash_file(file) for file in files},
        "packages": {name: version(name) for name in _PACKAGES.get(side, ())},
    }
    if "neighbours" in request["measures"]:
        full["references"] = {side: hash_json(whole(_reference_run(request, side))) for side in OWN}
    return full


def run(request: Json, folder: Path, program: Path | None) -> Json:
    """Do the run of a ``whole`` request in this process, on the text in ``folder``."""
    side, measures = request["side"], request["measures"]
    options = {name: request[name] for name in ("dim", "workers", "seed", "epochs", "alpha", "min_count")}
    config = W2VConfig(engine=side if side in OWN else "gensim", **options)
    with TemporaryDirectory(dir=folder) as work:
        job = Job(side, PreparedCorpus.open(folder), config, Path(work), program, engine_texts.text_file(folder))
        training = trained(job)
        result: Json = {"words": training.words, "memory": training.memory, "quality": {}, "notes": []}
        if measures:
            vectors = training.vectors()
        if "reference" in measures:
            with open_file(_reference(folder, hash_json(request)), "wb") as file:
                np.save(file, vector_quality.neighbours(vectors))
        if "quality" in measures:
            result["quality"], result["notes"] = _quality(vectors, request["text"])
        if "neighbours" in measures:
            result["quality"] |= _shared(vectors, folder, request["references"])
    return result


def _quality(vectors: WordVectors, text: Json) -> tuple[dict[str, float], list[str]]:
    if "planted" in text:
        return planted.scores(vectors), []
    judged, notes = vector_quality.similarity(vectors)
    return vector_quality.alignment(vectors, text["model"]) | judged, notes


def _shared(vectors: WordVectors, folder: Path, references: dict[str, str]) -> dict[str, float]:
    """The share of neighbours that the vectors have in common with each reference (side → key of its run)."""
    neighbours = vector_quality.neighbours(vectors)
    references_read = {side: np.load(_reference(folder, key)) for side, key in references.items()}
    return {f"neighbours of {side}": vector_quality.shared(neighbours, rows) for side, rows in references_read.items()}


def _reference(folder: Path, key: str) -> Path:
    return folder / f"neighbours-{key[:12]}.npy"


if __name__ == "__main__":
    call = json.loads(sys.argv[1])
    print(json.dumps(run(call["asked"], Path(call["folder"]), call["program"] and Path(call["program"]))))
