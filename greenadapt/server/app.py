"""The application: what each address answers."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from importlib.resources import files
from itertools import chain
from pathlib import Path
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
from greenadapt.server.batching import Batcher
from greenadapt.server.bodies import JsonRoute
from greenadapt.server.guard import PAGES, Metrics, problem, sentence
from greenadapt.server.models import VIEWS, ByView, PredictionItem, ServedModel, predict
from greenadapt.storage.files import Json
from greenadapt.tasks.questions import Question


class Endpoints:
    """Models, an index and limits, behind the addresses of the application."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        config: ServeConfig,
        metrics: Metrics,
        index: Index | None,
        retrieval: RetrievalConfig,
    ) -> None:
        self._models = models
        self._config = config
        self._metrics = metrics
        self._retrieval = retrieval
        limit = config.max_queue
        self._batches = Batcher[PredictionItem, ByView](predict, lambda item: item.size, limit)
        self._near = Batcher[tuple[ServedModel, str, int], Json](
            lambda items: [model.near(word, top) for model, word, top in items], lambda _: 1, limit
        )
        self._texts = Batcher[tuple[OwnPassages, Question], list[Question]](
            lambda items: [[*passages.questions([question])] for passages, question in items],
            lambda item: len(item[1].context),
            limit,
        )
        self._search: Batcher[tuple[str, int], list[Passage]] | None = None
        if index is not None:
            self._search = Batcher(
                lambda items: [index.search(question, n) for question, n in items], lambda _: 1, limit
            )

    def close(self) -> None:
        """End the threads."""
        for batcher in (self._batches, self._near, self._texts, self._search):
            if batcher is not None:
                batcher.close()

    def models(self) -> Json:
        """The models, whether there is an index, and the limits of a request."""
        limits = {"texts": self._config.max_texts, "characters": self._config.max_chars, "bytes": self._config.max_body}
        return {
            "models": [model.described() for model in self._models],
            "index": self._search is not None,
            "limits": {**limits, "seconds": self._config.max_seconds},
        }

    async def predict(self, request: bodies.PredictRequest) -> Json:
        """Predictions for texts."""
        model = self._model(request.model, ("ner", "classification"), "finds entities or labels")
        sizes = [_characters(record) for record in request.texts]
        self._check("texts", sizes)
        try:
            examples = [model.example(record, f"texts[{i}]") for i, record in enumerate(request.texts)]
        except InputError as error:
            raise HTTPException(400, str(error)) from None
        view, views = _views(model, request)
        results = await self._results(model, examples, sizes, views)
        by_view = {name: [result[name] for result in results] for name in views}
        compared = {"views": by_view} if request.compare else {}
        return {"model": model.source.name, "view": view, "predictions": by_view[view], **compared}

    async def answer(self, request: bodies.AnswerRequest) -> Json:
        """Answers to a question."""
        model = self._model(request.model, ("qa",), "answers questions")
        self._check("question", [len(request.question)])
        await asyncio.to_thread(model.check_question, request.question)
        questions, starts, passages = await self._questions(request, model)
        view, views = _views(model, request)
        sizes = [len(question.question) + len(question.context) for question in questions]
        results = await self._results(model, questions, sizes, views)
        by_view = {name: model.answers([result[name] for result in results], starts, request.top) for name in views}
        response: Json = {"model": model.source.name, "view": view, "answers": by_view[view]}
        if request.compare:
            response["views"] = by_view
        if passages is not None:
            response["passages"] = [asdict(passage) for passage in passages]
        return response

    async def neighbours(self, request: bodies.NeighboursRequest) -> Json:
        """Neighbours of a word."""
        models = [model for model in self._models if model.source.has_words]
        model = _choose(models, request.model, "has added words")
        [near] = await self._near.results([(model, request.word, request.top)])
        return {"model": model.source.name, **near}

    def _model(self, name: str | None, kinds: Sequence[str], ability: str) -> ServedModel:
        return _choose([model for model in self._models if model.source.kind in kinds], name, ability)

    async def _questions(
        self, request: bodies.AnswerRequest, model: ServedModel
    ) -> tuple[list[Question], list[tuple[int, int]], list[Passage] | None]:
        """The question on each text that is read; where each text starts; and the passages that come from the index.

        A start is the number of a document or passage, and a character of it.
        """
        question = Question("", request.question, "")
        if request.context is not None and request.documents is not None:
            raise HTTPException(422, "context and documents exclude each other: give one of them")
        if request.context is not None or request.documents is not None:
            texts = (request.documents or []) if request.context is None else [request.context]
            self._check("documents", [len(text) for text in texts])
            questions = [replace(question, context=text, document=str(number)) for number, text in enumerate(texts)]
            default = self._retrieval.passages if self._search is None else None  # else it is for the index
            if (n := request.passages or default) is not None:
                self._check_passages(sum(min(n, most_paragraphs(text)) for text in texts))
                try:
                    passages_of_text = OwnPassages(model.words, n)
                except MissingError:
                    raise HTTPException(422, "this server cannot search in texts: leave out passages") from None
                results = await self._texts.results([(passages_of_text, whole) for whole in questions])
                questions = [*chain.from_iterable(results)]
            starts = [(int(item.document), item.passage.start if item.passage else 0) for item in questions]
            return questions, starts, None
        if self._search is None:
            raise HTTPException(422, "context is missing: give a text, or documents (the server has no index)")
        n = request.passages or self._retrieval.n_passages
        self._check_passages(n)
        [passages] = await self._search.results([(request.question, n)])
        questions = list(on_passages(question, passages))
        return questions, [(number, 0) for number in range(len(questions))], passages

    def _check_passages(self, n: int) -> None:
        if n > (limit := self._config.max_queue):
            raise HTTPException(413, f"{n:,} passages would be read, the most is {limit:,}: ask for fewer")

    def _check(self, name: str, sizes: Sequence[int]) -> None:
        longest = self._config.max_chars
        for i, size in enumerate(sizes):
            if size > longest:
                path = f"{name}[{i}]" if len(sizes) > 1 else name
                raise HTTPException(413, f"{path} has {size:,} characters, the most is {longest:,}: cut it")

    async def _results(
        self, model: ServedModel, examples: Sequence[Any], sizes: Sequence[int], views: tuple[Pool, ...]
    ) -> list[ByView]:
        items = [PredictionItem(model, example, views, size) for example, size in zip(examples, sizes, strict=True)]
        self._metrics.waiting.inc(len(items))
        try:
            results = await self._batches.results(items)
        finally:
            self._metrics.waiting.dec(len(items))
        self._metrics.texts.labels(model.source.name).inc(len(items))
        return results


def make_app(endpoints: Endpoints, metrics: Metrics, max_texts: int) -> FastAPI:
    """The application; it refuses lists of more than ``max_texts`` entries, and closes ``endpoints`` when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        endpoints.close()

    app = FastAPI(
        title="greenadapt",
        version=__version__,
        description="Predictions of fine-tuned models. Characters are counted as Unicode code points.",
        docs_url=None,  # FastAPI's pages load scripts from other servers; ours is in PAGES
        redoc_url=None,
        lifespan=lifespan,
        responses=bodies.PROBLEMS,
    )
    app.router.route_class = JsonRoute
    app.state.max_texts = max_texts
    unset: Json = {"response_model_exclude_unset": True}
    app.post("/predict", response_model=bodies.PredictResponse, summary="Entities or labels", **unset)(
        endpoints.predict
    )
    app.post("/answer", response_model=bodies.AnswerResponse, summary="Answers", **unset)(endpoints.answer)
    app.post("/neighbours", response_model=bodies.NeighboursResponse, summary="Neighbours of a word")(
        endpoints.neighbours
    )
    app.get("/models", response_model=bodies.ModelsResponse, summary="Models and limits")(endpoints.models)

    @app.get("/health", response_model=bodies.Health, summary="Whether the server answers")
    async def health() -> Json:
        return {"status": "ok", "version": __version__}

    @app.get("/metrics", summary="Numbers for Prometheus", response_class=Response)
    def numbers() -> Response:
        return Response(metrics.exposed(), media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = Environment(loader=PackageLoader("greenadapt", "server/page"), autoescape=True, trim_blocks=True)
    for path, (name, kind) in PAGES.items():
        if name.endswith(".j2"):
            content = pages.get_template(Path(name).name).render()
        else:
            content = files("greenadapt").joinpath(name).read_text("utf-8")
        app.get(path, include_in_schema=False)(_file(content, kind))
    _add_handlers(app)
    return app


def _file(content: str, kind: str) -> Callable[[], Any]:
    async def file() -> Response:
        return Response(content, media_type=kind)

    return file


def _add_handlers(app: FastAPI) -> None:
    """Answer every error with one sentence.

    A client's error is an ``HTTPException``; any other error is the server's, and may name files and machines that
    clients need not know.
    """

    async def handle(_: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            return problem(422, sentence(error))
        if isinstance(error, HTTPException):
            unknown = {"Not Found": "there is nothing here", "Method Not Allowed": "the method is wrong"}
            reason = unknown.get(str(error.detail))
            return problem(error.status_code, f"{reason}: see /openapi.json" if reason else str(error.detail))
        if isinstance(error, GreenadaptError):
            sys.stderr.write(f"greenadapt: {one_line(str(error))}\n")
        if isinstance(error, ResourceError):
            return problem(503, "the server has too little memory: try again later, or send less at once")
        return problem(500, "the server failed: its log says why")

    for kind in (RequestValidationError, HTTPException, GreenadaptError, Exception):
        app.add_exception_handler(kind, handle)


def _choose(models: Sequence[ServedModel], name: str | None, ability: str) -> ServedModel:
    """The model of this name, or the only one; ``ability`` says what all of ``models`` can do."""
    if not models:
        raise HTTPException(404, f"no model here {ability}")
    names = [model.source.name for model in models]
    if name is None:
        if len(models) > 1:
            raise HTTPException(422, f"model is missing: name one of {', '.join(names)}")
        return models[0]
    if name not in names:
        raise HTTPException(404, f"no model of that name {ability}: name one of {', '.join(names)}")
    return models[names.index(name)]


def _views(model: ServedModel, request: bodies.PredictRequest | bodies.AnswerRequest) -> tuple[Pool, tuple[Pool, ...]]:
    """The view that decides, and all views of the response."""
    view = request.view or model.view or "mean"
    return view, VIEWS if request.compare else (view,)


def _characters(record: str | bodies.Record) -> int:
    if isinstance(record, str):
        return len(record)
    texts = (value if isinstance(value, str) else " ".join(value) for value in record.values())
    return sum(map(len, texts))
