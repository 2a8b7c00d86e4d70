"""The words that got a row of their own, in a table on disk that finds their ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greenadapt.arrays import ArrayFile, write_arrays
from greenadapt.base_vocabulary import BaseVocabulary
from greenadapt.config import OovRule
from greenadapt.errors import InputError
from greenadapt.new_entries import NewEntries
from greenadapt.sequence_table import BoolArray, IntArray, Sequences, SequenceTable, offsets_of

WORDS_FILE = "words.safetensors"


@dataclass(frozen=True)
class AddedWords:
    """The added words of an expanded model: a memory-mapped table from what the base tokenizer gives to new ids.

    ``pieces`` finds a new entry by its base pieces, of which there are at least two; ``surfaces`` finds it by its UTF-8
    bytes where the base tokenizer gives only ``[UNK]`` (``unknown`` (n_unknown,) are those entries).
    Entry ``i`` has id ``first_id + i``.
    """

    first_id: int
    oov: OovRule
    pieces: SequenceTable
    surfaces: SequenceTable
    unknown: IntArray
    _text: Sequences

    def __len__(self) -> int:
        return len(self.pieces.stored)

    def surface(self, entry: int) -> str:
        """The word of a new entry."""
        begin, end = self._text.offsets[entry : entry + 2]
        return bytes(self._text.values[begin:end].astype(np.uint8)).decode()

    def find(self, pieces: Sequences) -> IntArray:
        """The new id of each word (n_words,) from its base pieces; -1 where it has none."""
        return self._ids(self.pieces.find(pieces))

    def find_surfaces(self, words: Sequence[str]) -> IntArray:
        """The new id of each normalised word (n_words,) that the base tokenizer has no pieces for; -1: none."""
        found = self.surfaces.find(_bytes_of(words))
        if not len(self.unknown):
            return found
        return self._ids(np.where(found < 0, -1, self.unknown[found]))

    def _ids(self, entries: IntArray) -> IntArray:
        return np.where(entries < 0, -1, entries + self.first_id)

    @classmethod
    def build(cls, entries: NewEntries, vocabulary: BaseVocabulary, first_id: int, oov: OovRule) -> "AddedWords":
        """The table for ``entries`` whose ids start at ``first_id``."""
        surfaces = entries.surfaces()
        pieces = _pieces(surfaces, entries.marked, vocabulary)
        unknown = np.flatnonzero([own == [vocabulary.unk_id] for own in pieces]).astype(np.int32)
        stored = Sequences.of(pieces)
        text = _bytes_of(surfaces)
        return cls(first_id, oov, SequenceTable.build(stored), SequenceTable.build(text.take(unknown)), unknown, text)

    @classmethod
    def none(cls, first_id: int) -> "AddedWords":
        """No words at all: what a model has that was not expanded."""
        nothing = SequenceTable.build(Sequences.of([]))
        return cls(first_id, "base", nothing, nothing, np.zeros(0, np.int32), Sequences.of([]))

    def write(self, path: Path) -> None:
        """Write the table as one safetensors file."""
        write_arrays(
            path,
            {
                "piece_offsets": self.pieces.stored.offsets,
                "piece_hashes": self.pieces.hashes,
                "text_offsets": self._text.offsets,
                "surface_hashes": self.surfaces.hashes,
                "surface_offsets": self.surfaces.stored.offsets,
                "pieces": self.pieces.stored.values,
                "piece_order": self.pieces.order,
                "surface_order": self.surfaces.order,
                "unknown": self.unknown,
                "surfaces": self.surfaces.stored.values,
                "text": self._text.values,
            },
            {"first_id": str(self.first_id), "oov": self.oov},
        )

    @classmethod
    def open(cls, path: Path) -> "AddedWords":
        """Map a written table; nothing is read but its header. Raises ``InputError`` for another kind of file."""
        file = ArrayFile(path)
        try:
            first_id, oov = int(file.metadata["first_id"]), file.metadata["oov"]
            pieces = Sequences(file["pieces"], file["piece_offsets"])
            surfaces = Sequences(file["surfaces"], file["surface_offsets"])
            return cls(
                first_id,
                "greedy" if oov == "greedy" else "base",
                SequenceTable(pieces, file["piece_hashes"], file["piece_order"]),
                SequenceTable(surfaces, file["surface_hashes"], file["surface_order"]),
                file["unknown"],
                Sequences(file["text"], file["text_offsets"]),
            )
        except (KeyError, ValueError) as error:
            raise InputError(f"{path} is not a table of added words ({error!r})", "run expand again") from None


def _pieces(surfaces: list[str], marked: BoolArray, vocabulary: BaseVocabulary) -> list[list[int]]:
    if marked.all():
        return vocabulary.pieces(surfaces)
    with_mark, without = vocabulary.pieces(surfaces), vocabulary.pieces(surfaces, marked=False)
    return [a if mark else b for a, b, mark in zip(with_mark, without, marked.tolist(), strict=True)]


def _bytes_of(words: Sequence[str]) -> Sequences:
    encoded = [word.encode() for word in words]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return Sequences(np.frombuffer(b"".join(encoded), np.uint8), offsets_of(lengths))
