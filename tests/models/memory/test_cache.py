import itertools
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig
from greenadapt.errors import ConflictError, InputError, ResourceError, UsageError
from greenadapt.models.memory.fusion import GeneralMemory, attach_logits_fusion, attach_memory
from greenadapt.models.memory.general_model import (
    CachedMemory,
    DistinctTexts,
    GeneralStates,
    MemoryReader,
    open_cache,
)
from greenadapt.progress import Silent
from greenadapt.storage.arrays import ArrayFile
from greenadapt.tasks.base import Encoder, Features
from greenadapt.tasks.classification import ClassificationTask, Text
from tests.conftest import Notes
from tests.support.mapped_pages import file_backed_bytes
from tests.support.processes import held
from tests.support.small_inputs import ROUNDING
from tests.support.small_tasks import NEW, VOCABULARY, TinyModel, adapted

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Setting:
    """An expanded tiny model with its base as memory, and where the states of that are kept."""

    reader: MemoryReader
    model: Any
    n_rows: int
    folder: Path
    limit: int = 10**9
    sha256: str = "a" * 64
    max_tokens: int = 100
    calls: int = 0
    """How often the general model was called."""

    @classmethod
    def of(cls, tiny_model: TinyModel, config: MemoryConfig | None = None, **model_config: Any) -> "Setting":
        domain = adapted(tiny_model, **model_config)
        base = domain.parent / "base"
        general = transformers.AutoModel.from_pretrained(base, add_pooling_layer=False)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(domain, num_labels=3).eval()
        config = config or MemoryConfig()
        (attach_logits_fusion if config.strategy == "logits" else attach_memory)(model, general, config, seed=1)
        reader = MemoryReader.of(Encoder.of(Checkpoint.open(domain)), Checkpoint.open(base))
        setting = cls(reader, model, Checkpoint.open(domain).n_rows, domain.parent / "cache")
        general.register_forward_hook(setting.count)
        return setting

    def count(self, *_: Any) -> None:
        self.calls += 1

    @property
    def memory(self) -> GeneralMemory:
        return self.model.memory

    def inputs(self, n: int, seed: int = 0, longest: int = 40) -> Features:
        """Random inputs of the domain model, added words among them."""
        draw = np.random.default_rng(seed)
        lengths = draw.integers(3, longest, n)
        ids = draw.integers(5, self.n_rows, lengths.sum())
        ids[draw.random(len(ids)) < 0.2] = self.n_rows - 1
        return Features(ids, draw.integers(0, 2, lengths.sum()), lengths)

    def texts(self, *inputs: Features) -> DistinctTexts:
        return DistinctTexts.of(map(self.reader.in_base_pieces, inputs))

    def open(self, texts: DistinctTexts, progress: Silent | None = None) -> CachedMemory:
        general = GeneralStates(self.memory, self.sha256, self.max_tokens)
        return open_cache(self.folder, self.limit, general, self.reader, texts, progress or Silent())

    @property
    def file(self) -> Path:
        """The only cache."""
        (file,) = self.folder.glob("*.safetensors")
        return file


def batches(inputs: Features, size: int) -> Iterator[Features]:
    bounds = np.concatenate([[0], np.cumsum(inputs.lengths)])
    for begin in range(0, len(inputs.lengths), size):
        lengths = inputs.lengths[begin : begin + size]
        part = slice(bounds[begin], bounds[begin] + lengths.sum())
        yield Features(inputs.ids[part], inputs.types[part], lengths)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["BertModel", "RobertaModel"])
@pytest.mark.parametrize("strategy", ["single", "chunk", "logits"])
def test_cached_states_are_the_live_ones_rounded(tiny_model: TinyModel, architecture: str, strategy: Any) -> None:
    setting = Setting.of(tiny_model, MemoryConfig(strategy=strategy), architecture=architecture)
    inputs = setting.inputs(50)
    cache = setting.open(setting.texts(inputs))
    for batch in [*batches(inputs, 7), *batches(inputs, 1)]:
        read, cached = setting.reader.read(batch), cache.read(batch)
        live = setting.memory.read(**read)
        assert cached["memory_states"].dtype == torch.bfloat16
        assert cached.keys() - {"memory_states"} == read.keys() & {"memory_mask"}
        mask = read.get("memory_mask", torch.ones_like(read["memory_ids"]))
        torch.testing.assert_close(cached.get("memory_mask", mask), mask, atol=0, rtol=0)
        states = cached["memory_states"].float()
        assert not states[:, mask == 0].any()
        # Half a unit in the last of 8 bits, and a little for what each text was batched with.
        torch.testing.assert_close(states[:, mask == 1], live[:, mask == 1], rtol=2**-8, atol=ROUNDING)


SEQUENCES = st.lists(st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 1)), min_size=1, max_size=6))


def as_inputs(sequences: list[list[tuple[int, int]]]) -> Features:
    ids, types = np.array(list(itertools.chain(*sequences)), np.int64).reshape(-1, 2).T
    return Features(ids.astype(np.int32), types.astype(np.int8), np.array(list(map(len, sequences)), np.int64))


@pytest.mark.slow
@given(SEQUENCES, st.randoms(use_true_random=False), st.integers(1, 5))
def test_texts_are_known_by_what_they_are_alone(sequences: list[Any], random: Any, size: int) -> None:
    texts = DistinctTexts.of([as_inputs(sequences)])
    again = [*sequences, *random.sample(sequences, len(sequences) // 2)]
    random.shuffle(again)
    assert DistinctTexts.of(batches(as_inputs(again), size)).digest == texts.digest
    distinct = set(map(tuple, sequences))
    assert len(texts) == len(distinct)
    whole = texts.inputs(slice(0, len(texts)))
    stored = [tuple(zip(text.ids.tolist(), text.types.tolist(), strict=True)) for text in batches(whole, 1)]
    assert {*stored} == distinct
    assert list(map(len, stored)) == sorted(map(len, distinct), reverse=True)
    if sequences:
        assert [stored[i] for i in texts.find(as_inputs(sequences))] == list(map(tuple, sequences))
        fewer = DistinctTexts.of([as_inputs([text for text in sequences if text != sequences[0]])])
        assert fewer.digest != texts.digest
        assert (fewer.find(as_inputs(sequences[:1])) == -1).all()


def test_where_a_text_ends_and_the_next_begins_counts() -> None:
    a, b = (7, 0), (8, 0)
    sets = [[[a, a]], [[a], [a]], [[a, a], [b]], [[a, a, b]]]
    assert len({DistinctTexts.of([as_inputs(sequences)]).digest for sequences in sets}) == len(sets)


def test_a_second_run_computes_nothing(tiny_model: TinyModel) -> None:
    setting, notes = Setting.of(tiny_model), Notes()
    inputs = setting.inputs(20)
    setting.open(setting.texts(inputs), notes)
    size = setting.file.stat().st_size
    expected = f"states of 20 texts need {size / 1e6:.1f} MB in {setting.folder}"
    assert [note.endswith(expected) for note in notes.notes] == [True]
    assert setting.calls > 1
    setting.calls = 0
    reverse = [*batches(inputs, 1)][::-1]
    cache = setting.open(setting.texts(*reverse, inputs), notes)
    assert setting.calls == 0
    assert str(setting.file) in notes.notes[1]
    assert {path.suffix for path in setting.folder.iterdir()} == {".safetensors", ".sha256"}
    cache.read(inputs)
    assert setting.calls == 0


def test_the_file_is_a_safetensors_file(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    inputs = setting.inputs(1)
    cache = setting.open(setting.texts(inputs))
    file = ArrayFile(setting.file)
    assert {"general": "a" * 64, "states": "1,2", "dim": "32", "precision": "float32"}.items() <= file.metadata.items()
    states = cache.read(inputs)["memory_states"]
    np.testing.assert_array_equal(file["states"].astype(np.float32), states.float().numpy().ravel())


def test_what_changes_the_states_changes_the_file(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    inputs = setting.inputs(5)
    setting.open(setting.texts(inputs))
    setting.sha256 = "b" * 64
    setting.open(setting.texts(inputs))
    setting.open(setting.texts(inputs, setting.inputs(1, seed=1)))
    setting.memory.general.to(torch.bfloat16)
    setting.open(setting.texts(inputs))
    setting.memory.plan = SimpleNamespace(states=(0, 1))  # type: ignore[assignment]
    setting.open(setting.texts(inputs))
    assert len([*setting.folder.glob("*.safetensors")]) == 5


@pytest.mark.slow
def test_a_run_killed_at_any_byte_is_gone_on_with(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    setting.max_tokens = 60
    texts = setting.texts(setting.inputs(8, longest=12))
    setting.open(texts)
    whole, n_batches, counts = setting.file.read_bytes(), setting.calls, []
    part = setting.file.with_suffix(".part")
    for size in sorted({*range(0, len(whole), 211), len(whole) - 1, len(whole)}):
        setting.file.unlink()
        part.write_bytes(whole[:size])
        setting.calls = 0
        setting.open(texts)
        assert setting.file.read_bytes() == whole
        assert not part.exists()
        counts.append(setting.calls)
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (n_batches, 0)
    assert len({*counts}) == n_batches + 1 > 3


def test_a_part_of_something_else_is_begun_anew(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    texts = setting.texts(setting.inputs(8))
    setting.open(texts)
    whole = setting.file.read_bytes()
    for content in (b"x", bytes(len(whole)), whole + b"more"):
        setting.file.rename(setting.file.with_suffix(".part"))
        next(setting.folder.glob("*.part")).write_bytes(content)
        setting.open(texts)
        assert setting.file.read_bytes() == whole


def test_a_damaged_file_is_made_anew(tiny_model: TinyModel) -> None:
    """Cut short, one byte changed, or without its checksum."""
    setting, notes = Setting.of(tiny_model), Notes()
    texts = setting.texts(setting.inputs(20))
    setting.open(texts)
    whole, checksum = setting.file.read_bytes(), setting.file.with_suffix(".sha256")
    flipped = whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]
    for content in (b"", whole[:100], whole[:-1], flipped, whole):
        if content == whole:
            checksum.unlink()
        setting.file.write_bytes(content)
        setting.open(texts, notes)
        assert setting.file.read_bytes() == whole
        assert notes.warnings[-1] == f"{setting.file} is damaged: computing its states again"
    assert len(notes.warnings) == 5
    setting.open(texts, notes)
    assert len(notes.warnings) == 5


def test_another_file_in_its_place_is_refused(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    texts = setting.texts(setting.inputs(8))
    setting.open(texts)
    whole = setting.file.read_bytes()
    for content in (bytes(len(whole)), b"text", whole + b"\0", whole[:50] + b"?" + whole[51:]):
        setting.file.write_bytes(content)
        with pytest.raises(InputError, match="is not a cache of these states"):
            setting.open(texts)
        assert setting.file.read_bytes() == content


@pytest.mark.slow
def test_more_than_the_limit_is_refused(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    texts = setting.texts(setting.inputs(200))
    size = texts.offsets[-1] * 2 * 32 * 2
    setting.limit = int(size)  # the file has a header beside the states
    mb = rf"{size / 1e6:.1f} MB"
    with pytest.raises(UsageError, match=rf"of 200 texts need {mb}, --max-cache allows {mb}: raise --max-cache, or"):
        setting.open(texts)
    assert not setting.folder.exists()
    assert setting.calls == 0
    setting.limit = int(size) + 1000
    setting.open(texts)
    assert size < setting.file.stat().st_size < size + 1000


def test_a_disk_without_room_is_told_before(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting.of(tiny_model)
    texts = setting.texts(setting.inputs(20))
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(ResourceError, match=r"states need 0\.\d MB in .*cache, which has 1,000 bytes free"):
        setting.open(texts)
    assert setting.calls == 0


def test_a_disk_that_fills_up_meanwhile(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    texts = setting.texts(setting.inputs(60))
    setting.open(texts)
    whole, n_batches = setting.file.read_bytes(), setting.calls
    setting.file.with_suffix(".sha256").unlink()
    setting.file.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, before[1]))
    try:
        with pytest.raises(ResourceError, match=rf"cannot be written at byte {len(whole) // 2:,} of {len(whole):,}"):
            setting.open(texts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.suffix for path in setting.folder.iterdir()] == [".part"]
    setting.calls = 0
    setting.open(texts)
    assert 0 < setting.calls < n_batches
    assert setting.file.read_bytes() == whole


def test_one_run_fills_a_cache(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    texts = setting.texts(setting.inputs(5))
    setting.open(texts)
    file = setting.file
    with held(file.with_suffix(".lock")) as pid:
        setting.open(texts)  # what is whole needs no lock
        file.unlink()
        with pytest.raises(ConflictError, match=f"process {pid} on .* is writing {setting.folder}"):
            setting.open(texts)
        setting.open(setting.texts(setting.inputs(6)))  # another cache in the same folder
    setting.open(texts)
    assert file.exists()


def test_a_text_that_is_not_kept(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    inputs = setting.inputs(5)
    cached, *_ = batches(inputs, 3)
    cache = setting.open(setting.texts(cached))
    with pytest.raises(ValueError, match="2 of 5 texts are not in the cache"):
        cache.read(inputs)
    with pytest.raises(ValueError, match="3 of 3"):  # the same ids as another kind of segment
        cache.read(Features(cached.ids, 1 - cached.types, cached.lengths))


def test_no_texts(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model)
    cache = setting.open(DistinctTexts.of([]))
    with pytest.raises(ValueError, match="2 of 2"):
        cache.read(setting.inputs(2))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_keeps_none_of_the_pages(tiny_model: TinyModel) -> None:
    setting = Setting.of(tiny_model, MemoryConfig(strategy="multiple"), width=256, intermediate_size=16)
    inputs = setting.inputs(400, longest=70)
    setting.max_tokens = 1024
    cache = setting.open(setting.texts(inputs))
    assert setting.file.stat().st_size > 15e6
    cache.read(next(batches(inputs, 10)))  # the code itself is in memory by now
    before, largest = file_backed_bytes(), 0
    for batch in batches(inputs, 10):
        cache.read(batch)
        largest = max(largest, file_backed_bytes() - before)
    assert largest < 2e6
    array = ArrayFile(setting.file)["states"].view(np.int16)
    assert array.any()
    assert file_backed_bytes() - before > 10e6  # the measure does see pages


def _texts(n: int = 40, longest: int = 30) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(VOCABULARY, draw.integers(0, longest))) for _ in range(n)]


def _reader(folder: Path, general: Path) -> tuple[Encoder, MemoryReader]:
    encoder = Encoder.of(Checkpoint.open(folder))
    return encoder, MemoryReader.of(encoder, Checkpoint.open(general))


@pytest.mark.parametrize("view", ["base", "expanded"])
def test_the_general_model_reads_what_its_own_tokenizer_gives(tiny_model: TinyModel, view: str) -> None:
    """Whatever the domain model reads, in a batch as plain transformers pads it."""
    folder = adapted(tiny_model)
    general = folder.parent / "base"
    encoder, reader = _reader(folder, general)
    texts = _texts()
    views = list(ClassificationTask().inference((Text(text) for text in texts), encoder))
    features = [feature for one in views for feature in getattr(one, view)]
    assert (max(int(feature.ids.max()) for feature in features) >= reader.added.first_id) == (view == "expanded")
    read = reader.read(Features.of(features))
    expected = AutoTokenizer.from_pretrained(general)(texts, padding=True, return_tensors="pt")
    assert torch.equal(read["memory_ids"], expected["input_ids"])
    assert torch.equal(read["memory_mask"], expected["attention_mask"])
    assert torch.equal(read["memory_types"], expected["token_type_ids"])


def test_pairs_keep_their_segments(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    encoder, reader = _reader(folder, folder.parent / "base")
    pairs = [Text("tachycardia in the heart", "a coronavirus"), Text("dtypes", "eigenvalues of eigenvalues")]
    views = list(ClassificationTask().inference(pairs, encoder))
    read = reader.read(Features.of([one.expanded[0] for one in views]))
    tokenizer = AutoTokenizer.from_pretrained(folder.parent / "base")
    expected = tokenizer([p.text for p in pairs], [p.second for p in pairs], padding=True, return_tensors="pt")
    assert torch.equal(read["memory_ids"], expected["input_ids"])
    assert torch.equal(read["memory_types"], expected["token_type_ids"])


def test_a_batch_without_padding_has_no_mask(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    _, reader = _reader(folder, folder.parent / "base")
    ids = np.array([2, reader.added.first_id, 3, 2, reader.added.first_id, 3])
    read = reader.read(Features(ids, np.zeros(6, np.int32), np.array([3, 3])))
    assert set(read) == {"memory_ids", "memory_types"}
    pieces = reader.added.pieces.stored.values[: reader.added.pieces.stored.offsets[1]]
    assert read["memory_ids"].tolist() == [[2, *pieces.tolist(), 3]] * 2


def test_a_general_model_without_segments_is_given_none(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    general = tiny_model("BertModel", name="alike", type_vocab_size=1)
    _, reader = _reader(folder, general)
    assert set(reader.read(Features(np.array([2, 3]), np.array([0, 1]), np.array([2])))) == {"memory_ids"}


def test_of_a_longer_text_the_first_pieces_and_the_last_special_token_are_read(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    general = tiny_model("BertModel", name="short", max_position_embeddings=16)
    encoder, reader = _reader(folder, general)
    assert reader.max_length == 16
    new = encoder.tokenizer.encode(" ".join(NEW * 4)).expanded.ids
    ids, types, _ = encoder.single(new)
    short, short_types, _ = encoder.single(new[:1])
    lengths = np.array([len(short), len(ids), len(short)])
    all_ids, all_types = np.concatenate([short, ids, short]), np.concatenate([short_types, types, short_types])
    inputs = reader.in_base_pieces(Features(all_ids, all_types, lengths))
    whole = [2, *encoder.tokenizer.encode(" ".join(NEW * 4)).base.ids.tolist(), 3]
    first = [2, *encoder.tokenizer.encode(NEW[0]).base.ids.tolist(), 3]
    assert len(whole) > 16
    assert inputs.lengths.tolist() == [len(first), 16, len(first)]
    assert inputs.ids.tolist() == [*first, *whole[:15], 3, *first]
    assert len(inputs.types) == len(inputs.ids)
    views = ClassificationTask().inference([Text("tachycardia"), Text(" ".join(NEW * 4)), Text("")], encoder)
    assert reader.n_cut(views) == 1


def test_nothing_at_all_is_read_as_nothing(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    _, reader = _reader(folder, folder.parent / "base")
    assert len(reader.in_base_pieces(Features.of([])).ids) == 0


def test_another_vocabulary_is_refused(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    general = tiny_model("RobertaModel", name="other")
    with pytest.raises(InputError, match=r"other has a different vocabulary: \d+ of its \d+ entries are among"):
        _reader(folder, general)


def test_words_added_by_longest_match_are_refused(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    encoder = Encoder.of(Checkpoint.open(folder))
    encoder.tokenizer.added = replace(encoder.tokenizer.added, oov="greedy")
    with pytest.raises(UsageError, match="--oov greedy"):
        MemoryReader.of(encoder, Checkpoint.open(folder.parent / "base"))
