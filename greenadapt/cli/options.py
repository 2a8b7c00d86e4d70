"""The options of commands: generated from configuration classes, shared by commands, and in the help."""

import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, replace
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from greenadapt.cli.settings import PRESET, command_line, source_of, used_settings
from greenadapt.config import Panel, SessionOptions
from greenadapt.errors import UsageError
from greenadapt.fields import Config, Field, option_fields, without_ranges
from greenadapt.progress import limit_time

if TYPE_CHECKING:
    from greenadapt.stages.session import Session


def option(names: str, text: str, panel: str | None = None, **settings: Any) -> Any:
    """A typer option with the help ``text``; spaces separate its ``names``."""
    return typer.Option(*names.split(), help=text, rich_help_panel=panel, **settings)


def examples(*commands: str) -> str:
    """The examples of commands at the end of the help."""
    return "\n\n".join(["Examples:", *(f"- `greenadapt {command}`" for command in commands)])


FIELDS, PAPER_VALUES = "option_fields", "paper_values"
"""Attributes of a command's function: parameter → field, and parameter → the value of --preset paper, as text."""
Preset = Literal["paper"]
_PRESET = option("--preset", "paper: the settings of the paper, where other options do not set them.")
PresetOption = Annotated[Preset | None, _PRESET]
_CORPUS = "corpus_argument"
"""The parameter of the corpus as an argument."""
_WIDEST_CHOICES = 12  # characters, with "|" between


class Pick:
    """The fields of a configuration that a command has, and their defaults in this command."""

    def __init__(self, *only: str, without: tuple[str, ...] = (), **defaults: Any) -> None:
        self.only, self.without, self.defaults = only, without, defaults

    def fields(self, config: type) -> list[Field]:
        fields = option_fields(config)
        return [fields[name] for name in self.only or fields if name not in self.without]


class AsArgument:
    """Mark of --corpus in a command that also takes the corpus as its argument."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of ``command`` that is a configuration by its options, and add the common options.

    The command receives the configuration, or ``None`` for ``Config | None`` where the first of its options is not set.
    Configurations with an option of the same name share it.
    """
    configs: dict[str, tuple[Any, bool, list[Field]]] = {}
    parameters: dict[str, Parameter] = {}
    paper: dict[str, str] = {}
    plain: list[str] = []
    for name, parameter in signature(command).parameters.items():
        kind, is_optional, pick = _configuration(parameter.annotation)
        if kind is None:
            parameters[name] = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            plain.append(name)
            continue
        configs[name] = kind, is_optional, pick.fields(kind)
        for field in pick.fields(kind):
            own_default = pick.defaults.get(field.name)
            default = own_default if field.name in pick.defaults else field.default
            parameters.setdefault(field.parameter, _parameter(field, default))
            if field.option.paper is not None and own_default is None:  # else the command follows another paper
                paper[field.parameter] = str(field.option.paper)
    if PRESET in parameters:  # the command's own
        paper = {}
    elif any(str(parameters[name].default) != value for name, value in paper.items()):
        parameters[PRESET] = _keyword(PRESET, Preset | None, _PRESET)
    everything = sorted([*_argument(parameters), *parameters.values(), *_common(parameters)], key=_is_advanced)
    for parameter in everything:
        _finish_help(parameter)

    @wraps(command)
    def run(**values: Any) -> None:
        arguments = {name: values[name] for name in plain}
        for name, (kind, is_optional, fields) in configs.items():
            is_unset = is_optional and values[fields[0].parameter] is None
            arguments[name] = None if is_unset else kind(**_field_values(fields, values))
        command(**arguments)

    run.__signature__ = signature(command).replace(parameters=everything)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in everything}
    setattr(run, FIELDS, {field.parameter: field for _, _, fields in configs.values() for field in fields})
    setattr(run, PAPER_VALUES, paper)
    return run


def _configuration(annotation: Any) -> tuple[Any, bool, Pick]:
    """The configuration class in an annotation (``None``: it has none), whether it is optional, and its ``Pick``."""
    kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    pick = next((mark for mark in marks if isinstance(mark, Pick)), Pick())
    kinds = [part for part in get_args(kind) or (kind,) if part is not NoneType]
    is_config = isinstance(kinds[0], type) and issubclass(kinds[0], Config)
    return kinds[0] if is_config else None, kinds != [kind], pick


def _keyword(name: str, kind: Any, mark: Any, default: Any = None) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, mark])


def _parameter(field: Field, default: Any) -> Parameter:
    """The field as a parameter with a typer option."""
    kind, unset = without_ranges(field.kind), field.option.unset
    if field.option.parse is not None:
        kind, default = str, field.option.default_text
    elif field.option.negated:
        default = not default
    elif get_origin(kind) is tuple:
        unset = unset or ", ".join(default)
        kind, default = list[Path] if field.option.is_path else list[str], None
    if default is None:
        kind = kind | None
    elif default is MISSING:
        default = Parameter.empty
    choices = [str(name) for part in (kind, *get_args(kind)) if get_origin(part) is Literal for name in get_args(part)]
    is_wide = len("|".join(choices)) > _WIDEST_CHOICES
    is_said = all(re.search(rf"\b{re.escape(choice)}\b", field.option.help) for choice in choices)
    text = field.option.help + (f" One of {', '.join(choices)}." if is_wide and not is_said else "")
    text += f" [paper: {field.option.paper}]" if field.option.paper is not None else ""
    text += f" [default: {unset}]" if unset and default is None else ""
    settings: dict[str, Any] = {"metavar": "<name>"} if is_wide else {}
    return _keyword(field.parameter, kind, option(" ".join(field.names), text, field.option.panel, **settings), default)


def _finish_help(parameter: Parameter) -> None:
    """Have the help of a flag show no value, and that of other options their default within the text."""
    mark = _mark(parameter)
    if get_args(parameter.annotation)[:1] == (bool,):
        mark.metavar = ""
    elif isinstance(parameter.default, int | float | str):
        mark.help, mark.show_default = f"{mark.help} [default: {parameter.default}]", False


def _mark(parameter: Parameter) -> Any:
    """The typer option or argument in the annotation of a parameter; ``None`` for the context."""
    return next(iter(get_args(parameter.annotation)[1:]), None)


def _is_advanced(parameter: Parameter) -> bool:
    return getattr(_mark(parameter), "rich_help_panel", None) == Panel.ADVANCED  # their panel is the last


def _argument(parameters: dict[str, Parameter]) -> list[Parameter]:
    """The corpus as an argument, if --corpus is marked ``AsArgument``."""
    marks = get_args(parameters["corpus"].annotation) if "corpus" in parameters else ()
    if not any(isinstance(mark, AsArgument) for mark in marks):
        return []
    return [_keyword(_CORPUS, str | None, typer.Argument(metavar="CORPUS", help="The same as --corpus."))]


def take_argument(ctx: Any) -> None:
    """Make the argument's value in ``ctx``, if it is set, that of --corpus; ``UsageError`` if both are given."""
    if (value := ctx.params.get(_CORPUS)) is None:
        return
    if source_of(ctx, "corpus") == "COMMANDLINE":
        raise UsageError(f"two corpora are given, {value} and --corpus {ctx.params['corpus']}", "leave out one of them")
    ctx.params["corpus"] = value
    ctx.set_parameter_source("corpus", type(ctx.get_parameter_source("corpus")).DEFAULT)  # the argument is recorded


def _common(parameters: dict[str, Parameter]) -> Iterable[Parameter]:
    """The options of every command; without -q if one of its other ``parameters`` has this name."""
    is_taken = any("-q" in (getattr(_mark(parameter), "param_decls", None) or ()) for parameter in parameters.values())
    verbose = "Also print all figures, and on stderr what is read and used."
    config = "File (.toml) that sets options [default: $GREENADAPT_CONFIG]."
    quiet = option(f"--quiet{'' if is_taken else ' -q'}", "Print only results, warnings and errors.", Panel.OUTPUT)
    yield _keyword("quiet", bool, quiet, False)
    yield _keyword("verbose", bool, option("--verbose -v", verbose, Panel.OUTPUT), False)
    yield _keyword("config", Path | None, option("--config", config, Panel.OUTPUT))


def _field_values(fields: list[Field], values: dict[str, Any]) -> dict[str, Any]:
    """The values of fields from those of their options; a field is left out if its option has no value."""
    chosen: dict[str, Any] = {}
    for field in fields:
        value = values[field.parameter]
        if field.option.negated:
            chosen[field.name] = not value
        elif value is None or value == []:
            continue
        elif field.option.parse is not None:
            chosen[field.name] = field.option.parse(value, field.option_name)
        elif isinstance(field.default, tuple):
            chosen[field.name] = tuple(map(str, value))
        else:
            chosen[field.name] = value
    return chosen


Corpus = Annotated[
    str | None,
    option(
        "--corpus -c",
        "A named corpus (see greenadapt corpus list), a recipe (.toml), a text file, or - for standard input.",
    ),
    AsArgument(),
]
Model = Annotated[
    str | None, option("--model -m", "A model folder, a hub id, minilm or mpnet [default: the only one of the corpus].")
]
CorpusOfResults = Annotated[
    str | None,
    option("--corpus -c", "Use results of this corpus, by name or file [default: the only one in the workspace]."),
]
AdaptedTo = Annotated[
    str | None,
    option("--corpus -c", "Train the model in the workspace that was adapted to this corpus; no text is read from it."),
]
Trained = Annotated[
    str | None,
    option(
        "--model -m",
        "The model to train: a folder, adapted or not, a hub id, minilm or mpnet; with --corpus, the base of the "
        "adapted model [default: the only one adapted to it].",
    ),
]
OnlyCorpus = Annotated[
    str | None, option("--corpus -c", "Only results of this corpus, by name or file [default: all].")
]
OnlyModel = Annotated[str | None, option("--model -m", "Only results for this base model [default: all].")]
TrainFile = Annotated[
    list[str] | None, option("--train", "Labelled file, or data set of the hub; repeatable.", Panel.DATA)
]
AlignmentPath = Annotated[Path | None, option("--alignment", "Path of an align result, instead of a corpus.")]
AsJson = Annotated[bool, option("--json", "Print JSON instead of text.")]
Memory = Annotated[
    str | None,
    option(
        "--memory",
        "A general model whose states the trained model sees: a folder, a hub id, or base for the model that "
        "--model was adapted from.",
        Panel.ADVANCED,
    ),
]


def start_output(ctx: typer.Context) -> None:
    """Apply --quiet and --verbose; with --verbose, print the command and the settings from files and the
    environment.
    """
    from greenadapt.cli.output.console import set_messages, write_message

    quiet, verbose = ctx.params["quiet"], ctx.params["verbose"]
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other", "leave out one of them")
    set_messages(is_quiet=quiet, is_verbose=verbose)
    if not verbose:
        return
    from greenadapt.version import __version__

    write_message("debug", f"greenadapt {__version__}: {command_line()}")
    for setting in used_settings(ctx).values():
        value = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
        write_message("debug", f"set {setting.location}: {value}")


def make_session(options: SessionOptions, **overrides: Any) -> "Session":
    """The session of a command; ``overrides`` are fields of ``options`` that the command has as separate options."""
    from greenadapt.cli.output.console import make_progress
    from greenadapt.stages.session import Session
    from greenadapt.workers import launched_processes

    options = replace(options, **overrides)
    if options.max_time is not None:
        limit_time(options.max_time, is_alone=launched_processes()[1] == 1)
    return Session.of(options, make_progress(), command=command_line())
