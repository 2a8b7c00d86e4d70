"""A general model, attached to a domain model; its inputs, and its states on disk, so that it reads a text only once.

The inputs are those of the domain model in base pieces (arXiv 2212.03613, section 3.1).
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from greenadapt.checkpoints.layout import MEMORY_FOLDER
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig
from greenadapt.errors import InputError, ResourceError, UsageError, byte_size
from greenadapt.models.machine import Machine, too_large
from greenadapt.models.memory.fusion import GeneralMemory, attach_logits_fusion, attach_memory
from greenadapt.models.rows import release_pages
from greenadapt.models.weights import open_encoder
from greenadapt.progress import Progress
from greenadapt.storage.arrays import ArrayFile, IntArray, Sequences, SequenceTable, offsets_of
from greenadapt.storage.files import hash_file
from greenadapt.storage.locks import lock
from greenadapt.tasks.base import Encoder, Features, Input
from greenadapt.tokenization.added_words import AddedWords
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER
from greenadapt.tokenization.export import copy_tokenizers


@dataclass(frozen=True, eq=False)
class MemoryReader:
    """Replaces added words by their base pieces, the ids of the general model's own tokenizer.

    Texts longer than ``max_length`` pieces are truncated to their first pieces and the last special token.
    """

    added: AddedWords
    pad_id: int
    max_length: int
    has_segments: bool

    @classmethod
    def of(cls, encoder: Encoder, general: Checkpoint) -> "MemoryReader":
        """The reader for a domain model, whose inputs ``encoder`` makes, and the ``general`` model.

        Raises ``InputError`` if their base tokenizers give different ids, ``UsageError`` if the words were added by
        longest match, so that their pieces are not those of the base tokenizer.
        """
        reader = Encoder.of(general)
        domain = encoder.tokenizer.base.get_vocab()
        n_shared = len(domain.items() & reader.tokenizer.base.get_vocab().items())
        n_general = reader.tokenizer.base.get_vocab_size()
        if not n_shared == len(domain) == n_general:
            raise InputError(
                f"{general.folder} has a different vocabulary: {n_shared:,} of its {n_general:,} entries are among the "
                f"{len(domain):,} of the domain model's own tokenizer",
                "give a general model with the tokenizer of the domain model, such as the one it was adapted from",
            )
        added = encoder.tokenizer.added
        if added.oov == "greedy":
            raise UsageError("the words were added with --oov greedy", "memory needs a model expanded with --oov base")
        has_segments = int(general.config.get("type_vocab_size", 0)) > 1
        return cls(added, encoder.special.pad, reader.max_length, has_segments)

    def in_base_pieces(self, inputs: Features) -> Features:
        """The inputs of the general model for ``inputs`` of the domain model."""
        pieces = self._base_pieces(inputs)
        return pieces if pieces.lengths.max(initial=0) <= self.max_length else self._truncate(pieces)

    def _base_pieces(self, inputs: Features) -> Features:
        pieces, ids = self.added.pieces.stored, inputs.ids
        is_new = ids >= self.added.first_id
        sizes = np.ones(len(ids), np.int64)
        entries = ids[is_new] - self.added.first_id
        sizes[is_new] = np.diff(pieces.offsets)[entries]
        base = np.repeat(ids, sizes)
        base[np.repeat(is_new, sizes)] = pieces.take(entries).values
        ends = offsets_of(sizes)[np.cumsum(inputs.lengths)]
        return Features(base, np.repeat(inputs.types, sizes), np.diff(ends, prepend=0))

    def of_input(self, views: Input) -> Features:
        """The inputs of the general model for an example, in both views."""
        return self.in_base_pieces(_inputs_of(views))

    def n_cut(self, examples: Iterable[Input]) -> int:
        """The number of examples with an input that is truncated for the general model."""
        lengths = (self._base_pieces(_inputs_of(views)).lengths for views in examples)
        return sum(int(of_example.max(initial=0)) > self.max_length for of_example in lengths)

    def read(self, inputs: Features) -> dict[str, torch.Tensor]:
        """``memory_ids`` (b, m) int64; ``memory_mask`` if there is padding, ``memory_types`` if the general model
        has segment embeddings.
        """
        pieces = self.in_base_pieces(inputs)
        arrays = {"memory_ids": pieces.padded(pieces.ids, self.pad_id)}
        if not pieces.is_piece.all():
            arrays["memory_mask"] = pieces.mask
        if self.has_segments:
            arrays["memory_types"] = pieces.padded(pieces.types, 0)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _truncate(self, inputs: Features) -> Features:
        lengths = inputs.lengths
        positions = np.arange(len(inputs.ids)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        is_last = positions == np.repeat(lengths - 1, lengths)
        mask = (positions < self.max_length - 1) | is_last
        return Features(inputs.ids[mask], inputs.types[mask], np.minimum(lengths, self.max_length))


def _inputs_of(views: Input) -> Features:
    """All inputs of an example, without duplicates where both views share them."""
    return Features.of([*views.base, *(views.expanded if views.expanded is not views.base else [])])


_FORMAT = "1"
_VALUE = np.dtype("<i2")  # the bytes of a bfloat16, which numpy does not know
_TYPE_BITS = 8
_OTHERWISE = "train without --cache-memory"


@dataclass(frozen=True, eq=False)
class DistinctTexts:
    """Distinct inputs of a general model, in an order that depends only on themselves: the longest first."""

    table: SequenceTable

    @classmethod
    def of(cls, inputs: Iterable[Features]) -> "DistinctTexts":
        """The distinct texts of ``inputs``, whose ids are those of the base tokenizer."""
        texts: set[bytes] = set()
        for batch in inputs:
            sequences = _sequences(batch)
            bounds = sequences.offsets.tolist()
            texts.update(sequences.values[a:b].tobytes() for a, b in pairwise(bounds))
        ordered = sorted(texts, key=lambda text: (-len(text), text))
        values = np.frombuffer(b"".join(ordered), "<i8")
        lengths = np.fromiter(map(len, ordered), np.int64, len(ordered)) // values.itemsize
        return cls(SequenceTable.build(Sequences(values, offsets_of(lengths))))

    def __len__(self) -> int:
        return len(self.table.stored)

    @property
    def offsets(self) -> IntArray:
        """The number of pieces before each text, and of all texts: (n + 1,) int64."""
        return self.table.stored.offsets

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all texts, hexadecimal."""
        digest = hashlib.sha256(self.offsets.astype("<i8").tobytes())
        digest.update(self.table.stored.values.astype("<i8", copy=False).data)
        return digest.hexdigest()

    def find(self, inputs: Features) -> IntArray:
        """The index of the text of each input, (b,) int64, -1 if absent."""
        return self.table.find(_sequences(inputs))

    def inputs(self, indices: slice) -> Features:
        """The texts of a range of indices."""
        bounds = self.offsets[indices.start : indices.stop + 1]
        values = self.table.stored.values[bounds[0] : bounds[-1]]
        return Features(values >> _TYPE_BITS, values & ((1 << _TYPE_BITS) - 1), np.diff(bounds))


@dataclass(frozen=True, eq=False)
class GeneralStates:
    """Computes the states of a general model that are cached."""

    memory: GeneralMemory
    sha256: str
    """Of the configuration, tokenizer and weights of the general model."""
    max_tokens: int
    """Pieces, padding included, per batch of the general model; at least one text."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of states per piece, and their width."""
        return len(self.memory.plan.states), self.memory.general.config.hidden_size

    @property
    def facts(self) -> dict[str, str]:
        """Everything that determines the states of a text, including the precision."""
        numbers = ",".join(map(str, self.memory.plan.states))
        precision = str(self.memory.general.dtype).removeprefix("torch.")
        return {"general": self.sha256, "states": numbers, "dim": str(self.shape[1]), "precision": precision}

    def compute(self, reader: MemoryReader, inputs: Features) -> torch.Tensor:
        """The states of b inputs, (n_states, b, m, dim) bfloat16 on the CPU.

        Raises ``ResourceError`` if they do not fit into the memory of a GPU.
        """
        arguments = reader.read(inputs)
        device = self.memory.general.device
        try:
            states = self.memory.read(**{name: tensor.to(device) for name, tensor in arguments.items()})
            return states.to(torch.bfloat16).cpu()
        except torch.cuda.OutOfMemoryError:
            raise too_large(len(inputs.lengths), int(inputs.lengths.max()), self.max_tokens) from None


class CachedMemory:
    """Gives the model cached states of the general model instead of ids; a ``MemoryInput``."""

    def __init__(self, reader: MemoryReader, texts: DistinctTexts, shape: tuple[int, int], path: Path) -> None:
        self._reader, self._texts = reader, texts
        self._n_states, self._dim = shape
        # (n_states, m, dim) per text, end to end: in a padded batch, the states of a text are contiguous blocks.
        self._values = ArrayFile(path)["states"].view(_VALUE)

    def read(self, inputs: Features) -> dict[str, torch.Tensor]:
        """``memory_states`` (n_states, b, m, dim) bfloat16, zero where there is padding, and then also ``memory_mask``
        (b, m) int64.

        Raises ``ValueError`` for texts that are not in the cache.
        """
        inputs = self._reader.in_base_pieces(inputs)
        numbers = self._texts.find(inputs)
        if numbers.min() < 0:
            raise ValueError(f"{(numbers < 0).sum()} of {len(numbers)} texts are not in the cache of states")
        states = torch.empty((self._n_states, len(numbers), int(inputs.lengths.max()), self._dim), dtype=torch.bfloat16)
        padded = states.view(torch.int16).numpy()
        size = self._n_states * self._dim
        for i, (first, length) in enumerate(zip(self._texts.offsets[numbers], inputs.lengths, strict=True)):
            values = self._values[first * size : (first + length) * size]
            padded[:, i, :length] = values.reshape(self._n_states, length, self._dim)
            padded[:, i, length:] = 0
        release_pages(self._values)
        arrays = {"memory_states": states}
        if not inputs.is_piece.all():
            arrays["memory_mask"] = torch.from_numpy(inputs.mask)
        return arrays


def open_cache(
    folder: Path, limit: int, general: GeneralStates, reader: MemoryReader, texts: DistinctTexts, progress: Progress
) -> CachedMemory:
    """The states of ``texts``, from the file of an earlier run if it exists, else computed now.

    The file is identified by the general model, the states and the texts; a killed run is resumed. Raises
    ``UsageError`` if the file would have more than ``limit`` bytes, ``ResourceError`` if the disk or the memory of a
    GPU has no room, ``ConflictError`` while another run computes the same, and ``InputError`` for a file that
    greenadapt did not write.
    """
    file = _StatesFile.of(folder, general, texts)
    label = f"the general model's states of {len(texts):,} texts"
    if file.size > limit:
        raise UsageError(
            f"{label} need {byte_size(file.size)}, --max-cache allows {byte_size(limit)}",
            f"raise --max-cache, or {_OTHERWISE}",
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not file.is_whole():
        progress.note(f"{label} need {byte_size(file.size)} in {folder}")
        with lock(file.path.with_suffix(".lock")):
            if not file.is_whole():  # another run may have written it since
                _fill(file, general, reader, texts, progress)
    else:
        progress.note(f"{label} are read from {file.path}, {byte_size(file.size)}")
    return CachedMemory(reader, texts, general.shape, file.path)


@dataclass(frozen=True, eq=False)
class _StatesFile:
    """A safetensors file of the one array ``states``, which grows as ``.part`` until it is whole."""

    path: Path
    header: bytes
    """Describes the content; a file of the same name with another header is not greenadapt's."""
    bounds: IntArray
    """The first byte of each text, and the end of the last text: (n + 1,) int64."""

    @classmethod
    def of(cls, folder: Path, general: GeneralStates, texts: DistinctTexts) -> "_StatesFile":
        facts = {"format": _FORMAT, **general.facts, "texts": texts.digest}
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        n_states, dim = general.shape
        begins = texts.offsets * n_states * dim * _VALUE.itemsize
        needed = int(begins[-1])
        entry = {"dtype": "BF16", "shape": [needed // _VALUE.itemsize], "data_offsets": [0, needed]}
        text = json.dumps({"__metadata__": facts, "states": entry}).encode()
        text += b" " * (-len(text) % 8)
        header = len(text).to_bytes(8, "little") + text
        return cls(folder / f"{key[:32]}.safetensors", header, len(header) + begins)

    @property
    def part(self) -> Path:
        """The path until the file is complete."""
        return self.path.with_suffix(".part")

    @property
    def checksum(self) -> Path:
        """The file with the SHA-256 of this one."""
        return self.path.with_suffix(".sha256")

    @property
    def size(self) -> int:
        """Bytes of the complete file."""
        return int(self.bounds[-1])

    def is_whole(self) -> bool:
        """Whether it is complete and undamaged; raises ``InputError`` if ``path`` is another file."""
        if not self.path.exists():
            return False
        size = self.path.stat().st_size
        if size > self.size or not _begins(self.path, self.header):
            raise InputError(f"{self.path} is not a cache of these states that greenadapt wrote", "move it away")
        is_complete = size == self.size and self.checksum.is_file()
        return is_complete and self.checksum.read_text("ascii") == hash_file(self.path)

    def resume(self, file: IO[bytes], batches: Sequence[slice]) -> int:
        """Truncate ``file`` to complete batches, and return their number.

        The batch of a text may change its states in the last bit: only with the same batches a resumed run writes the
        same file as an uninterrupted one.
        """
        size = file.seek(0, os.SEEK_END)
        if size < len(self.header) or not _begins(self.part, self.header):
            file.truncate(0)
            file.write(self.header)
            return 0
        ends = self.bounds[[0, *(batch.stop for batch in batches)]]
        n_batches = int(np.searchsorted(ends, size, "right")) - 1
        file.truncate(int(ends[n_batches]))
        return n_batches


def _fill(
    file: _StatesFile, general: GeneralStates, reader: MemoryReader, texts: DistinctTexts, progress: Progress
) -> None:
    if file.path.exists():
        progress.warn(f"{file.path} is damaged: computing its states again")
        file.path.unlink()
    batches = list(_batches(np.diff(texts.offsets), general.max_tokens))
    try:
        with open(file.part, "ab") as stream, progress.bar("memory", int(texts.offsets[-1]), "pieces") as bar:
            n_batches = file.resume(stream, batches)
            n_texts = batches[n_batches - 1].stop if n_batches else 0
            _check_room(file, int(file.bounds[n_texts]))
            bar.advance(int(texts.offsets[n_texts]))
            for batch in batches[n_batches:]:
                inputs = texts.inputs(batch)
                states = general.compute(reader, inputs).view(torch.int16).numpy()
                for i, length in enumerate(inputs.lengths):
                    stream.write(np.ascontiguousarray(states[:, i, :length], _VALUE).data)
                bar.advance(len(inputs.ids))
            stream.flush()
            os.fsync(stream.fileno())
        file.checksum.write_text(hash_file(file.part), "ascii")
    except OSError as error:
        size = file.part.stat().st_size if file.part.exists() else 0
        raise ResourceError(
            f"{file.part} cannot be written at byte {size:,} of {file.size:,} ({error.strerror or error})",
            f"free some space and run it again to resume, or {_OTHERWISE}",
        ) from None
    file.part.replace(file.path)


def _check_room(file: _StatesFile, n_bytes: int) -> None:
    missing, free = file.size - n_bytes, shutil.disk_usage(file.path.parent).free
    if missing > free:
        raise ResourceError(
            f"the general model's states need {byte_size(missing)} in {file.path.parent}, "
            f"which has {byte_size(free)} free",
            f"free some space, or {_OTHERWISE}",
        )


def _begins(path: Path, header: bytes) -> bool:
    """Whether a file begins with ``header``, or ``header`` with the file."""
    with open(path, "rb") as file:
        return header.startswith(file.read(len(header)))


def _batches(lengths: IntArray, max_tokens: int) -> Iterator[slice]:
    """The batches of texts with these ``lengths``, in descending order."""
    begin = 0
    while begin < len(lengths):
        end = min(len(lengths), begin + max(1, max_tokens // int(lengths[begin])))
        yield slice(begin, end)
        begin = end


def _sequences(inputs: Features) -> Sequences:
    """The id and the type of each piece in a little-endian int64."""
    values = inputs.ids.astype("<i8") << _TYPE_BITS | inputs.types.astype("<i8")
    return Sequences(values, offsets_of(inputs.lengths))


@dataclass(frozen=True, eq=False)
class GeneralModel:
    """A general model on disk, and how its states enter a domain model."""

    checkpoint: Checkpoint
    config: MemoryConfig
    sha256: str
    """Of its configuration, tokenizer and weights."""

    def reader(self, encoder: Encoder) -> MemoryReader:
        """Converts the inputs of a domain model, made by ``encoder``, to those of this model."""
        return MemoryReader.of(encoder, self.checkpoint)

    def attach(self, model: Any, encoder: Encoder, machine: Machine, seed: int) -> None:
        """Attach this model as memory to ``model``, whose inputs ``encoder`` makes; move both to the machine's device.

        ``seed`` draws the gates. A frozen general model is in half precision if the machine uses it. Raises
        ``UsageError`` if the two do not fit.
        """
        own_encoder = Encoder.of(self.checkpoint)
        if self.config.strategy == "logits" and not type(model).__name__.endswith("SequenceClassification"):
            _require_same_pieces(encoder, own_encoder.max_length)
        n_rows = own_encoder.tokenizer.added.first_id  # without added words, which it never reads
        general: Any = open_encoder(self.checkpoint, n_rows)
        if self.config.frozen and machine.is_bfloat16:
            general = general.to(torch.bfloat16)
        attach = attach_logits_fusion if self.config.strategy == "logits" else attach_memory
        attach(model, general, self.config, seed)
        model.to(machine.device)

    def copy_tokenizer(self, folder: Path) -> None:
        """Copy the tokenizer to the folder of the trained general model in ``folder``."""
        source = self.checkpoint.folder
        base = source / BASE_FOLDER
        copy_tokenizers(base if base.is_dir() else source, folder / MEMORY_FOLDER)


def _require_same_pieces(encoder: Encoder, limit: int) -> None:
    """Raise ``UsageError`` if a general model of at most ``limit`` pieces reads others than the domain model."""
    if encoder.has_words:
        problem, hint = "added words are other pieces than the general model's", "use the model without added words"
    elif limit < encoder.max_length:
        problem = f"the general model reads {limit} pieces at once, the domain model {encoder.max_length}"
        hint = f"give --max-length {limit}"
    else:
        return
    raise UsageError(f"--strategy logits adds the logits of each piece, and {problem}", f"{hint}, or another strategy")
