"""Word vectors out to other programs."""

from pathlib import Path

from greenadapt.pipeline.session import W2V, Session
from greenadapt.store import Json, open_result, verified
from greenadapt.vector_formats import read_vectors, write_vectors
from greenadapt.vectors import WordVectors


def export_vectors(
    session: Session, file: Path, corpus: str | None, model: str | None, vectors: Path | None = None
) -> Json:
    """Write a corpus's vectors, or those of ``vectors``, to ``file`` in the format that its suffix names."""
    if vectors is None:
        name = session.corpus_name(corpus)
        result = session.find(name, session.model_name(name, model), W2V)
        loaded = WordVectors.load(verified(result).folder)
    elif vectors.is_dir():
        loaded = WordVectors.load(verified(open_result(vectors, W2V)).folder)
    else:
        loaded = read_vectors(vectors, session.progress)
    write_vectors(loaded, file)
    return {"file": str(file), "words": len(loaded.words), "dim": loaded.dim}
