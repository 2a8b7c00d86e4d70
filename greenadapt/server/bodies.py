"""The bodies of requests and responses: JSON that is bounded before it is validated."""

import codecs
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from greenadapt.config import Pool
from greenadapt.server.guard import path_text, unreadable

# A message names the first invalid entry of a list: to collect the errors of thousands would take minutes.
Words = Annotated[list[str], Field(fail_fast=True)]
Record = dict[str, str | Words]
Name = Annotated[str | None, Field(description="Which model; may be left out if one has the task.")]
View = Annotated[
    Pool | None, Field(description="Predict with the mean of both tokenizations, or with one; by default as trained.")
]
Compare = Annotated[bool, Field(description="Also give, under `views`, what each tokenization and the mean predict.")]
Top = Annotated[int, Field(ge=1, le=20)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PredictRequest(_Request):
    """Texts to find entities in or to classify."""

    texts: Annotated[
        list[str | Record],
        Field(
            description="Texts; or objects, with `tokens` for NER, or with the text fields of a pair.",
            min_length=1,
            fail_fast=True,
        ),
    ]
    model: Name = None
    view: View = None
    compare: Compare = False


class AnswerRequest(_Request):
    """A question, and where its answer is looked for: one of `context`, `documents` and, with an index, neither."""

    question: Annotated[str, Field(min_length=1)]
    context: Annotated[str | None, Field(description="One text.")] = None
    documents: Annotated[Words | None, Field(description="Several; the best answers of all.", min_length=1)] = None
    passages: Annotated[
        int | None, Field(ge=1, le=50, description="How many passages are read: of the index, or of each text.")
    ] = None
    top: Annotated[Top, Field(description="How many answers; those from one text differ.")] = 5
    model: Name = None
    view: View = None
    compare: Compare = False


class NeighboursRequest(_Request):
    """A word."""

    word: Annotated[str, Field(min_length=1, max_length=200)]
    top: Annotated[Top, Field(description="How many of each kind.")] = 10
    model: Name = None


class Entity(BaseModel):
    """An entity: characters `start` to before `end`, Unicode code points, of words `first` to `last`."""

    type: str
    score: float
    start: int | None = None
    end: int | None = None
    text: str | None = None
    first: int
    last: int


class Prediction(BaseModel):
    """`entities`; or `label` with its `score` and the `probabilities` of the classes, at most 100; or `value`."""

    entities: list[Entity] | None = None
    label: str | None = None
    score: float | None = None
    probabilities: dict[str, float] | None = None
    value: float | None = None


class PredictResponse(BaseModel):
    """One prediction for each text, in order."""

    model: str
    view: Pool
    predictions: list[Prediction]
    views: dict[Pool, list[Prediction]] | None = None


class Answer(BaseModel):
    """A part of a document, characters `start` to before `end`, Unicode code points; null for "no answer"."""

    answer: str
    start: int | None
    end: int | None
    score: Annotated[float, Field(description="Probability among the 20 best.")]
    logit: float | None
    document: Annotated[int | None, Field(description="Which of the documents or passages, from 0.")]


class Passage(BaseModel):
    """A paragraph of the index: characters `start` to before `end` of its document."""

    document: str
    title: str
    start: int
    end: int
    text: str
    score: float


class AnswerResponse(BaseModel):
    """The best answers, best first; with an index, the passages that were read."""

    model: str
    view: Pool
    answers: list[Answer]
    views: dict[Pool, list[Answer]] | None = None
    passages: list[Passage] | None = None


class Neighbour(BaseModel):
    """A word or wordpiece, and the cosine of its row and the word's."""

    word: str
    cosine: float


class NeighboursResponse(BaseModel):
    """The nearest added words and wordpieces."""

    model: str
    word: Annotated[str, Field(description="As the model's tokenizer writes it.")]
    is_added: bool
    added: list[Neighbour]
    pieces: list[Neighbour]


class ModelDescription(BaseModel):
    """A model: what it does, the tokenizations it has, and by which it predicts unless a request says otherwise."""

    name: str
    kind: Literal["ner", "classification", "qa", "words"]
    view: Pool | None
    views: list[Pool]
    neighbours: bool
    example_word: str | None


class ModelsResponse(BaseModel):
    """What there is, and how much of it a request may have."""

    models: list[ModelDescription]
    index: bool
    limits: dict[str, int | float]


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]
    version: str


class Problem(BaseModel):
    """What is wrong, in one sentence."""

    error: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "Not JSON, or not what the model reads.",
        401: "The token is missing or wrong.",
        404: "No such model or word.",
        413: "Larger than the limits.",
        415: "Not application/json.",
        422: "Not as described here.",
        500: "The server failed; its log says why.",
        503: "Too much is waiting, or what the server needs is not there; `Retry-After` says when to try again.",
        504: "It took longer than the limit.",
    }.items()
}


_MOST_NAMES = 32
"""Names of an object, more than any request has: validation would collect an error for every name."""


class JsonRoute(APIRoute):
    """An address whose body is read by ``json_body``, with at most ``app.state.max_texts`` entries in each list."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, on a request that reads its own JSON."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_JsonRequest(request.scope, request.receive))

        return handle


class _JsonRequest(Request):
    async def json(self) -> Any:
        return json_body(await self.body(), self.app.state.max_texts)


def json_body(content: bytes, max_texts: int) -> Any:
    """The JSON value of a request's body.

    Raises ``HTTPException``: 400 for a body that is not JSON in UTF-8, is nested deeper than about 200 levels, or has
    half a character; 413 for a list of more than ``max_texts`` entries, or an object of too many names.
    """
    try:
        body = from_json(content.removeprefix(codecs.BOM_UTF8))
    except ValueError as error:
        raise HTTPException(400, unreadable(str(error))) from None
    if isinstance(body, dict):
        _check_names("the body", body)
        for name, value in body.items():
            path = path_text([name])
            _check_names(path, value)
            if isinstance(value, list):
                if len(value) > max_texts:
                    n, limit = f"{len(value):,}", f"{max_texts:,}"
                    raise HTTPException(413, f"{path} has {n} entries, the most is {limit}: send several requests")
                for i, entry in enumerate(value):
                    _check_names(path_text([name, i]), entry)
    return body


def _check_names(path: str, value: Any) -> None:
    if isinstance(value, dict) and (n := len(value)) > _MOST_NAMES:
        raise HTTPException(413, f"{path} has {n:,} names, the most is {_MOST_NAMES}: see /openapi.json")
