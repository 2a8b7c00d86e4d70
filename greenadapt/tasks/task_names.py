"""What tasks and their sets of examples may be called, and how they are told."""

import re

TASK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""Of a task, whose name is that of a folder, and of a set of examples."""
TASK_NAME_RULE = "use letters, digits and _, and - and . but for the first character, 100 at most"


def set_label(kind: str, name: str) -> str:
    """How the set ``name`` of ``kind`` (``dev`` or ``test``) is told: the only one of its kind has the kind's name."""
    return kind if kind == name else f"{kind} {name}"
