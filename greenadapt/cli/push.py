"""``greenadapt push``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import examples, option

Folder = Annotated[Path, typer.Argument(help="The folder of a model: adapted, pre-trained or fine-tuned.")]
Repo = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository on the hub; created if it is new.")]
Private = Annotated[bool, option("--private", "Create a new repository as a private one.")]


@app.command(epilog=examples("push adapted me/minilm-papers --private", "push runs/ner me/diseases"))
def push(*, folder: Folder, repo: Repo, private: Private = False, as_json: o.AsJson = False) -> None:
    """Upload a model to the Hugging Face hub.

    Needs a token: hf auth login, or HF_TOKEN. The manifest (it names files of this machine), predictions and logits of
    test sets, and hidden files stay here. The card, README.md, names the commands that made the model: read it first.
    hf upload has more options.
    """
    from greenadapt.cli.output.console import is_quiet, make_progress, print_json, print_lines
    from greenadapt.stages.push import push as upload

    commit = upload(folder, repo, make_progress(), private=private, shows_bars=sys.stderr.isatty() and not is_quiet())
    if as_json:
        print_json(commit)
    else:
        print_lines([commit["url"]])
