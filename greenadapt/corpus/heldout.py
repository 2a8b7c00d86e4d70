"""Documents held out of training, chosen by their content, so that every run chooses the same."""

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from greenadapt.corpus.decoding import Document
from greenadapt.corpus.stream import document_hash

HELDOUT = "heldout.txt"


def without_heldout(
    documents: Iterable[Document], share: float, folder: Path, hashes: "array[int] | None" = None
) -> Iterator[Document]:
    """The documents to train on; the others, a ``share`` of all, are added to ``heldout.txt`` in ``folder``, one
    paragraph per line, and to ``hashes``."""
    if not share:
        yield from documents
        return
    with open(folder / HELDOUT, "a", encoding="utf-8", newline="\n") as file:
        for document in documents:
            if draw(document) >= share:
                yield document
            else:
                if hashes is not None:
                    hashes.append(document_hash(document))
                file.writelines(line.replace("\n", " ") + "\n" for line in document.lines)


def draw(document: Document) -> float:
    """A number in [0, 1) that depends only on the text."""
    digest = blake2b("\n".join(document.lines).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
