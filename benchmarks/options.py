"""Every option of every command, one a line, to compare two versions of the command line.

python benchmarks/options.py > before.txt
python benchmarks/options.py | diff before.txt -
"""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from greenadapt.cli import app


def lines(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """``command --option/-o default=VALUE`` for each parameter of a command and of those below it."""
    for parameter in command.params:
        names = "/".join([*parameter.opts, *parameter.secondary_opts])
        yield f"{' '.join(path)} {names} default={parameter.default!r}"
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from lines(below, (*path, name))


if __name__ == "__main__":
    print(*lines(get_command(app)), sep="\n")
