"""Keyword arguments as configurations: those of the commands, with underscores."""

import difflib
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from greenadapt.config import SessionOptions
from greenadapt.errors import UsageError
from greenadapt.fields import Field, option_fields, refuse_without_effect, without_ranges
from greenadapt.progress import Progress

if TYPE_CHECKING:
    from greenadapt.stages.session import Session

Configs = Mapping[type, Sequence[str]]
"""Configuration classes, and their fields that are no arguments."""
OF_COMMANDS = ("dry_run", "max_time", "nice")
"""Fields of ``SessionOptions`` that only a command has: they print, or act on the whole process."""


class Arguments:
    """The keyword arguments of one call; raises ``UsageError`` for one that belongs to none of ``configs``, or that has
    no effect without another. ``own`` are the arguments that the call has besides.
    """

    def __init__(self, call: str, given: Mapping[str, Any], configs: Configs, own: Mapping[str, Any]) -> None:
        self._given = given
        self._fields = {config: _fields(config, without) for config, without in configs.items()}
        known = {field.parameter: field for fields in self._fields.values() for field in fields}
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, [*own, *known], n=3, cutoff=0.5)
                hint = f"did you mean {' or '.join(near)}?" if near else f"see help(greenadapt.{call})"
                raise UsageError(f"{call} has no argument {name}", hint)
        values = {name: field.default for name, field in known.items()} | dict(given) | dict(own)
        for name in given:
            refuse_without_effect(known[name], values)

    def make(self, config: Any, **defaults: Any) -> Any:
        """The configuration of the class ``config``; ``defaults`` are fields of this call.

        Raises ``UsageError`` for a value that is not allowed.
        """
        fields = [field for field in self._fields[config] if field.parameter in self._given]
        return config(**{**defaults, **{field.name: _value(field, self._given[field.parameter]) for field in fields}})

    def named(self, config: Any) -> frozenset[str]:
        """The fields of the class ``config`` that the caller gave."""
        return frozenset(field.name for field in self._fields[config] if field.parameter in self._given)


def _fields(config: type, without: Sequence[str]) -> list[Field]:
    return [field for name, field in option_fields(config).items() if name not in without]


def _value(field: Field, value: Any) -> Any:
    """What a caller gives as the value of a field: a list for a tuple, ``"8G"`` for bytes, a path as text."""
    option, kind = field.option, without_ranges(field.kind)
    kinds = get_args(kind) or (kind,)
    if option.negated and isinstance(value, bool):
        return not value
    if isinstance(value, str) and option.parse is not None:
        return option.parse(value, field.option_name)
    if get_origin(kind) is tuple and isinstance(value, str | PathLike | list | tuple):
        values = [value] if isinstance(value, str | PathLike) else value
        return tuple(fspath(one) if isinstance(one, PathLike) else one for one in values)
    if isinstance(value, str) and Path in kinds:
        return Path(value)
    if type(value) is int and float in kinds:
        return float(value)  # as on the command line: the hash of a configuration tells 1 from 1.0
    return value


def make_session(options: SessionOptions, progress: bool | Progress) -> "Session":
    """What the stages of one call share."""
    from greenadapt.stages.session import Session

    return Session.of(options, shown_progress(progress))


def shown_progress(progress: bool | Progress) -> Progress:
    """Where notes and bars go: as those of the commands to stderr, nowhere, or where the caller says."""
    if not isinstance(progress, bool):
        return progress
    if progress:
        from greenadapt.cli.output.console import make_progress

        return make_progress()
    from greenadapt.api.quiet import OnlyWarnings

    return OnlyWarnings()
