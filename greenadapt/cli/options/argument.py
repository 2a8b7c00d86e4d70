"""The corpus as a command's argument: ``adapt papers.txt`` is ``adapt --corpus papers.txt``.

Once the command line is read there is only the option: in settings, messages and manifests.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_args

import typer

from greenadapt.cli.options.completion import corpora
from greenadapt.errors import UsageError

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
