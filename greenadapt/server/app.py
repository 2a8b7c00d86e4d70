"""The application: what each address answers."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from greenadapt import __version__
from greenadapt.config import Pool, RetrievalConfig, ServeConfig
from greenadapt.errors import GreenadaptError, InputError, MissingError, ResourceError, one_line
from greenadapt.inference.qa.inquiry import OwnPassages, on_passages
from greenadapt.inference.search.index import Index
from greenadapt.inference.search.store import Passage, most_paragraphs
from greenadapt.server import bodies
from greenadapt.server.batching import Batcher, FullError
from greenadapt.server.bodies import JsonRoute
from greenadapt.server.guard import PAGES, Metrics, TooLargeError, problem, sentence
from greenadapt.server.models import VIEWS, Asked, ByView, ServedModel, predicted
from greenadapt.storage.files import Json
from greenadapt.tasks.questions import Question


@dataclass(frozen=True)
class _Reading:
    """A question on all texts that are read for it."""

    questions: Sequence[Question]
    places: Sequence[tuple[int, int]]
    """Number of the document or passage of each, and the character of that it begins at."""
    passages: Sequence[Passage] | None = None
    """Those that come from the index."""


class Answering:
    """Models, an index and limits, behind the addresses of the application."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        config: ServeConfig,
        metrics: Metrics,
        index: Index | None = None,
        retrieval: RetrievalConfig = RetrievalConfig(),  # noqa: B008
    ) -> None:
        self._models = models
        self._config = config
        self._metrics = metrics
        self._retrieval = retrieval
        limit = config.max_queue
        self._batches = Batcher[Asked, ByView](predicted, lambda one: one.size, limit)
        self._near = Batcher[tuple[ServedModel, str, int], Json](_nearest, _one, limit)
        self._texts = Batcher[tuple[OwnPassages, Question], list[Question]](
            _in_texts, lambda one: len(one[1].context), limit
        )
        self._search: Batcher[tuple[str, int], list[Passage]] | None = None
        if index is not None:
            search = partial(_searched, index, retrieval)
            self._search = Batcher(search, _one, limit)

    def close(self) -> None:
        """End the threads."""
        for each in (self._batches, self._near, self._texts, self._search):
            if each is not None:
                each.close()

    def models(self) -> Json:
        """What there is."""
        limits = {"texts": self._config.max_texts, "characters": self._config.max_chars, "bytes": self._config.max_body}
        return {
            "models": [model.described() for model in self._models],
            "index": self._search is not None,
            "limits": {**limits, "seconds": self._config.max_seconds},
        }

    async def predict(self, asked: bodies.PredictRequest) -> Json:
        """Predictions for texts."""
        model = self._model(asked.model, ("ner", "classification"), "finds entities or labels")
        sizes = [_characters(record) for record in asked.texts]
        self._check("texts", sizes)
        try:
            examples = [model.example(record, f"texts[{i}]") for i, record in enumerate(asked.texts)]
        except InputError as error:
            raise HTTPException(400, str(error)) from None
        view, views = _views(model, asked)
        found = await self._results(model, examples, sizes, views)
        by_view = {one: [each[one] for each in found] for one in views}
        compared = {"views": by_view} if asked.compare else {}
        return {"model": model.found.name, "view": view, "predictions": by_view[view], **compared}

    async def answer(self, asked: bodies.AnswerRequest) -> Json:
        """Answers to a question."""
        model = self._model(asked.model, ("qa",), "answers questions")
        self._check("question", [len(asked.question)])
        await asyncio.to_thread(model.check_question, asked.question)
        reading = await self._questions(asked, model)
        view, views = _views(model, asked)
        sizes = [len(one.question) + len(one.context) for one in reading.questions]
        found = await self._results(model, reading.questions, sizes, views)
        by_view = {one: model.answers([each[one] for each in found], reading.places, asked.top) for one in views}
        more: Json = {"views": by_view} if asked.compare else {}
        if reading.passages is not None:
            more["passages"] = [asdict(one) for one in reading.passages]
        return {"model": model.found.name, "view": view, "answers": by_view[view], **more}

    async def neighbours(self, asked: bodies.NeighboursRequest) -> Json:
        """Neighbours of a word."""
        having = [model for model in self._models if model.found.has_words]
        model = _chosen(having, asked.model, "has added words")
        [found] = await self._near.results([(model, asked.word, asked.top)])
        return {"model": model.found.name, **found}

    def _model(self, name: str | None, kinds: Sequence[str], what: str) -> ServedModel:
        return _chosen([model for model in self._models if model.found.kind in kinds], name, what)

    async def _questions(self, asked: bodies.AnswerRequest, model: ServedModel) -> _Reading:
        """The question on each text that is read."""
        question = Question("", asked.question, "")
        if asked.context is not None and asked.documents is not None:
            raise HTTPException(422, "context and documents exclude each other: give one of them")
        if asked.context is not None or asked.documents is not None:
            texts = (asked.documents or []) if asked.context is None else [asked.context]
            self._check("documents", [len(text) for text in texts])
            whole = [replace(question, context=text, document=str(number)) for number, text in enumerate(texts)]
            unasked = self._retrieval.passages if self._search is None else None  # with an index they are its
            if (n := asked.passages or unasked) is None:
                return _Reading(whole, [(number, 0) for number in range(len(whole))])
            self._check_passages(sum(min(n, most_paragraphs(text)) for text in texts))
            try:
                own = OwnPassages(model.words, n, self._retrieval.search_weight)
            except MissingError:
                raise HTTPException(422, "this server cannot search in texts: leave out passages") from None
            found = await self._texts.results([(own, one) for one in whole])
            read = [one for each in found for one in each]
            return _Reading(read, [(int(one.document), one.passage.start if one.passage else 0) for one in read])
        if self._search is None:
            raise HTTPException(422, "context is missing: give a text, or documents (the server has no index)")
        n = asked.passages or self._retrieval.n_passages
        self._check_passages(n)
        [passages] = await self._search.results([(asked.question, n)])
        read = list(on_passages(question, passages, self._retrieval.search_weight))
        return _Reading(read, [(number, 0) for number in range(len(read))], passages)

    def _check_passages(self, n: int) -> None:
        if n > (most := self._config.max_queue):
            raise TooLargeError(f"{n:,} passages would be read, the most is {most:,}: ask for fewer")

    def _check(self, what: str, sizes: Sequence[int]) -> None:
        longest = self._config.max_chars
        for i, size in enumerate(sizes):
            if size > longest:
                place = f"{what}[{i}]" if len(sizes) > 1 else what
                raise TooLargeError(f"{place} has {size:,} characters, the most is {longest:,}: cut it")

    async def _results(
        self, model: ServedModel, examples: Sequence[Any], sizes: Sequence[int], views: tuple[Pool, ...]
    ) -> list[ByView]:
        asked = [Asked(model, example, views, size) for example, size in zip(examples, sizes, strict=True)]
        self._metrics.waiting.inc(len(asked))
        try:
            found = await self._batches.results(asked)
        finally:
            self._metrics.waiting.dec(len(asked))
        self._metrics.texts.labels(model.found.name).inc(len(asked))
        return found


def make_app(answering: Answering, metrics: Metrics, max_texts: int) -> FastAPI:
    """The application; it refuses lists of more than ``max_texts`` entries, and closes ``answering`` when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        answering.close()

    app = FastAPI(
        title="greenadapt",
        version=__version__,
        description="Predictions of fine-tuned models. Characters are counted as Unicode code points.",
        docs_url=None,  # FastAPI's pages load scripts from elsewhere; /docs is our own
        redoc_url=None,
        lifespan=lifespan,
        responses=bodies.PROBLEMS,
    )
    app.router.route_class = JsonRoute
    app.state.max_texts = max_texts
    unset: Json = {"response_model_exclude_unset": True}
    app.post("/predict", response_model=bodies.PredictResponse, summary="Entities or labels", **unset)(
        answering.predict
    )
    app.post("/answer", response_model=bodies.AnswerResponse, summary="Answers", **unset)(answering.answer)
    app.post("/neighbours", response_model=bodies.NeighboursResponse, summary="Neighbours of a word")(
        answering.neighbours
    )
    app.get("/models", response_model=bodies.ModelsResponse, summary="Models and limits")(answering.models)

    @app.get("/health", response_model=bodies.Health, summary="Whether the server answers")
    async def health() -> Json:
        return {"status": "ok", "version": __version__}

    @app.get("/metrics", summary="Numbers for Prometheus", response_class=Response)
    def numbers() -> Response:
        return Response(metrics.exposed(), media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = Environment(loader=PackageLoader("greenadapt.server", "page"), autoescape=True, trim_blocks=True)
    for path, (package, name, kind) in PAGES.items():
        if name.endswith(".j2"):
            content = pages.get_template(name).render()
        else:
            content = files(package).joinpath(name).read_text("utf-8")
        app.get(path, include_in_schema=False)(_file(content, kind))
    _add_handlers(app)
    return app


def _file(content: str, kind: str) -> Callable[[], Any]:
    async def file() -> Response:
        return Response(content, media_type=kind)

    return file


def _add_handlers(app: FastAPI) -> None:
    """Answer every error with one sentence. What clients did wrong is an ``HTTPException`` or a ``TooLargeError``; any
    other error is the server's, and may name files and machines that clients need not know.
    """

    async def handle(_: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            return problem(422, sentence(error))
        if isinstance(error, HTTPException):
            return problem(error.status_code, _said(error))
        if isinstance(error, FullError):
            return problem(503, "too much is waiting: try again")
        if isinstance(error, TooLargeError):
            return problem(413, str(error))
        if isinstance(error, GreenadaptError):
            sys.stderr.write(f"greenadapt: {one_line(str(error))}\n")
        if isinstance(error, ResourceError):
            return problem(503, "the server has too little memory: try again later, or send less at once")
        return problem(500, "the server failed: its log says why")

    for kind in (RequestValidationError, HTTPException, FullError, GreenadaptError, Exception):
        app.add_exception_handler(kind, handle)


def _said(error: HTTPException) -> str:
    said = {404: "there is nothing here: see /openapi.json", 405: "the method is wrong: see /openapi.json"}
    if error.detail in ("Not Found", "Method Not Allowed"):
        return said[error.status_code]
    return str(error.detail)


def _chosen(models: Sequence[ServedModel], name: str | None, what: str) -> ServedModel:
    """The model of this name, or the only one; ``what`` is what each of ``models`` does."""
    names = ", ".join(model.found.name for model in models)
    if not models:
        raise HTTPException(404, f"no model here {what}")
    if name is None:
        if len(models) > 1:
            raise HTTPException(422, f"model is missing: name one of {names}")
        return models[0]
    for model in models:
        if model.found.name == name:
            return model
    raise HTTPException(404, f"no model of that name {what}: name one of {names}")


def _views(model: ServedModel, asked: bodies.PredictRequest | bodies.AnswerRequest) -> tuple[Pool, tuple[Pool, ...]]:
    """The view that decides, and all that are wanted."""
    view = asked.view or model.view or "mean"
    return view, VIEWS if asked.compare else (view,)


def _characters(record: str | bodies.Record) -> int:
    if isinstance(record, str):
        return len(record)
    texts = (value if isinstance(value, str) else " ".join(value) for value in record.values())
    return sum(map(len, texts))


def _nearest(asked: Sequence[tuple[ServedModel, str, int]]) -> list[Json]:
    return [model.near.near(word, top) for model, word, top in asked]


def _searched(index: Index, retrieval: RetrievalConfig, asked: Sequence[tuple[str, int]]) -> list[list[Passage]]:
    return [index.search(question, n, retrieval.by) for question, n in asked]


def _in_texts(asked: Sequence[tuple[OwnPassages, Question]]) -> list[list[Question]]:
    """Each question on the best paragraphs of its text."""
    return [[*own.questions([question])] for own, question in asked]


def _one(_: object) -> int:
    """The size of what is small."""
    return 1
