"""The architectures that greenadapt supports: those of every other module in this folder."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType

from greenadapt.architectures.architecture import Architecture

_OTHERS = ("architecture", "registry")


def _found() -> dict[str, Architecture]:
    names = sorted(module.name for module in iter_modules([str(Path(__file__).parent)]) if module.name not in _OTHERS)
    modules = (import_module(f"{__package__}.{name}") for name in names)
    return {one.model_type: one for module in modules for one in module.ARCHITECTURES}


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(_found())
"""``model_type`` → architecture."""
