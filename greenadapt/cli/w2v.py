"""``greenadapt w2v``."""

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.config import W2VConfig as Default


@app.command()
def w2v(
    corpus: o.Corpus = None,
    model: o.Model = None,
    dim: o.Dim = Default.dim,
    window: o.Window = Default.window,
    negative: o.Negative = Default.negative,
    sample: o.Sample = Default.sample,
    ns_exponent: o.NsExponent = Default.ns_exponent,
    min_count: o.MinCount = Default.min_count,
    max_vocab: o.MaxVocab = Default.max_vocab,
    epochs: o.Epochs = Default.epochs,
    alpha: o.Alpha = Default.alpha,
    min_alpha: o.MinAlpha = Default.min_alpha,
    cbow_mean: o.CbowMean = Default.cbow_mean,
    shrink_windows: o.ShrinkWindows = Default.shrink_windows,
    engine: o.Engine = Default.engine,
    gradient: o.GradientOption = Default.gradient,
    seed: o.Seed = Default.seed,
    format: o.Format = None,  # noqa: A002
    field: o.Field = None,
    keep_duplicates: o.KeepDuplicates = None,
    strict: o.Strict = None,
    heldout: o.Heldout = None,
    max_document_bytes: o.MaxDocumentBytes = None,
    max_word_chars: o.MaxWordChars = None,
    workspace: o.WorkspaceFolder = None,
    out: o.Out = None,
    variant: o.Variant = None,
    force: o.Force = False,
    download: o.Download = False,
    workers: o.Workers = None,
    max_memory: o.MaxMemory = "4G",
    as_json: o.AsJson = False,
) -> None:
    """Train CBOW word vectors on a corpus, split into words as the model's tokenizer splits."""
    from greenadapt.cli.options.session import make_session, text_options
    from greenadapt.cli.output.results import print_results
    from greenadapt.stages import w2v as stage

    session = make_session(
        workspace, out=out, variant=variant, force=force, download=download, workers=workers, max_memory=max_memory
    )
    config = Default(
        dim=dim,
        window=window,
        negative=negative,
        sample=sample,
        ns_exponent=ns_exponent,
        min_count=min_count,
        max_vocab=max_vocab,
        epochs=epochs,
        alpha=alpha,
        min_alpha=min_alpha,
        cbow_mean=cbow_mean,
        shrink_windows=shrink_windows,
        engine=engine,
        gradient=gradient,
        seed=seed,
        workers=session.workers,
    )
    text = text_options(format, field, keep_duplicates, strict, heldout, max_document_bytes, max_word_chars)
    print_results([stage.w2v(session, corpus, model, config, text)], as_json)
