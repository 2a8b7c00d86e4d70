"""``greenadapt adapt``."""

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.config import AlignConfig, ExpandConfig, W2VConfig


@app.command()
def adapt(
    corpus: o.Corpus = None,
    model: o.Model = None,
    dim: o.Dim = W2VConfig.dim,
    window: o.Window = W2VConfig.window,
    negative: o.Negative = W2VConfig.negative,
    sample: o.Sample = W2VConfig.sample,
    ns_exponent: o.NsExponent = W2VConfig.ns_exponent,
    min_count: o.MinCount = W2VConfig.min_count,
    max_vocab: o.MaxVocab = W2VConfig.max_vocab,
    epochs: o.Epochs = W2VConfig.epochs,
    alpha: o.Alpha = W2VConfig.alpha,
    min_alpha: o.MinAlpha = W2VConfig.min_alpha,
    cbow_mean: o.CbowMean = W2VConfig.cbow_mean,
    shrink_windows: o.ShrinkWindows = W2VConfig.shrink_windows,
    engine: o.Engine = W2VConfig.engine,
    gradient: o.GradientOption = W2VConfig.gradient,
    seed: o.Seed = W2VConfig.seed,
    method: o.Method = AlignConfig.method,
    ridge: o.Ridge = AlignConfig.ridge,
    random_scale: o.RandomScale = AlignConfig.random_scale,
    rows: o.Rows = ExpandConfig.rows,
    blend: o.Blend = ExpandConfig.blend,
    oov: o.Oov = ExpandConfig.oov,
    replace_all: o.ReplaceAll = ExpandConfig.replace_all,
    max_words: o.MaxWords = ExpandConfig.max_words,
    min_pieces: o.MinPieces = ExpandConfig.min_pieces,
    restrict_to: o.RestrictTo = None,
    dtype: o.Dtype = ExpandConfig.dtype,
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
    """Do w2v, align and expand in one: from raw text to an adapted model folder."""
    from greenadapt.cli.options.session import make_session, text_options
    from greenadapt.cli.output.results import print_results
    from greenadapt.stages import adapt as stage

    session = make_session(
        workspace, out=out, variant=variant, force=force, download=download, workers=workers, max_memory=max_memory
    )
    plan = stage.AdaptRequest(
        W2VConfig(
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
        ),
        AlignConfig(method=method, ridge=ridge, random_scale=random_scale, seed=seed),
        ExpandConfig(
            rows=rows,
            blend=blend,
            oov=oov,
            replace_all=replace_all,
            max_words=max_words,
            min_pieces=min_pieces,
            restrict_to=tuple(map(str, restrict_to or ())),
            dtype=dtype,
        ),
        text_options(format, field, keep_duplicates, strict, heldout, max_document_bytes, max_word_chars),
    )
    print_results(stage.adapt(session, corpus, model, plan), as_json)
