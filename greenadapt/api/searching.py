"""Search in an index of documents."""

from greenadapt.inference.search.index import Index
from greenadapt.inference.search.store import Passage

__all__ = ["Index", "Passage"]
