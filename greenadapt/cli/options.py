"""The options of commands: generated from configuration classes, shared, and as the help shows them."""

import io
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import MISSING, replace
from functools import partial, wraps
from inspect import Parameter, signature
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from greenadapt import config
from greenadapt.cli.settings import complete_option, corpora, used_settings
from greenadapt.config import Panel, SessionOptions
from greenadapt.errors import UsageError
from greenadapt.fields import Checked, Field, option_fields, without_ranges
from greenadapt.progress import limit_time
from greenadapt.stages.plan import DryRun, Plan
from greenadapt.storage.files import short
from greenadapt.workers import launched_processes

if TYPE_CHECKING:
    from greenadapt.stages.plan import Plan
    from greenadapt.stages.session import Session


_QUIET = "Print only results, warnings and errors."
_VERBOSE = "Also print what is read, which results are used and why a stage runs, on stderr."
_LOG_FORMAT = "Messages on stderr as text, or as one JSON object a line."
_CONFIG = "File (.toml) that sets options [default: $GREENADAPT_CONFIG, else no file]."
LogFormat = Literal["text", "json"]

FIELDS = "option_fields"
"""Attribute of a command's function: parameter → field."""


class Pick:
    """Which fields of a configuration a command takes, and defaults of this command."""

    def __init__(self, *only: str, without: tuple[str, ...] = (), **defaults: Any) -> None:
        self.only, self.without, self.defaults = only, without, defaults

    def fields(self, config: type) -> list[Field]:
        """The chosen fields."""
        known = option_fields(config)
        return [known[name] for name in self.only or known if name not in self.without]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with options in place of each parameter that is a configuration.

    The command gets the configuration, checked, or for ``Callable[..., Config]`` a function that makes it. Two
    configurations with an option of the same name share it.
    """
    shown: dict[str, Parameter] = {}
    own: list[str] = []
    made: dict[str, tuple[Any, bool, list[Field]]] = {}
    for name, parameter in signature(command).parameters.items():
        kind, is_called, pick = _configuration(parameter.annotation)
        if kind is None:
            shown[name] = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            own.append(name)
            continue
        picked = pick.fields(kind)
        made[name] = kind, is_called, picked
        for field in picked:
            shown.setdefault(field.parameter, _parameter(field, pick.defaults.get(field.name, field.default)))
    if not made:
        return command

    @wraps(command)
    def run(**values: Any) -> None:
        taken = {name: values[name] for name in own}
        for name, (kind, is_called, picked) in made.items():
            make = partial(kind, **_chosen(picked, values))
            taken[name] = make if is_called else make()
        command(**taken)

    run.__signature__ = signature(command).replace(parameters=[*shown.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    setattr(run, FIELDS, {field.parameter: field for _, _, picked in made.values() for field in picked})
    return run


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with the options that every command has, which ``start_output`` acts on.

    ``-q`` is left out where the command has another option of this name.
    """
    own = signature(command)
    taken = {name for parameter in own.parameters.values() for name in _names(parameter)}
    kinds: dict[str, tuple[Any, Any]] = {
        "quiet": (bool, _common("--quiet", *{"-q"} - taken, help=_QUIET)),
        "verbose": (bool, _common("--verbose", "-v", help=_VERBOSE)),
        "log_format": (LogFormat, _common("--log-format", help=_LOG_FORMAT)),
        "config": (Path | None, _common("--config", help=_CONFIG)),
    }
    defaults = {"quiet": False, "verbose": False, "log_format": "text", "config": None}

    @wraps(command)
    def run(**options: Any) -> None:
        own = {name: value for name, value in options.items() if name not in kinds}
        if options.get("dry_run") and "dry_run" in getattr(command, FIELDS, {}):  # of the session
            with steps_printed(as_json=options.get("as_json", False)):
                command(**own)
        else:
            command(**own)

    common = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=Annotated[kind, option])
        for name, (kind, option) in kinds.items()
    ]
    for parameter in own.parameters.values():
        for mark in get_args(parameter.annotation)[1:]:
            complete_option(mark)
    shown = sorted([*own.parameters.values(), *common], key=_is_advanced)  # so that their panel is the last
    run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _common(*names: str, help: str) -> Any:  # noqa: A002  (typer's name)
    return typer.Option(*names, help=help, rich_help_panel=Panel.OUTPUT)


def names_of(*configs: type) -> dict[str, str]:
    """Parameters of all options of the configurations → the options."""
    return {field.parameter: field.option_name for config in configs for field in option_fields(config).values()}


def examples(*commands: str) -> str:
    """Commands of greenadapt, as they are shown below the help."""
    return "\n\n".join(["Examples:", *(f"- `greenadapt {command}`" for command in commands)])


def _configuration(annotation: Any) -> tuple[Any, bool, Pick]:
    """The configuration class that a parameter is annotated with, whether it wants a function that makes it, and how
    much of it.
    """
    pick = Pick()
    if get_origin(annotation) is Annotated:
        annotation, *marks = get_args(annotation)
        pick = next((mark for mark in marks if isinstance(mark, Pick)), pick)
    is_called = get_origin(annotation) is Callable
    if is_called:
        annotation = get_args(annotation)[-1]
    is_config = isinstance(annotation, type) and issubclass(annotation, Checked)
    return annotation if is_config else None, is_called, pick


def _parameter(field: Field, default: Any) -> Parameter:
    """The field as typer takes it."""
    option, kind = field.option, without_ranges(field.kind)
    unset = option.unset
    if option.parse is not None:
        kind, default = str, option.shown
    elif option.negated:
        default = not default
    elif get_origin(kind) is tuple:
        unset = unset or ", ".join(default)
        kind, default = list[Path] if option.is_path else list[str], None
    if default is None:
        kind = kind | None
    elif default is MISSING:
        default = Parameter.empty
    details = [("paper", option.paper), ("default", unset)]
    text = " ".join([option.help, *(f"[{name}: {value}]" for name, value in details if value)])
    shown = typer.Option(
        *field.names,
        help=text,
        show_default=default not in (None, Parameter.empty),
        rich_help_panel=option.panel,
    )
    return Parameter(field.parameter, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


def _chosen(picked: list[Field], values: dict[str, Any]) -> dict[str, Any]:
    """What the user chose, as values of fields; what an option leaves open stays at the field's default."""
    chosen = {}
    for field in picked:
        value = values[field.parameter]
        if field.option.negated:
            value = not value
        elif field.option.parse is not None:
            value = field.default if value is None else field.option.parse(value, field.option_name)
        elif isinstance(field.default, tuple):
            value = tuple(map(str, value or field.default))
        chosen[field.name] = value
    return chosen


def _is_advanced(parameter: Parameter) -> bool:
    marks = get_args(parameter.annotation)[1:]
    return any(getattr(mark, "rich_help_panel", None) == Panel.ADVANCED for mark in marks)


def _names(parameter: Parameter) -> list[str]:
    """The options that a parameter is given by."""
    return [name for info in get_args(parameter.annotation)[1:] for name in getattr(info, "param_decls", None) or ()]


_WIDEST_CHOICES = 12  # characters, with "|" between


def as_shown(command: Any, ctx: Any) -> Any:
    """A copy of ``command`` for its help."""
    shown = copy(command)
    shown.params = [_help_parameter(parameter) for parameter in command.get_params(ctx)]
    shown.add_help_option = False  # it is among them
    return shown


def _help_parameter(parameter: Any) -> Any:
    """Without the type of a flag and the column of its opposite, and with many choices in the text."""
    shown, kind = copy(parameter), parameter.type_descriptor
    choices = [str(getattr(choice, "value", choice)) for choice in kind.choices or ()]
    if getattr(shown, "is_flag", False):
        shown.metavar = ""
        if shown.secondary_opts:
            shown.help = _with_sentence(shown.help, f"The opposite is {' or '.join(shown.secondary_opts)}.")
            if shown.default is not None and shown.show_default:
                usual = shown.opts if shown.default else shown.secondary_opts
                shown.help += f" [default: {usual[0].removeprefix('--')}]"
            shown.secondary_opts, shown.show_default = [], False
    elif shown.metavar is None and len("|".join(choices)) > _WIDEST_CHOICES:
        shown.metavar = "<name>"
        shown.help = _with_sentence(shown.help, f"One of {', '.join(choices)}.")
    elif shown.metavar is None and kind.is_list and not choices:
        shown.metavar = parameter.display_type(None).replace("list[", "").replace("]", "").replace("Path", "path")
    return shown


def _with_sentence(text: str, sentence: str) -> str:
    """``text`` with another sentence before its notes in brackets."""
    sentences, bracket, notes = text.partition(" [")
    return f"{sentences.removesuffix('.')}. {sentence}{bracket}{notes.removesuffix('.')}"


GIVEN: ContextVar[str | None] = ContextVar("given", default=None)
"""The command that is running."""
_WORDS: ContextVar[Mapping[str, list[str]]] = ContextVar("words")
"""Its words by parameter; those of its name are at ""."""
PLAN: ContextVar["Plan | None"] = ContextVar("plan", default=None)
"""The plan of a dry run."""
_LEFT_OUT = {"workspace", "force", "as_json", "quiet", "verbose", "log_format", "config", "max_time", "nice"}


def remember(ctx: Any, values: Mapping[str, Any], order: Iterable[Any]) -> None:
    """Keep the command of ``ctx`` in ``GIVEN``: ``values`` by name of its parameters, in the ``order`` given.

    Values that are set in a file or in the environment belong to it: typed elsewhere, it makes the same result.
    """
    options: dict[str, list[str]] = {}
    arguments: dict[str, list[str]] = {}
    for parameter in dict.fromkeys(order):
        value = values.get(parameter.name)
        if parameter.name in _LEFT_OUT | {"out"} or value is None:
            continue
        each = [_shown(str(item)) for item in (value if isinstance(value, list | tuple) else [value])]
        if parameter.param_type_name == "argument":
            arguments[parameter.name] = each
        elif getattr(parameter, "is_flag", False):
            flag = parameter.opts if value else parameter.secondary_opts
            options[parameter.name] = [_long(flag)] if flag else []
        else:
            options[parameter.name] = [word for item in each for word in (_long(parameter.opts), item)]
    out = {"out": ["--out", "FOLDER"]} if values.get("out") is not None else {}
    _keep({"": command_words(ctx), **arguments, **options, **out})


def forget(names: Iterable[str]) -> None:
    """Leave parameters out of ``GIVEN``."""
    left_out = set(names)
    _keep({name: words for name, words in _WORDS.get().items() if name not in left_out})


def command_words(ctx: Any) -> list[str]:
    """The words that call the command of ``ctx``, such as ``corpus`` and ``prepare``."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.info_name)
        ctx = ctx.parent
    return words


def _keep(words: Mapping[str, list[str]]) -> None:
    _WORDS.set(words)
    GIVEN.set(shlex.join(["greenadapt", *chain.from_iterable(words.values())]))


def _shown(value: str) -> str:
    with suppress(OSError, RuntimeError):  # too long for a file's name, or the home of an unknown user
        value = short(value)
    return value.encode("utf-8", "replace").decode("utf-8")  # as JSON takes it


def _long(options: list[str]) -> str:
    return next((option for option in options if option.startswith("--")), options[0])


@contextmanager
def steps_printed(as_json: bool) -> Iterator[None]:
    """Run the block's command dry, and print its steps in place of what it prints."""
    plan = Plan()
    token = PLAN.set(plan)
    try:
        with redirect_stdout(io.StringIO()), suppress(DryRun):
            yield
    finally:
        PLAN.reset(token)
    if launched_processes()[0] == 0:  # of several, the first process prints
        from greenadapt.cli.output.printing import print_plan  # imports numpy

        print_plan(plan.steps, as_json)


_OPTION, _ARGUMENT = "corpus", "corpus_argument"
"""The parameters."""


class AsArgument:
    """Marks --corpus of a command that also takes the corpus as its argument."""


def with_argument(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with the corpus as an argument, too, if its --corpus is marked ``AsArgument``."""
    own = signature(command)
    option = own.parameters.get(_OPTION)
    if option is None or not any(isinstance(mark, AsArgument) for mark in get_args(option.annotation)):
        return command

    @wraps(command)
    def run(**values: Any) -> None:
        del values[_ARGUMENT]
        command(**values)

    shown = typer.Argument(metavar="CORPUS", help="The same as --corpus.", autocompletion=corpora)
    argument = Parameter(_ARGUMENT, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, shown])
    run.__signature__ = own.replace(parameters=[argument, *own.parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {_ARGUMENT: argument.annotation, **command.__annotations__}
    return run


def read_argument(command: Any, given: dict[str, Any], order: list[Any]) -> list[Any]:
    """Count the argument among the values ``given`` as --corpus, and in the ``order`` of parameters that is returned.

    Raises ``UsageError`` if both are given.
    """
    value = given.pop(_ARGUMENT, None)
    if value is None:
        return order
    if (other := given.get(_OPTION)) is not None:
        raise UsageError(f"two corpora are given, {value} and --corpus {other}", "leave out one of them")
    given[_OPTION] = value
    [option] = [parameter for parameter in command.params if parameter.name == _OPTION]
    return [option if parameter.name == _ARGUMENT else parameter for parameter in order]


def keep_argument(ctx: Any) -> None:
    """Give --corpus of ``ctx`` the value of the argument, if that is given."""
    if (value := ctx.params.pop(_ARGUMENT, None)) is not None:
        ctx.params[_OPTION] = value
        ctx.set_parameter_source(_OPTION, ctx.get_parameter_source(_ARGUMENT))


Corpus = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="A named corpus (see greenadapt corpus list), a recipe (.toml), a text file, or - for standard input.",
    ),
    AsArgument(),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A model folder, a hub id, minilm or mpnet [default: the only one used so far].",
    ),
]
SampleBy = Annotated[
    config.SampleBy | None,
    typer.Option("--sample-by", help=f"{config.SAMPLE_BY.help[:-1]} [default: line; all of the file for --context]."),
]
CorpusOfResults = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="The corpus whose results in the workspace to use, by name or file [default: the only one].",
    ),
]
AdaptedTo = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="Train the model in the workspace that was adapted to this corpus; no text is read from it.",
    ),
]
Trained = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="The model to train: a folder, adapted or not, a hub id, minilm or mpnet; with --corpus, the base of the "
        "adapted model [default: the only one].",
    ),
]
VariantOfResults = Annotated[
    str | None,
    typer.Option("--variant", help="Use the results stored under this name, if any.", rich_help_panel=Panel.RESULTS),
]
AlignmentPath = Annotated[
    Path | None, typer.Option("--alignment", help="Path of an align result, instead of a corpus.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="A general model whose states the trained model sees: a folder, a hub id, or base for the model that "
        "--model was adapted from.",
        rich_help_panel=Panel.MEMORY,
    ),
]


def start_output(ctx: typer.Context) -> None:
    """Print as --quiet and --verbose say from now on, with --verbose first what is set where."""
    from greenadapt.cli.output.console import set_output, show_details, write_message

    quiet, verbose = ctx.params["quiet"], ctx.params["verbose"]
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other", "leave out one of them")
    set_output(quiet=quiet)
    if not verbose:
        return
    show_details()
    from greenadapt import __version__

    write_message("debug", f"greenadapt {__version__}: {GIVEN.get()}")
    for setting in used_settings(ctx).values():
        value = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
        write_message("debug", f"set {setting.place}: {value}")


def make_session(options: SessionOptions, **own: Any) -> "Session":
    """What the stages of one command share; ``own`` are fields that this command has as options of its own."""
    from greenadapt.cli.output.console import make_progress
    from greenadapt.stages.session import Session
    from greenadapt.workers import launched_processes

    options = replace(options, **own)
    if options.nice:
        os.nice(options.nice)
    if options.max_time is not None:
        limit_time(options.max_time, is_alone=launched_processes()[1] == 1)
    return Session.of(options, make_progress(), command=GIVEN.get(), plan=PLAN.get())
