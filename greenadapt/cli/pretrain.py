"""``greenadapt pretrain``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import (
    GMAP_PRETRAINING,
    MemoryConfig,
    Panel,
    PretrainConfig,
    SessionOptions,
    TextOptions,
    TrainConfig,
)

Text = Annotated[list[str], option("--text", "Text file, folder or named corpus; repeatable.", Panel.TEXT)]
GeneralText = Annotated[
    str | None,
    option("--general-text", "Text of no particular domain: the loss on it shows what the model forgets.", Panel.TEXT),
]
OutFolder = Annotated[
    Path | None, option("--out -o", "Folder of the trained model [default: runs/pretrain-MODEL-TEXT].", Panel.OUTPUT)
]


@app.command(
    epilog=examples(
        "pretrain -m adapted --text abstracts.txt",
        "pretrain -m minilm --text notes.jsonl --field body --epochs 3 -o further",
    )
)
def pretrain(
    ctx: typer.Context,
    *,
    text: Text,
    corpus: o.AdaptedTo = None,
    model: o.Trained = None,
    general_text: GeneralText = None,
    read: Annotated[TextOptions, Pick("format", "fields", "sample_by")],
    config: PretrainConfig,
    training: Annotated[TrainConfig, Pick(without=("pool", "word_vectors", "keep", "patience"), **GMAP_PRETRAINING)],
    memory: o.Memory = None,
    memory_config: MemoryConfig,
    options: Annotated[SessionOptions, Pick("workspace", "max_time", "max_tokens")],
    out: OutFolder = None,
    as_json: o.AsJson = False,
) -> None:
    """Continue masked language model training on text.

    The text is of a domain (DAPT) or of a task (TAPT).
    """
    from greenadapt.checkpoints.layout import SCORES, read_described
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.printing import describe, print_results, print_tables
    from greenadapt.report.tables import loss_tables
    from greenadapt.stages.pretrain import PretrainRequest
    from greenadapt.stages.pretrain import pretrain as train
    from greenadapt.stages.session import find_adapted
    from greenadapt.workers import launched_processes

    option_checks.refuse_field(ctx, [*text, general_text], read.format)
    session = o.make_session(options, out=out)
    request = PretrainRequest(
        model=find_adapted(session, corpus, model),
        texts=tuple(text),
        general_text=general_text,
        reading=read,
        config=config,
        training=training,
        max_tokens=options.max_tokens,
        memory=memory,
        memory_config=memory_config,
    )
    result = train(session, request)
    if launched_processes()[0] > 0:
        return  # the first process prints
    scores = read_described(result.folder / SCORES)
    if as_json:
        print_json({**describe(result), "scores": scores})
        return
    print_tables(loss_tables(scores))
    print_results([result], as_json=False)
