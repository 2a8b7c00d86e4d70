"""Word vectors out to other programs."""

from pathlib import Path

from greenadapt.errors import UsageError
from greenadapt.stages.session import W2V, Session, require_made_for
from greenadapt.storage.files import Json
from greenadapt.storage.outputs import check_file
from greenadapt.storage.results import open_result, verified
from greenadapt.vectors.word_vectors import WordVectors, read_vectors, write_vectors

_SUFFIXES = (".bin", ".vec", ".txt")


def export_vectors(
    session: Session, file: Path, corpus: str | None, model: str | None, vectors: Path | None = None
) -> Json:
    """Write a corpus's vectors, or those of ``vectors``, to ``file`` in the format of its suffix.

    Raises ``UsageError`` for an unknown suffix, and for vectors of another corpus or model, and what
    ``check_file`` raises.
    """
    if not file.name.removesuffix(".gz").endswith(_SUFFIXES):
        raise UsageError(f"{file} has an unknown suffix", "use .bin, .vec or .txt, optionally with .gz")
    if vectors is not None and not vectors.is_dir() and not (corpus is None and model is None):
        raise UsageError("--corpus and --model choose from the workspace, and --vectors is a file", "leave them out")
    check_file(file, {} if vectors is None else {"vectors": vectors})
    if vectors is None:
        result = session.find_only(corpus, model, W2V)
        check_file(file, {"w2v": result.path})
        loaded = WordVectors.load(verified(result).folder)
    elif vectors.is_dir():
        result = open_result(vectors, W2V)
        require_made_for(session, result, "--vectors", corpus, model)
        loaded = WordVectors.load(verified(result).folder)
    else:
        loaded = read_vectors(vectors, session.progress)
    write_vectors(loaded, file)
    return {"file": str(file), "words": len(loaded.words), "dim": loaded.dim}
