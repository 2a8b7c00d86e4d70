"""``greenadapt export``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.cli.settings import ignore_settings
from greenadapt.config import SessionOptions

File = Annotated[Path, typer.Argument(help="The file to write: .bin, .vec or .txt, optionally with .gz.")]
Vectors = Annotated[Path | None, option("--vectors", "Path of vectors, instead of a corpus.")]


@app.command(epilog=examples("export vectors.bin -c pydocs -m minilm", "export words.txt.gz --vectors vectors.bin"))
def export(
    ctx: typer.Context,
    *,
    file: File,
    corpus: o.CorpusOfResults = None,
    model: o.Model = None,
    vectors: Vectors = None,
    options: Annotated[SessionOptions, Pick("workspace")],
    as_json: o.AsJson = False,
) -> None:
    """Write word vectors in a format of word2vec.

    gensim and fastText read these formats, too.
    """
    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.stages import compile as stage

    if vectors is not None:
        corpus, model = ignore_settings(ctx, "corpus", "model")
    facts = stage.export_vectors(o.make_session(options), file, corpus, model, vectors)
    if as_json:
        print_json(facts)
    else:
        print_lines([f"{facts['words']:,} vectors of {facts['dim']} dimensions", f"  {facts['file']}"])
