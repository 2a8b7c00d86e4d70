"""``--quiet``, which every command has."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_args

import typer

_HELP = "Print only results, warnings and errors."


def with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with the option ``--quiet``, and its short form unless that means something else there."""
    own = signature(command)
    taken = {name for parameter in own.parameters.values() for name in _names(parameter)}
    option = Annotated[bool, typer.Option("--quiet", *{"-q"} - taken, help=_HELP)]

    @wraps(command)
    def run(*, quiet: bool, **options: Any) -> None:
        from greenadapt.cli.output.console import be_quiet

        be_quiet(quiet)
        command(**options)

    quiet = Parameter("quiet", Parameter.KEYWORD_ONLY, default=False, annotation=option)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), quiet])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "quiet": option}
    return run


def _names(parameter: Parameter) -> list[str]:
    """The options that a parameter is given by."""
    return [name for info in get_args(parameter.annotation)[1:] for name in getattr(info, "param_decls", None) or ()]
