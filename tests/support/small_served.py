"""Small models of every kind that a server can open, without training."""

import json
from pathlib import Path
from typing import Any

from greenadapt.config import ReadingOptions, RetrievalConfig, ServeConfig
from greenadapt.server.models import find_models
from greenadapt.server.serving import Application, ServeRequest
from greenadapt.tasks.classification import ClassificationTask
from greenadapt.tasks.ner import NerTask
from tests.conftest import tiny_model_in
from tests.support.small_tasks import expand

Json = dict[str, Any]
NER = NerTask(("O", "B-Disease", "I-Disease"))
LABELS = ("ill", "<b>well</b>")
CLASSES = ClassificationTask(labels=LABELS, label_kind="classes")
MADE: dict[str, tuple[str, Any]] = {
    "ner": ("BertForTokenClassification", NER),
    "labels": ("BertForSequenceClassification", CLASSES),
    "squad": ("BertForQuestionAnswering", None),
}
"""Folder → transformers' class and task; each has the words ``NEW``."""
TEXT = "The virus 🦠 was isolated from <img src=x onerror=alert(1)> tachycardia of the heart"
HOST = "http://localhost"


def make_models(folder: Path) -> Path:
    """Write the models of ``MADE``, and ``ner-base``, as the first was before it was adapted."""
    for name, (architecture, task) in MADE.items():
        labels = {} if task is None else {"num_labels": len(task.labels)}
        base = tiny_model_in(folder, architecture, name=f"{name}-base", initializer_range=0.3, **labels)
        expand(base, folder / name)
        for model in (base, folder / name):
            if task is not None:
                (model / "task.json").write_text(json.dumps({**task.settings(), "pool": "mean", "max_length": 64}))
    return folder


def application(
    folder: Path, *names: str, index: str | None = None, retrieval: RetrievalConfig | None = None, **config: Any
) -> Any:
    """The application that serves these models of ``make_models``, and an index."""
    models = tuple(str(folder / name) for name in names or MADE)
    options: Any = {"index": index} | ({} if retrieval is None else {"retrieval": retrieval})
    request = ServeRequest(models, ServeConfig(**config), ReadingOptions(), **options)
    return Application(find_models(models, request.reading, None), request).make()
