"""``greenadapt export``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import shared as o

File = Annotated[
    Path, typer.Argument(help="The file to write: .bin, .vec or .txt, with .gz if wanted.", show_default=False)
]
Vectors = Annotated[
    Path | None, typer.Option("--vectors", help="Vectors by path, instead of a corpus's.", show_default=False)
]


@app.command()
def export(
    file: File,
    corpus: o.CorpusOfResults = None,
    model: o.Model = None,
    vectors: Vectors = None,
    workspace: o.WorkspaceFolder = None,
    variant: o.VariantOfResults = None,
    as_json: o.AsJson = False,
) -> None:
    """Write word vectors in a format that word2vec, gensim and fastText read."""
    from greenadapt.cli.options.session import make_session
    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.stages import export as stage

    facts = stage.export_vectors(make_session(workspace, variant=variant), file, corpus, model, vectors)
    if as_json:
        print_json(facts)
    else:
        print_lines([f"{facts['words']:,} vectors of {facts['dim']} dimensions\n  {facts['file']}"])
