"""What says how a compiled model is run; such a folder is read without torch."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from greenadapt.config import Backend, Quantize
from greenadapt.storage.files import Json, write_json
from greenadapt.storage.own_json import read_own

CompiledBackend = Literal["onnx", "openvino"]
"""What runs a graph."""
GraphInput = Literal["attention_mask", "token_type_ids", "position_ids"]
"""What a graph may read beside ``inputs_embeds``."""
COMPILED_FILE = "compiled.json"
"""How a compiled model is run."""
EMBEDDING_FILE = "embedding.safetensors"
"""The whole embedding of a compiled model, which its graph does not hold."""
GRAPHS: dict[Backend, str] = {"onnx": "model.onnx", "openvino": "model.xml"}
"""Backend → the graph's file; that of OpenVINO has its weights beside it, in ``model.bin``."""


@dataclass(frozen=True)
class Compiled:
    """How a compiled model is run."""

    backend: CompiledBackend
    quantize: Quantize
    head: str | None
    """As in ``checkpoints``' architectures, such as ``TokenClassification``; ``None`` for sentence vectors."""
    inputs: tuple[GraphInput, ...]
    """Names of the graph's inputs beside ``inputs_embeds``, in order; its only output is ``logits``."""

    @classmethod
    def read(cls, folder: Path) -> "Compiled | None":
        """That of a folder, ``None`` if the model is not compiled; raises ``InputError`` if the file is broken."""
        file = folder / COMPILED_FILE
        if not file.is_file():
            return None
        return read_own(file, cls, "compiled model", "compile the model again")

    def write(self, folder: Path) -> None:
        """Write ``compiled.json``."""
        write_json(folder / COMPILED_FILE, self.as_json())

    def as_json(self) -> Json:
        """Its content."""
        return asdict(self)
