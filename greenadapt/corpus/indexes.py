"""Corpora whose files are found by an index: the files that a web page lists, and the articles of PMC's bucket."""

import re
from html import unescape
from pathlib import Path
from urllib.parse import quote, unquote

from greenadapt.corpus.download import download_session, fetch, get, local_path, refused, unfinished
from greenadapt.corpus.pmc import check_begun, fetch_articles
from greenadapt.corpus.recipes import Recipe
from greenadapt.corpus.sources import LISTING, Source, refuse_same_names
from greenadapt.errors import InputError
from greenadapt.progress import Progress, Silent

_LINK = re.compile(r"""href\s*=\s*["']([^"'?#]+)["']""", re.IGNORECASE)


def fetch_corpus(recipe: Recipe, folder: Path, progress: Progress | None = None) -> None:
    """Download what is missing into ``folder``: files, and for each index a folder of the files that it names.

    Such a folder is called ``NAME.part`` until it is complete; a later run goes on with it. Raises ``InputError`` and
    ``ResourceError`` as ``fetch``, ``InputError`` also if an index names no file.
    """
    progress = progress or Silent()
    fetch([source for source in recipe.sources if not source.index], folder, progress)
    for source in recipe.sources:
        target = local_path(source, folder)
        if not source.index:
            continue
        if target.exists():
            check_begun(source, target)
            continue
        work = target.with_name(f"{target.name}.part")
        work.mkdir(parents=True, exist_ok=True)
        (_fetch_listed if source.index == LISTING else fetch_articles)(source, work, progress)
        work.replace(target)


def _fetch_listed(source: Source, work: Path, progress: Progress) -> None:
    """The files that the page lists now; those of an earlier list, such as last year's, are removed."""
    with download_session() as session:
        page = get(session, source.url)
    if page is None:
        raise refused(source.url, "404 Not Found")
    links = {unquote(unescape(link)) for link in _LINK.findall(page.decode("utf-8", "replace"))}
    names = sorted(link for link in links if re.fullmatch(source.files, link) and "/" not in link)
    if not names:
        raise InputError(f"{source.url} lists no file called {source.files}", "correct files or url in the recipe")
    files = [Source(source.url + quote(name), md5_beside=source.md5_beside) for name in names]
    refuse_same_names(files, source.url)
    targets = {local_path(file, work) for file in files}
    known = {each for target in targets for each in (target, *unfinished(target))}
    for path in work.iterdir():
        if path not in known:
            path.unlink()
    for target in targets:
        if (before := work.parent / target.name).is_file():  # of a recipe that named each file
            before.replace(target)
    fetch(files, work, progress)
