"""From shared options to a session."""

from pathlib import Path

from greenadapt.cli.options.command_line import GIVEN
from greenadapt.cli.output.console import make_progress
from greenadapt.errors import UsageError
from greenadapt.fields import parse_bytes
from greenadapt.stages.session import Session
from greenadapt.storage.workspace import Workspace
from greenadapt.workers import usable_cores


def make_session(
    workspace: Path | None,
    *,
    out: Path | None = None,
    variant: str | None = None,
    force: bool = False,
    download: bool = False,
    workers: int | None = None,
    max_memory: str = "4G",
) -> Session:
    """What the stages of one command share; raises ``UsageError`` for no workers at all."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}, must be at least 1")
    return Session(
        Workspace.find(workspace),
        make_progress(),
        out=out,
        variant=variant,
        force=force,
        download=download,
        workers=workers or usable_cores(),
        max_memory=parse_bytes(max_memory),
        command=GIVEN.get(),
    )
