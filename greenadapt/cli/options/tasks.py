"""Options that say what one task is and where its examples lie."""

from typing import Annotated, Any

import typer

from greenadapt.cli.options.training import TRAINING
from greenadapt.config import LabelKind, TaskConfig, TaskName
from greenadapt.errors import UsageError

_DATA, _NER, _TEXT, _QA = "Data", "NER", "Classification", "Question answering"

TaskOption = Annotated[TaskName | None, typer.Option("--task", help="What is learnt.", show_default=False)]
TrainFile = Annotated[
    list[str] | None,
    typer.Option("--train", help="A labelled file, or a data set of the hub; may be repeated.", show_default=False,
                 rich_help_panel=_DATA),
]  # fmt: skip
Dev = Annotated[
    str | None,
    typer.Option("--dev", help="Labelled file scored after every epoch.", show_default=False, rich_help_panel=_DATA),
]
Test = Annotated[
    str | None,
    typer.Option("--test", help="Labelled file scored at the end.", show_default=False, rich_help_panel=_DATA),
]
TextField = Annotated[
    list[str] | None,
    typer.Option("--text-field", help="Field or column of the text; twice for a pair [default: text].",
                 show_default=False, rich_help_panel=_TEXT),
]  # fmt: skip
LabelField = Annotated[str, typer.Option("--label-field", help="Field or column of the label.", rich_help_panel=_TEXT)]
Labels = Annotated[
    LabelKind,
    typer.Option("--labels", help="Classes, or numbers to be predicted; auto: numbers where they have fractions.",
                 rich_help_panel=_TEXT),
]  # fmt: skip
Chunk = Annotated[
    int | None,
    typer.Option("--chunk", help=f"At most this many words are read at once [default: {TaskConfig.chunk}].",
                 show_default=False, rich_help_panel=_NER),
]  # fmt: skip
WholeSentences = Annotated[
    bool, typer.Option("--whole-sentences", help="Read whole sentences instead of chunks.", rich_help_panel=_NER)
]
GoldChunks = Annotated[
    bool,
    typer.Option("--gold-chunks", help="Cut test sentences by their gold tags, too, as the paper did.",
                 rich_help_panel=_NER),
]  # fmt: skip
XClass = Annotated[
    bool,
    typer.Option("--x-class", help="Pieces inside a word, [CLS] and [SEP] are a class of their own, as in BioBERT's "
                 "code.",
                 rich_help_panel=_NER),
]  # fmt: skip
Negatives = Annotated[
    int,
    typer.Option("--negatives", help="Windows without the answer that a question trains on.", rich_help_panel=_QA),
]
MaxLength = Annotated[
    int | None,
    typer.Option("--max-length", help="Pieces read at once [default: all that the model can].", show_default=False,
                 rich_help_panel=TRAINING),
]  # fmt: skip
SaveLogits = Annotated[
    bool, typer.Option("--save-logits", help="Keep the logits of the test set.", rich_help_panel=_DATA)
]

_NAMES = (
    *("task", "train", "dev", "test", "text_field", "label_field", "labels", "chunk", "whole_sentences"),
    *("gold_chunks", "x_class", "negatives", "max_length", "save_logits", "compare", "reference"),
)
OF_ONE_TASK = {name: f"--{name.replace('_', '-')}" for name in _NAMES}
"""Parameters that only a command for one task has → their options."""


def task_config(values: dict[str, Any]) -> TaskConfig:
    """The task that a command's parameters describe; raises ``UsageError`` where they contradict each other."""
    if values["task"] is None:
        raise UsageError("no task", "give --task ner, classification or qa, or --tasks FILE for many tasks")
    whole, chunk = values["whole_sentences"], values["chunk"]
    if whole and chunk is not None:
        raise UsageError("--chunk and --whole-sentences exclude each other", "leave out one of them")
    same = ("task", "label_field", "gold_chunks", "x_class", "negatives", "max_length")
    return TaskConfig(
        text_fields=tuple(values["text_field"] or TaskConfig.text_fields),
        label_kind=values["labels"],
        chunk=None if whole else TaskConfig.chunk if chunk is None else chunk,
        **{name: values[name] for name in same},
    )
