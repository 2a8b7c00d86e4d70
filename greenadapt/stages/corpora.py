"""The list of corpora, named ones and those in the workspace, and the facts of one."""

from dataclasses import asdict
from pathlib import Path

from greenadapt.corpus.download import REQUESTS_PER_ARTICLE, is_fetched
from greenadapt.corpus.readers import require_local
from greenadapt.corpus.recipes import PMC, Recipe, find_recipe, list_recipes
from greenadapt.errors import GreenadaptError, byte_size
from greenadapt.stages.session import CORPUS, Session
from greenadapt.storage.files import Json

BYTES_PER_SECOND = 10_000_000
"""The speed of a download for which ``corpus list`` tells the hours."""


def list_corpora(session: Session) -> list[Json]:
    """The named corpora, then the others in the workspace; some of the keys of ``show_corpus``."""
    recipes = list_recipes()
    rows = [_row(session, recipe) for recipe in recipes]
    named = {recipe.name for recipe in recipes}
    others = [name for name in session.workspace.corpora() if name not in named and session.workspace.models(name)]
    return rows + [_known(session, name) for name in others]


def show_corpus(session: Session, name: str) -> Json:
    """``name``, ``title``, ``licence``, ``network``, ``models``, ``stated``, ``download``, ``format``, ``fields``,
    ``about``, ``sources``.

    ``stated`` is the size according to the recipe, ``download`` its ``hours`` ``at`` a speed; both are None if unknown.
    ``network`` is ``no``, ``yes``, ``fetched``, or ``missing`` if a local source does not exist; ``models`` lists the
    models that have results in the workspace.
    """
    if name in session.workspace.corpora() and name not in {recipe.name for recipe in list_recipes()}:
        return _known(session, name)
    recipe = find_recipe(name)
    return {
        **_row(session, recipe),
        "format": recipe.format,
        "fields": list(recipe.fields),
        "about": recipe.about,
        "sources": [source.url for source in recipe.sources] or ["the Python packages installed beside greenadapt"],
    }


def _row(session: Session, recipe: Recipe) -> Json:
    fetched = is_fetched(recipe, session.workspace.downloads(recipe.name))
    return {
        "name": recipe.name,
        "title": recipe.title,
        "licence": recipe.licence,
        "network": _network(recipe, fetched),
        "models": session.workspace.models(recipe.name),
        "stated": recipe.stated and {**asdict(recipe.stated), "on": recipe.stated.on.isoformat()},
        "download": download_time(recipe),
    }


def download_time(recipe: Recipe) -> Json | None:
    """The hours of the download ``at`` a speed, from what is stated; ``None`` if that is too little."""
    stated = recipe.stated
    if stated is None:
        return None
    source = next((source for source in recipe.sources if source.index == PMC), None)
    if source and stated.documents is not None:
        seconds = REQUESTS_PER_ARTICLE * stated.documents * source.share / source.rate
        return {"hours": round(seconds / 3600, 1), "at": f"{source.rate:g} requests/s"}
    if stated.bytes is None:
        return None
    return {
        "hours": round(stated.bytes / BYTES_PER_SECOND / 3600, 1),
        "at": f"{byte_size(BYTES_PER_SECOND)}/s",
    }


def _network(recipe: Recipe, fetched: bool) -> str:
    try:
        require_local(recipe)
    except GreenadaptError:
        return "missing"
    return "no" if recipe.is_local else "fetched" if fetched else "yes"


def _known(session: Session, name: str) -> Json:
    """A corpus that only the workspace knows, from its newest result."""
    models = session.workspace.models(name)
    row: Json = {"name": name, "title": name, "licence": "unknown", "network": "no", "models": models}
    row |= {"stated": None, "download": None}
    for model in models:
        for result in session.workspace.results(name, model):
            facts = result.manifest.facts  # those of a fine-tuned model lack the corpus
            row |= {key: facts[key] for key in ("title", "licence") if key in facts}
            if result.manifest.stage == CORPUS:
                row["sources"] = sources = list(result.manifest.inputs["text"]["sources"])
                if any(Path(source).is_absolute() and not Path(source).exists() for source in sources):
                    row["network"] = "missing"
    return row
