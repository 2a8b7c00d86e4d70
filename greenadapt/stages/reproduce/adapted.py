"""Adapted models of an experiment, made by the stages of ``adapt``."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from greenadapt.config import AlignConfig, AlignMethod, ExpandConfig, TextOptions, W2VConfig
from greenadapt.stages.align import align
from greenadapt.stages.expand import expand
from greenadapt.stages.reproduce.bench import Bench
from greenadapt.stages.reproduce.recipe import Recipe
from greenadapt.stages.w2v import w2v
from greenadapt.storage.files import Json, hash_file, hash_json

_GREEDY = "-greedy"


def role_of(method: str) -> tuple[str, bool]:
    """The corpus that a method of question answering adapts to, and whether by the tokenizer of the authors' code: the
    method's name then ends in ``-greedy``.
    """
    return method.removesuffix(_GREEDY), method.endswith(_GREEDY)


def adapted_model(
    bench: Bench,
    role: str,
    dataset: str,
    texts: Sequence[str],
    method: AlignMethod | None = None,
    *,
    is_greedy: bool = False,
) -> str:
    """``base`` with those words of the corpus of ``role`` that occur in ``texts``, where it predicts what it would with
    all words; with all of them by the greedy rule, where they can be parts of other words.

    The vectors lie in the workspace like those of ``adapt``, map and model with the experiment.
    """
    recipe, base = bench.recipe, bench.model("base")
    session = replace(bench.session, out=None, variant=vectors_variant(recipe))
    config = recipe.config(W2VConfig, "w2v", workers=session.workers)
    trained = w2v(session, bench.corpus(role), base, config, TextOptions())
    fitting = recipe.config(AlignConfig, "align")
    fitting = fitting if method is None else replace(fitting, method=method)
    made: Json = {"vectors": trained.manifest.digest, "align": asdict(fitting)}
    aligned = align(bench.inner("models", f"align-{hash_json(made)[:8]}"), None, base, fitting, trained.path)
    rows = recipe.config(ExpandConfig, "expand", **({"oov": "greedy"} if is_greedy else {}))
    rows = rows if rows.oov == "greedy" else replace(rows, restrict_to=tuple(texts))
    made |= {"expand": asdict(rows), "texts": [hash_file(Path(text)) for text in texts]}
    place = bench.inner("models", f"{dataset}-{role}-{hash_json(made)[:8]}")
    return str(expand(place, None, None, rows, aligned.path).path)


def vectors_variant(recipe: Recipe) -> str | None:
    """The name of the vectors in the workspace; those of other settings than the defaults have one of their own."""
    given = recipe.table("w2v")
    return f"reproduce-{hash_json(given)[:8]}" if given else None


def write_text(lines: Sequence[str], path: Path) -> str:
    """Write a file of these texts, a line each, unless it is there."""
    content = "".join(" ".join(line.split()) + "\n" for line in lines)
    if not path.is_file() or path.read_text("utf-8") != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    return str(path)
