"""``greenadapt.adapt``."""

from os import PathLike, fspath
from typing import Any

from greenadapt.api.arguments import OF_COMMANDS, Arguments, Configs, make_session
from greenadapt.api.data import Data, corpus_of, is_named
from greenadapt.api.models import AdaptedModel, EncoderModel, folder_of
from greenadapt.config import AlignConfig, ExpandConfig, SessionOptions, TextOptions, W2VConfig
from greenadapt.corpus.recipes import may_have_fields
from greenadapt.errors import UsageError
from greenadapt.fields import checked_call
from greenadapt.progress import Progress
from greenadapt.storage.results import reading


@checked_call
def adapt(
    corpus: Data,
    model: str | PathLike[str] | EncoderModel | None = None,
    *,
    update: bool = False,
    progress: bool | Progress = True,
    **settings: Any,
) -> AdaptedModel:
    """Adapt a pretrained model to text: train word vectors, map them into its embedding, add rows for new words.

    It is ``greenadapt adapt``, and writes the same files. A second call with the same text and settings finds the
    result; a stopped one goes on where it was.

    Args:
        corpus: The path of a file or folder, the name of a corpus (``greenadapt corpus list``), a recipe; or texts,
            records with a field ``text`` (or ``field="abstract"``), a ``datasets.Dataset`` or a data frame, which are
            kept in the workspace. A string with a line break is a text.
        model: The model: a folder, a hub id, ``"minilm"`` or ``"mpnet"``; by default the only one used so far.
        update: Whether to add only the documents that are new to what an earlier call made.
        progress: Whether to show notes and bars on stderr, or where to. Without, warnings are Python's own.
        settings: The options of ``greenadapt adapt`` with underscores, such as ``out="adapted"``, ``workspace="work"``,
            ``rows="form"``, ``epochs=10``, ``max_words=20000``, ``min_count=3``, ``workers=1``, ``max_memory="8G"``.

    Returns:
        The adapted model, in the folder ``out``, or in the workspace.

    Raises:
        UsageError: For an argument that is not known, or a value that is not allowed.
        MissingError: If the corpus or the model is not there.
        InputError: If the text is broken.
        ConflictError: If there is a result of other settings; ``force=True`` replaces it, ``variant="b"`` keeps both.

    Examples:
        >>> adapted = greenadapt.adapt("papers.txt", model="bert-base-uncased", out="adapted")
        >>> adapted.alignment.precision_at_10
        0.41
    """
    configs: Configs = {
        W2VConfig: (),
        AlignConfig: (),
        ExpandConfig: ("min_count",),
        TextOptions: (),
        SessionOptions: OF_COMMANDS,
    }
    own = {"corpus": corpus, "model": model, "update": update, "progress": progress}
    given = Arguments("adapt", settings, configs, own)
    if update and not is_named(corpus):
        raise UsageError("update finds a corpus by its path, and that of texts is their content", "give a file")
    align, expand, text = (given.make(config) for config in (AlignConfig, ExpandConfig, TextOptions))
    if text.fields and is_named(corpus) and not may_have_fields(fspath(corpus), text.format):
        raise UsageError(f"field is for JSON lines and tables, and {fspath(corpus)} is neither", "leave it out")
    session = make_session(given.make(SessionOptions), progress)
    w2v = given.make(W2VConfig, workers=session.workers)

    from greenadapt.stages.adapt import AdaptRequest
    from greenadapt.stages.adapt import adapt as stage

    start = None if model is None else folder_of(model)
    request = AdaptRequest(w2v, align, expand, text, update, given.named(W2VConfig))
    name = corpus_of(corpus, session.workspace.root)
    read = {"corpus": name if is_named(corpus) else None, "model": start}
    with reading({argument: path for argument, path in read.items() if path is not None}):
        return AdaptedModel(stage(session, name, start, request)[-1].path)
