from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from greenadapt.errors import InputError
from greenadapt.store.arrays import ArrayFile, StreamedArray, row_blocks, write_arrays

EXAMPLES = {
    "weights": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.linspace(0, 1, 6).astype(ml_dtypes.bfloat16).reshape(2, 3),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 5), np.int32),
    "flags": np.array([True, False]),
}


def test_the_safetensors_library_reads_what_is_written(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    write_arrays(tmp_path / "a.safetensors", EXAMPLES, {"format": "pt"})
    tensors = load_file(tmp_path / "a.safetensors")
    assert set(tensors) == set(EXAMPLES)
    for name, array in EXAMPLES.items():
        assert tuple(tensors[name].shape) == array.shape
        assert tensors[name].double().tolist() == array.astype(np.float64).tolist()


def test_what_the_safetensors_library_writes_is_read(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {name: EXAMPLES[name] for name in ("weights", "flags")}
    save_file(arrays, tmp_path / "b.safetensors", {"note": "hello"})
    file = ArrayFile(tmp_path / "b.safetensors")
    assert file.metadata == {"note": "hello"}
    for name, array in arrays.items():
        assert file[name].dtype == array.dtype
        assert file.shape(name) == array.shape
        np.testing.assert_array_equal(file[name], array)


def test_a_streamed_array_equals_the_whole_one(tmp_path: Path) -> None:
    weights = EXAMPLES["weights"]
    write_arrays(tmp_path / "whole", {"weights": weights})
    write_arrays(tmp_path / "pieces", {"weights": StreamedArray(weights.shape, weights.dtype, row_blocks(weights, 16))})
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "pieces").read_bytes()


@pytest.mark.parametrize("n_bytes", [4, -1])
def test_a_file_cut_short_is_refused(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "a.safetensors"
    write_arrays(path, EXAMPLES)
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(InputError, match="safetensors"):
        ArrayFile(path)


@pytest.mark.parametrize(
    "header",
    [
        "not json at all!",
        '{"a": 1}',
        '{"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}',
        '{"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}',
    ],
)
def test_headers_that_no_program_writes_are_refused(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + b"\0" * 8)
    with pytest.raises(InputError, match=r"a\.safetensors (is|has numbers of type F8).*: fetch or make it again"):
        ArrayFile(path)
