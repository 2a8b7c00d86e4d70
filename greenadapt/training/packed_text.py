"""Text as inputs of a masked language model, in both tokenizations, in arrays on disk."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.corpus.splitting import draw
from greenadapt.corpus.text import Document
from greenadapt.store.arrays import BoolArray, Sequences, offsets_of, row_blocks
from greenadapt.store.files import Json, read_own, write_json
from greenadapt.tasks.base import Encoder
from greenadapt.tokenization.dual_tokenizer import DualEncoding, Pieces
from greenadapt.workers import group

_COUNTS = "counts.json"
VIEWS = ("base", "expanded")
_N_SPECIAL = 2  # [CLS] and [SEP]
_BLOCK_CHARACTERS, _BLOCK_DOCUMENTS = 1 << 18, 1 << 16
_DTYPES = {"ids": np.dtype("<i4"), "lengths": np.dtype("<i4")}


@dataclass(frozen=True, eq=False)
class PackedText:
    """The inputs of a text, their ids with special tokens: ``views`` are the base tokenization and, for a model with
    added words, the expanded one, memory-mapped.

    An input has the same words in both. ``counts`` has ``documents``, ``inputs``, ``pieces`` (base, without special
    tokens) and ``left_out``, the words that are too long for an input.
    """

    views: tuple[Sequences, ...]
    counts: Json

    @classmethod
    def open(cls, folder: Path) -> "PackedText | None":
        """Open what ``pack`` wrote into ``folder``; ``None`` if it did not finish."""
        if not (folder / _COUNTS).is_file():
            return None
        names = [name for name in VIEWS if (folder / f"{name}.ids").is_file()]
        return cls(
            tuple(_open_view(folder, name) for name in names),
            read_own(folder / _COUNTS, dict[str, int], "packed text", f"remove {folder}"),
        )

    def __len__(self) -> int:
        return len(self.views[0])

    def used_rows(self, n_rows: int) -> BoolArray:
        """Which of ``n_rows`` rows of the embedding occur: (n_rows,) bool."""
        occurs = np.zeros(n_rows, bool)
        for view in self.views:
            for block in row_blocks(view.values):
                occurs[block] = True
        return occurs


def pack(documents: Iterable[Document], encoder: Encoder, folders: Sequence[Path], share: float = 0.0) -> None:
    """Write the inputs of ``documents`` into the first of ``folders``, and those of a held-out ``share`` of the
    documents, chosen by their content, into the second.

    The lines of a document are joined by spaces, and split between two words where an input is full in either
    tokenization. The documents are streamed; the counts, written last, mark a folder as complete.
    """
    with ExitStack() as stack:
        writers = [_Writer(folder, encoder, stack) for folder in folders]
        blocks = group(documents, lambda document: sum(map(len, document.lines)), _BLOCK_CHARACTERS, _BLOCK_DOCUMENTS)
        for block in blocks:
            encodings = encoder.tokenizer.encode_batch([" ".join(document.lines) for document in block])
            for document, encoding in zip(block, encodings, strict=True):
                is_held_out = share > 0 and draw(document) < share
                writers[is_held_out].add(encoding)
        for writer in writers:
            writer.finish()


class _Writer:
    """Appends inputs to the files of one folder."""

    def __init__(self, folder: Path, encoder: Encoder, stack: ExitStack) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._encoder = folder, encoder
        self._room = encoder.max_length - _N_SPECIAL
        self._counts = {"documents": 0, "inputs": 0, "pieces": 0, "left_out": 0}
        views = VIEWS if encoder.has_words else VIEWS[:1]
        self._files = {
            (view, name): stack.enter_context(open(folder / f"{view}.{name}", "wb"))  # noqa: SIM115
            for view in views
            for name in _DTYPES
        }

    def add(self, encoding: DualEncoding) -> None:
        """Append a document."""
        views = [encoding.base, encoding.expanded][: len(self._files) // len(_DTYPES)]
        offsets_by_view = [offsets_of(np.bincount(view.words, minlength=encoding.n_words)) for view in views]
        self._counts["documents"] += 1
        begin = 0
        while begin < encoding.n_words:
            end = min(
                int(np.searchsorted(offsets, offsets[begin] + self._room, "right")) - 1 for offsets in offsets_by_view
            )
            if end == begin:
                self._counts["left_out"] += 1
                begin += 1
                continue
            for name, view, offsets in zip(VIEWS, views, offsets_by_view, strict=False):
                self._write_input(name, view, slice(int(offsets[begin]), int(offsets[end])))
            self._counts["inputs"] += 1
            self._counts["pieces"] += int(offsets_by_view[0][end] - offsets_by_view[0][begin])
            begin = end

    def _write_input(self, view: str, pieces: Pieces, part: slice) -> None:
        ids, *_ = self._encoder.single(pieces.ids[part])
        for name, values in (("ids", ids), ("lengths", np.array([len(ids)]))):
            self._files[view, name].write(values.astype(_DTYPES[name]).tobytes())

    def finish(self) -> None:
        """Write the counts."""
        for file in self._files.values():
            file.close()
        write_json(self._folder / _COUNTS, self._counts)


def _open_view(folder: Path, view: str) -> Sequences:
    files = {folder / f"{view}.{name}": dtype for name, dtype in _DTYPES.items()}
    arrays: list[Any] = [
        np.memmap(file, dtype, "r") if file.stat().st_size else np.zeros(0, dtype) for file, dtype in files.items()
    ]
    return Sequences(arrays[0], offsets_of(arrays[1]))
