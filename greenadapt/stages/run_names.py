"""Default names of folders in ``runs/``."""

import re
from collections.abc import Iterable
from pathlib import Path

from greenadapt.corpus.opening import is_hub_id
from greenadapt.storage.files import expanded

_NAMED = 3
"""The most names that are written out."""
_SUFFIXES = re.compile(r"(\.[A-Za-z]\w{0,6}){1,2}$")
_COMMON = re.compile(
    r"([-_.\s\d]|train(ing)?|dev(el(opment)?)?|valid(ation)?|test|eval|data(set)?s?|sets?|all|full|of|raw|text)*", re.I
)
"""File names that only tell the part of a data set, or nothing at all."""


def data_name(sources: Iterable[str]) -> str:
    """The names of files or data sets: their own, or for ``NCBI-disease/train.tsv`` the folder's."""
    return join_names(map(_data_name, sources))


def join_names(names: Iterable[str]) -> str:
    """The distinct names, joined; of many only the first are written out."""
    each = list(dict.fromkeys(names))
    if len(each) > _NAMED:
        each = [*each[: _NAMED - 1], f"and-{len(each) - _NAMED + 1}-more"]
    return "-".join(each)


def _data_name(source: str) -> str:
    if is_hub_id(source):
        parts = ["-".join(source.partition(":")[0].split("/")[1:])]
    else:
        *folders, file = Path(source.partition("://")[2] or expanded(source).absolute()).parts
        stem = _SUFFIXES.sub("", file)
        parts = [stem, *reversed(folders[1:]), stem]
    telling = (part for part in parts if not _COMMON.fullmatch(part))
    return re.sub(r"[^\w.-]+", "-", next(telling, parts[-1])).strip("-.") or "data"
