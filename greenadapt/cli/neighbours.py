"""``greenadapt neighbours``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import SessionOptions
from greenadapt.errors import UsageError

Words = Annotated[list[str], typer.Argument(help="Words, as the model's tokenizer splits them.")]
Top = Annotated[int, option("--top", "Number of neighbours of each word.")]


@app.command(epilog=examples("neighbours --model adapted tuple generator", "neighbours --corpus pydocs tuple"))
def neighbours(
    *,
    words: Words,
    corpus: o.CorpusOfResults = None,
    model: o.Model = None,
    top: Top = 5,
    options: Annotated[SessionOptions, Pick("workspace")],
    as_json: o.AsJson = False,
) -> None:
    """Show the nearest neighbours of words.

    They are the added words and wordpieces whose rows in the adapted model are nearest, and the neighbours of the
    word vectors.
    """
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.printing import print_neighbours
    from greenadapt.stages import neighbours as stage

    if (corpus, model) == (None, None) and Path(words[0]).is_dir():
        raise UsageError(f"{words[0]} is a folder, not a word", f"give the model with --model {words[0]}")
    rows = stage.neighbours(o.make_session(options), corpus, model, words, top)
    if as_json:
        for row in rows:
            nearest = [{"word": word, "cosine": round(cosine, 4)} for word, cosine in row.neighbours]
            print_json({"word": row.word, "view": row.view, "neighbours": nearest, "count": row.count})
        return
    print_neighbours(rows)
