"""The application: what each address reads and answers, and who may ask."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from secrets import compare_digest
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles

from greenadapt.config import Pool, RetrievalConfig
from greenadapt.errors import GreenadaptError, InputError, ResourceError, one_line
from greenadapt.inference.qa.question_set import pair_passages
from greenadapt.inference.search.index import Index
from greenadapt.inference.search.store import Passage
from greenadapt.server.batching import MicroBatcher
from greenadapt.server.models import ServedModel, predict
from greenadapt.store.files import Json
from greenadapt.tasks.questions import Question
from greenadapt.version import __version__

MAX_TEXTS = 64
"""Texts or documents of a request."""
MAX_CHARS = 100_000
"""Characters of a text."""
_MAX_NAMES = 32
_MAX_PASSAGES = 50

Text = Annotated[str, Field(max_length=MAX_CHARS)]
# fail_fast names the first invalid entry: to collect the errors of thousands would take minutes.
Record = Annotated[dict[str, Text | Annotated[list[str], Field(fail_fast=True)]], Field(max_length=_MAX_NAMES)]
Name = Annotated[str | None, Field(description="Which model; may be left out if only one has the task.")]
View = Annotated[
    Pool | None, Field(description="Predict with the mean of both tokenizations, or with one; by default as trained.")
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PredictRequest(_Request):
    """Texts to find entities in or to classify."""

    texts: Annotated[
        list[Text | Record],
        Field(
            description="Texts; or objects, with `tokens` for NER, or with the text fields of a pair.",
            min_length=1,
            max_length=MAX_TEXTS,
            fail_fast=True,
        ),
    ]
    model: Name = None
    view: View = None


class AnswerRequest(_Request):
    """A question, and where its answer is looked for: one of `context`, `documents` and, with an index, neither."""

    question: Annotated[Text, Field(min_length=1)]
    context: Annotated[Text | None, Field(description="One text.")] = None
    documents: Annotated[
        list[Text] | None,
        Field(description="Several; the best answers of all.", min_length=1, max_length=MAX_TEXTS, fail_fast=True),
    ] = None
    passages: Annotated[
        int | None, Field(ge=1, le=_MAX_PASSAGES, description="How many passages of the index are read.")
    ] = None
    top: Annotated[int, Field(ge=1, le=20, description="How many answers; those from one text differ.")] = 5
    model: Name = None
    view: View = None


class Endpoints:
    """Models, and an index for questions without a text, behind the addresses of the application."""

    def __init__(self, models: Sequence[ServedModel], index: Index | None, retrieval: RetrievalConfig) -> None:
        self._models = models
        self._index = index
        self._retrieval = retrieval
        self.batcher = MicroBatcher(predict)

    async def models(self) -> Json:
        """The models, and whether there is an index."""
        return {"models": [model.describe() for model in self._models], "index": self._index is not None}

    async def predict(self, request: PredictRequest) -> Json:
        """Predictions for texts, as the command ``predict`` has them."""
        model = self._choose(request.model, ("ner", "classification"), "finds entities or labels")
        try:
            examples = [model.opened.task.example(record, f"texts[{i}]") for i, record in enumerate(request.texts)]
        except InputError as error:
            raise HTTPException(400, str(error)) from None
        sizes = [len(str(record)) for record in request.texts]
        view, predictions = await self._results(model, examples, sizes, request.view)
        return {"model": model.name, "view": view, "predictions": predictions}

    async def answer(self, request: AnswerRequest) -> Json:
        """The best answers, with the number of the document; of an index also the passages that were read."""
        model = self._choose(request.model, ("qa",), "answers questions")
        await asyncio.to_thread(_check_question, model, request.question)
        questions, passages = await self._questions(request)
        sizes = [len(question.question) + len(question.context) for question in questions]
        view, candidates = await self._results(model, questions, sizes, request.view)
        response: Json = {"model": model.name, "view": view, "answers": model.rank(candidates, request.top)}
        return response if passages is None else response | {"passages": [asdict(passage) for passage in passages]}

    async def _questions(self, request: AnswerRequest) -> tuple[list[Question], list[Passage] | None]:
        """The question on each text that is read, and the passages that come from the index."""
        question = Question("", request.question, "")
        if request.context is not None and request.documents is not None:
            raise HTTPException(422, "context and documents exclude each other: give one of them")
        texts = request.documents if request.context is None else [request.context]
        if texts is not None:
            return [replace(question, context=text) for text in texts], None
        if self._index is None:
            raise HTTPException(422, "context is missing: give a text, or documents (the server has no index)")
        n = request.passages or self._retrieval.n_passages
        passages = await self.batcher.call(self._index.search, request.question, n)
        return list(pair_passages(question, passages)), passages

    async def _results(
        self, model: ServedModel, examples: Sequence[Any], sizes: Sequence[int], view: Pool | None
    ) -> tuple[Pool, list[Any]]:
        view = view or model.view
        return view, await self.batcher.results([(model, example, view) for example in examples], sizes)

    def _choose(self, name: str | None, kinds: Sequence[str], ability: str) -> ServedModel:
        """The model of this name, or the only one of these kinds."""
        models = {model.name: model for model in self._models if model.kind in kinds}
        names = ", ".join(models)
        if not models:
            raise HTTPException(404, f"no model here {ability}")
        if name is None and len(models) > 1:
            raise HTTPException(422, f"model is missing: name one of {names}")
        if name is not None and name not in models:
            raise HTTPException(404, f"no model of that name {ability}: name one of {names}")
        return models[name] if name is not None else next(iter(models.values()))


def make_app(endpoints: Endpoints, max_body: int, hosts: Sequence[str], token: str | None) -> FastAPI:
    """The application for requests of at most ``max_body`` bytes, to ``hosts`` (all if empty), with the ``token``."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batches = asyncio.create_task(endpoints.batcher.run())
        yield
        batches.cancel()

    def check_token(
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        sent = credentials.credentials if credentials else ""
        if token is not None and not compare_digest(sent.encode(), token.encode()):
            reason = "the token is missing or wrong: send the header Authorization: Bearer TOKEN"
            raise HTTPException(401, reason, {"WWW-Authenticate": "Bearer"})

    app = FastAPI(
        title="greenadapt",
        version=__version__,
        description="Predictions of fine-tuned models. Characters are counted as Unicode code points.",
        docs_url=None,  # FastAPI's pages load scripts from other servers
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(BodyLimit, most_bytes=max_body)
    # On a loopback address a foreign page could let its own host name resolve to this server, and read the answers.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*hosts] or ["*"], www_redirect=False)
    router = APIRouter(dependencies=[Depends(check_token)])
    router.post("/predict", summary="Entities or labels")(endpoints.predict)
    router.post("/answer", summary="Answers")(endpoints.answer)
    router.get("/models", summary="Models")(endpoints.models)
    app.include_router(router)

    @app.get("/health", summary="Whether the server answers")
    async def health() -> Json:
        return {"status": "ok", "version": __version__}

    app.mount("/", StaticFiles(packages=[("greenadapt", "server/page")], html=True))
    app.add_exception_handler(RequestValidationError, _refuse)
    app.add_exception_handler(GreenadaptError, _fail)
    return app


@dataclass(frozen=True)
class BodyLimit:
    """Middleware that answers 413 to a body of more than ``most_bytes``."""

    app: Any
    most_bytes: int

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        n = 0

        async def receive_bounded() -> Any:
            nonlocal n
            message = await receive()
            n += len(message.get("body", b""))
            if n > self.most_bytes:
                raise HTTPException(413, f"the body has more than {self.most_bytes:,} bytes: send less at once")
            return message

        await self.app(scope, receive_bounded, send)


async def _refuse(_: Request, error: Exception) -> JSONResponse:
    """Name the first invalid value, in place of repeating the body as FastAPI does."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part)[:40] for part in first["loc"][:3])
    return JSONResponse({"detail": f"{place}: {first['msg']}"}, 422)


async def _fail(_: Request, error: Exception) -> JSONResponse:
    """Log what is wrong with the server; it may name files that clients need not know."""
    sys.stderr.write(f"greenadapt: {one_line(str(error))}\n")
    if isinstance(error, ResourceError):
        return JSONResponse({"detail": "the server has too little memory: try again later, or send less"}, 503)
    return JSONResponse({"detail": "the server failed: its log says why"}, 500)


def _check_question(model: ServedModel, question: str) -> None:
    """Refuse a question of more than half of the pieces that the model reads at once.

    The rest is for a window of the context: the longer the question, the more windows.
    """
    encoder = model.opened.encoder
    n, most = encoder.n_pieces(question), encoder.max_length // 2
    if n > most:
        raise HTTPException(413, f"question has {n:,} pieces for {model.name}, the most is {most:,}: shorten it")
