"""``greenadapt push``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import basic, examples

Folder = Annotated[Path, typer.Argument(help="The folder of a model: adapted, pre-trained or fine-tuned.")]
Repo = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository on the hub; created if it is new.")]
Private = Annotated[bool, basic("--private", "Create a new repository as a private one.")]
DryRun = Annotated[bool, basic("--dry-run", "List what would be uploaded, and do not connect.")]


@app.command(epilog=examples("push adapted me/minilm-papers --private", "push runs/ner me/diseases --dry-run"))
def push(
    *,
    folder: Folder,
    repo: Repo,
    private: Private = False,
    dry_run: DryRun = False,
    as_json: o.AsJson = False,
) -> None:
    """Upload a model to the Hugging Face hub.

    Needs a token: hf auth login, or HF_TOKEN. The manifest (it names files of this machine), predictions and logits of
    test sets, hidden files and symlinks stay here. The card, README.md, names the commands that made the model: read it
    first. hf upload has more options.
    """
    from greenadapt.cli.output.console import is_quiet, make_progress, print_json, print_lines, print_table
    from greenadapt.stages import push as stage

    request = stage.PushRequest(folder, repo, private, dry_run)
    with stage.hidden_bars(is_quiet() or not sys.stderr.isatty()):
        upload = stage.push(request, make_progress())
    if as_json:
        print_json(upload)
        return
    if dry_run:
        rows = [[file["path"], f"{file['bytes']:,}"] for file in upload["files"]]
        print_table(f"Would be uploaded to {repo}:", ["file", "bytes"], rows)
        return
    is_private = "" if upload["private"] is None else f" ({'private' if upload['private'] else 'public'})"
    print_lines([f"{len(upload['files'])} files in {repo}{is_private}", f"  {upload['url']}"])
