"""The options of commands: generated from configuration classes, shared by commands, and in the help."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import MISSING, replace
from functools import partial, wraps
from inspect import Parameter, signature
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from greenadapt.cli.settings import used_settings
from greenadapt.config import Panel, SessionOptions
from greenadapt.errors import UsageError
from greenadapt.fields import Checked, Field, option_fields, without_ranges
from greenadapt.progress import limit_time
from greenadapt.store.files import short

if TYPE_CHECKING:
    from greenadapt.stages.session import Session


def option(names: str, text: str, panel: str | None = None, **settings: Any) -> Any:
    """A typer option with the help ``text``; spaces separate its ``names``."""
    return typer.Option(*names.split(), help=text, rich_help_panel=panel, **settings)


FIELDS, PAPER_VALUES = "option_fields", "paper_values"
"""Attributes of a command's function: parameter → field, and parameter → the value of --preset paper, as text."""


class Pick:
    """The fields of a configuration that a command has, and their defaults in this command."""

    def __init__(self, *only: str, without: tuple[str, ...] = (), **defaults: Any) -> None:
        self.only, self.without, self.defaults = only, without, defaults

    def fields(self, config: type) -> list[Field]:
        fields = option_fields(config)
        return [fields[name] for name in self.only or fields if name not in self.without]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of ``command`` that is a configuration by its options, and add the common options.

    The command receives the configuration, or for ``Callable[..., Config]`` a function that makes it. Configurations
    with an option of the same name share it.
    """
    configs: dict[str, tuple[Any, bool, list[Field]]] = {}
    parameters: dict[str, Parameter] = {}
    paper: dict[str, Any] = {}
    plain_parameters: list[str] = []
    for name, parameter in signature(command).parameters.items():
        kind, is_called, pick = _configuration(parameter.annotation)
        if kind is None:
            parameters[name] = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            plain_parameters.append(name)
            continue
        picked = pick.fields(kind)
        configs[name] = kind, is_called, picked
        for field in picked:
            own_default = pick.defaults.get(field.name)
            default = own_default if field.name in pick.defaults else field.default
            parameters.setdefault(field.parameter, _parameter(field, default))
            if field.option.paper is not None and own_default is None:  # else the command follows another paper
                paper[field.parameter] = field.option.paper
    fields = {field.parameter: field for _, _, picked in configs.values() for field in picked}
    if PRESET in parameters:  # the command's own
        paper = {}
    elif any(parameters[name].default != value for name, value in paper.items()):
        parameters[PRESET] = _PRESET

    @wraps(command)
    def run(**values: Any) -> None:
        arguments = {name: values[name] for name in plain_parameters}
        for name, (kind, is_called, picked) in configs.items():
            make = partial(kind, **_chosen(picked, values))
            arguments[name] = make if is_called else make()
        command(**arguments)

    parameters_ = [*_argument(parameters.get(_OPTION)), *parameters.values()]
    for parameter in parameters_:
        _finish_marks(parameter)
    parameters_ = sorted([*parameters_, *_common(parameters_)], key=_is_advanced)  # their panel is the last
    run.__signature__ = signature(command).replace(parameters=parameters_)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters_}
    setattr(run, FIELDS, fields)
    setattr(run, PAPER_VALUES, {name: str(value) for name, value in paper.items()})
    return run


def _finish_marks(parameter: Parameter) -> None:
    """Have the help of a flag show no value, and that of other options their default within the text."""
    for mark in _marks(parameter):
        if get_args(parameter.annotation)[:1] == (bool,):
            mark.metavar = ""
        elif isinstance(parameter.default, int | float | str) and getattr(mark, "show_default", False):
            mark.help, mark.show_default = f"{mark.help} [default: {parameter.default}]", False


PRESET = "preset"
Preset = Literal["paper"]


_PRESET = Parameter(
    PRESET,
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Preset | None, option("--preset", "paper: the settings of the paper, where other options do not set them.")
    ],
)


def _argument(corpus: Parameter | None) -> list[Parameter]:
    """The corpus as an argument, if --corpus is marked ``AsArgument``."""
    if corpus is None or not any(isinstance(mark, AsArgument) for mark in _marks(corpus)):
        return []
    argument = typer.Argument(metavar="CORPUS", help="The same as --corpus.")
    return [Parameter(_ARGUMENT, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, argument])]


def _common(parameters: Iterable[Parameter]) -> list[Parameter]:
    """The options of every command; without -q if one of its other ``parameters`` has this name."""
    marks = chain.from_iterable(map(_marks, parameters))
    quiet = "--quiet" if any("-q" in (getattr(mark, "param_decls", None) or ()) for mark in marks) else "--quiet -q"
    verbose = "Also print all figures, and on stderr what is read and used."
    config = "File (.toml) that sets options [default: $GREENADAPT_CONFIG]."
    options: dict[str, tuple[Any, Any, str, str]] = {
        "quiet": (bool, False, quiet, "Print only results, warnings and errors."),
        "verbose": (bool, False, "--verbose -v", verbose),
        "config": (Path | None, None, "--config", config),
    }
    return [
        Parameter(
            name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option(names, text, Panel.OUTPUT)]
        )
        for name, (kind, default, names, text) in options.items()
    ]


def _marks(parameter: Parameter) -> tuple[Any, ...]:
    """The annotations of a parameter besides its type."""
    return get_args(parameter.annotation)[1:] if get_origin(parameter.annotation) is Annotated else ()


def examples(*commands: str) -> str:
    """The examples of commands at the end of the help."""
    return "\n\n".join(["Examples:", *(f"- `greenadapt {command}`" for command in commands)])


def _configuration(annotation: Any) -> tuple[Any, bool, Pick]:
    """The configuration class in an annotation, whether the parameter is a function that makes it, and its ``Pick``."""
    pick = Pick()
    if get_origin(annotation) is Annotated:
        annotation, *marks = get_args(annotation)
        pick = next((mark for mark in marks if isinstance(mark, Pick)), pick)
    is_called = get_origin(annotation) is Callable
    if is_called:
        annotation = get_args(annotation)[-1]
    is_config = isinstance(annotation, type) and issubclass(annotation, Checked)
    return annotation if is_config else None, is_called, pick


_WIDEST_CHOICES = 12  # characters, with "|" between


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
    names = [f"One of {', '.join(choices)}."] if is_wide and not is_said else []
    shown = None if isinstance(default, bool) or default is Parameter.empty else default
    details = [("paper", field.option.paper), ("default", unset or None if shown is None else shown)]
    notes = [f"[{name}: {value}]" for name, value in details if value is not None]
    text = " ".join([field.option.help, *names, *notes])
    settings: dict[str, Any] = {"metavar": "<name>"} if is_wide else {}
    typer_option = option(" ".join(field.names), text, field.option.panel, show_default=False, **settings)
    return Parameter(field.parameter, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, typer_option])


def _chosen(picked: list[Field], values: dict[str, Any]) -> dict[str, Any]:
    """The values of fields from those of their options; a field is left out if its option has no value."""
    chosen: dict[str, Any] = {}
    for field in picked:
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


def _is_advanced(parameter: Parameter) -> bool:
    return any(getattr(mark, "rich_help_panel", None) == Panel.ADVANCED for mark in _marks(parameter))


_WORDS: ContextVar[Mapping[str, list[str]]] = ContextVar("words")
"""The words of the running command by parameter; those of its name are at ""."""
_NOT_RECORDED = {"workspace", "as_json", "quiet", "verbose", "config", "max_time"}


def remember(ctx: Any, values: Mapping[str, Any], order: Iterable[Any]) -> None:
    """Keep the command of ``ctx`` for ``command_line``: ``values`` by parameter, in ``order``.

    It includes values from a file or the environment, so that it makes the same result elsewhere.
    """
    options: dict[str, list[str]] = {}
    arguments: dict[str, list[str]] = {}
    for parameter in dict.fromkeys(order):
        value = values.get(parameter.name)
        if parameter.name in _NOT_RECORDED | {"out"} or value is None:
            continue
        words = [_format_value(str(item)) for item in (value if isinstance(value, list | tuple) else [value])]
        if parameter.param_type_name == "argument":
            arguments[parameter.name] = words
        elif getattr(parameter, "is_flag", False):
            flag = parameter.opts if value else parameter.secondary_opts
            options[parameter.name] = [_long(flag)] if flag else []
        else:
            options[parameter.name] = [word for item in words for word in (_long(parameter.opts), item)]
    out = {"out": ["--out", "FOLDER"]} if values.get("out") is not None else {}
    _WORDS.set({"": command_words(ctx), **arguments, **options, **out})


def forget(names: Iterable[str]) -> None:
    """Remove parameters from ``command_line``."""
    forgotten = set(names)
    _WORDS.set({name: words for name, words in _WORDS.get().items() if name not in forgotten})


def command_line() -> str | None:
    """The running command, as recorded in results; ``None`` outside of commands."""
    words = _WORDS.get(None)
    return None if words is None else shlex.join(["greenadapt", *chain.from_iterable(words.values())])


def command_words(ctx: Any) -> list[str]:
    """The words that call the command of ``ctx``, such as ``corpus`` and ``prepare``."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.info_name)
        ctx = ctx.parent
    return words


def _format_value(value: str) -> str:
    with suppress(OSError, RuntimeError):  # a name that is too long, or the home of an unknown user
        value = short(value)
    return value.encode("utf-8", "replace").decode("utf-8")  # JSON has no surrogates


def _long(options: list[str]) -> str:
    return next((option for option in options if option.startswith("--")), options[0])


_OPTION, _ARGUMENT = "corpus", "corpus_argument"
"""Names of the parameters of the corpus."""


class AsArgument:
    """Mark of --corpus in a command that also takes the corpus as its argument."""


def take_argument(ctx: Any) -> None:
    """Move the argument's value in ``ctx``, if it is set, to --corpus; raises ``UsageError`` if both are given."""
    if (value := ctx.params.pop(_ARGUMENT, None)) is None:
        return
    if ctx.get_parameter_source(_OPTION).name == "COMMANDLINE":
        raise UsageError(f"two corpora are given, {value} and --corpus {ctx.params[_OPTION]}", "leave out one of them")
    forget([_OPTION])
    ctx.params[_OPTION] = value
    ctx.set_parameter_source(_OPTION, ctx.get_parameter_source(_ARGUMENT))


Corpus = Annotated[
    str | None,
    option(
        "--corpus -c",
        "A named corpus (see greenadapt corpus list), a recipe (.toml), a text file, or - for standard input.",
    ),
    AsArgument(),
]
Model = Annotated[
    str | None, option("--model -m", "A model folder, a hub id, minilm or mpnet [default: the only one used so far].")
]
CorpusOfResults = Annotated[
    str | None,
    option("--corpus -c", "The corpus whose results in the workspace to use, by name or file [default: the only one]."),
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
        "adapted model [default: the only one].",
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
    from greenadapt.cli.output.console import set_quiet, show_details, write_message

    quiet, verbose = ctx.params["quiet"], ctx.params["verbose"]
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other", "leave out one of them")
    set_quiet(quiet)
    if not verbose:
        return
    show_details()
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
