"""The list of a model's modules for sentence-transformers, read without that package."""

from dataclasses import dataclass
from pathlib import Path

from greenadapt.store.files import read_as

MODULES_FILE = "modules.json"


@dataclass(frozen=True)
class _Module:
    path: str
    type: str = ""


def read_modules(folder: Path) -> dict[str, str]:
    """The name of each module's folder → its class, such as ``Dense``.

    The list is untrusted: a path could name any folder on the machine, and only folders beside the list are read.
    Raises ``InputError`` if the list is broken.
    """
    file = folder / MODULES_FILE
    modules = read_as(file, list[_Module], "download the model again") if file.is_file() else []
    names = {module.path.rstrip("/"): module.type.rpartition(".")[2] for module in modules}
    return {name: kind for name, kind in names.items() if name not in ("", ".", "..") and Path(name).name == name}
