"""``greenadapt compile``."""

from pathlib import Path
from typing import Annotated

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import CompileConfig, SessionOptions

Model = Annotated[
    str, option("--model -m", "A folder that finetune wrote, or any extractive question answering model.")
]
OutFolder = Annotated[Path, option("--out -o", "Folder of the compiled model.")]


@app.command(epilog=examples("compile -m runs/ner --quantize int8 -o served"))
def compile(  # noqa: A001  (the command's name)
    *,
    model: Model,
    config: CompileConfig,
    options: Annotated[SessionOptions, Pick("workspace")],
    out: OutFolder,
    as_json: o.AsJson = False,
) -> None:
    """Convert a model to ONNX Runtime.

    ONNX Runtime runs the model on CPUs faster, and without torch. predict, qa and load read the folder as they read the
    model.
    """
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import compile as stage

    print_results([stage.compile_model(o.make_session(options, out=out), model, config)], as_json)
