"""From the options of a command to a session."""

from dataclasses import replace
from typing import Any

from greenadapt.cli.options.command_line import GIVEN
from greenadapt.cli.output.console import make_progress
from greenadapt.config import SessionOptions
from greenadapt.stages.session import Session
from greenadapt.storage.workspace import Workspace
from greenadapt.workers import usable_cores


def make_session(options: SessionOptions, **own: Any) -> Session:
    """What the stages of one command share; ``own`` are fields that this command has as options of its own."""
    options = replace(options, **own)
    return Session(
        Workspace.find(options.workspace),
        make_progress(),
        out=options.out,
        variant=options.variant,
        force=options.force,
        download=options.download,
        workers=options.workers or usable_cores(),
        max_memory=options.max_memory,
        command=GIVEN.get(),
    )
