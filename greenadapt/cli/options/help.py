"""How parameters look in the help: the names of options and types leave the text enough of 80 columns."""

from copy import copy
from typing import Any

_WIDEST_CHOICES = 12  # characters, with "|" between


def as_shown(command: Any, ctx: Any) -> Any:
    """A copy of ``command`` for its help."""
    shown = copy(command)
    shown.params = [_parameter(parameter) for parameter in command.get_params(ctx)]
    shown.add_help_option = False  # it is among them
    return shown


def _parameter(parameter: Any) -> Any:
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
