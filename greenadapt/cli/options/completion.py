"""What the shell offers for the values of options: corpora, models and variants. Fast, and silent about errors."""

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from greenadapt.storage.files import expanded, own_folder

if TYPE_CHECKING:
    from greenadapt.storage.workspace import Workspace

_MOST = 200  # folders that are offered
Completer = Callable[[typer.Context, str], list[str]]


def _silent(find: Callable[[typer.Context, str], Iterable[str]]) -> Completer:
    @wraps(find)
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in find(ctx, incomplete) if name.startswith(incomplete)})
        except Exception:  # a traceback would end up in the command that is being typed
            return []

    return complete


@_silent
def corpora(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Named corpora, and those in the workspace."""
    named = [path.stem for path in own_folder("corpora").glob("*.toml")]
    workspace = _workspace(ctx)
    return [*named, *(name for name in workspace.corpora() if workspace.models(name))]


@_silent
def experiments(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The experiments that come with greenadapt."""
    return [path.stem for path in own_folder("experiments").glob("*.toml")]


@_silent
def models(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Models in packages, and folders of models and results below the folder that is being typed."""
    from greenadapt.checkpoints.source import PACKAGED

    typed = incomplete[: incomplete.rfind("/") + 1]
    parent = expanded(typed)
    found = []
    for depth in ("*", "*/*"):
        for file in ("config.json", "manifest.json"):
            found += [f"{typed}{path.parent.relative_to(parent)}" for path in parent.glob(f"{depth}/{file}")]
    return [*PACKAGED, *(name for name in found[:_MOST] if not name.removeprefix(typed).startswith("."))]


@_silent
def variants(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Names of variants in the workspace, of the corpus that is given or of all."""
    workspace = _workspace(ctx)
    given = ctx.params.get("corpus")
    for corpus in [given] if given in workspace.corpora() else workspace.corpora():
        for model in workspace.models(corpus):
            yield from (name.split("@")[1] for name in workspace.stages(corpus, model) if "@" in name)


@_silent
def commands(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The commands of the application."""
    return ctx.find_root().command.commands  # type: ignore[attr-defined, no-any-return]


_OF_OPTIONS: dict[str, Completer] = {
    "--corpus": corpora,
    "--variant": variants,
    **dict.fromkeys(("--model", "--with", "--base", "--compare", "--reference", "--memory"), models),
}


def complete_option(option: Any) -> None:
    """Give a typer option that is named as one above what completes it."""
    # In an annotation, typer keeps the first name as the default.
    for name in (getattr(option, "default", None), *(getattr(option, "param_decls", None) or ())):
        if isinstance(name, str) and name in _OF_OPTIONS:
            option.autocompletion = _OF_OPTIONS[name]


def read_for_completion(command: Any, ctx: Any, args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
    """The options and arguments as text, since checking their types would take as long as all the rest."""
    parser = command.make_parser(ctx)
    ctx._opt_prefixes.update(parser._opt_prefixes)
    found: tuple[dict[str, Any], list[str], list[Any]] = parser.parse_args(args=list(args))
    return found


def _workspace(ctx: typer.Context) -> "Workspace":
    from greenadapt.storage.workspace import Workspace

    given = ctx.params.get("workspace")
    return Workspace.find(Path(given) if given else None)
