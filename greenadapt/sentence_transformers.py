"""Modules for sentence-transformers that read both tokenizations of a text.

sentence-transformers loads the folder of an adapted model and reads texts in the expanded tokenization. With
``BothViews`` in place of the transformer and ``MeanOfViews`` at the end, it reads each text in both, and the vector is
the mean of both. ``AdaptedModel.to_sentence_transformers`` makes such a model.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Module, Transformer
from torch.nn.utils.rnn import pad_sequence

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.errors import InputError
from greenadapt.tasks.base import Encoder
from greenadapt.tokenization.export import copy_views

VIEWS = "views"
"""Name of the feature with the rows of each text, (n_texts, 2): its base and its expanded view."""


class BothViews(Transformer):
    """A transformer that reads every text in both tokenizations; equal ones go through once."""

    def __init__(self, model_name_or_path: str, **options: Any) -> None:
        super().__init__(model_name_or_path, **options)
        self._folder = find_model(str(model_name_or_path)).folder
        self._encoder = Encoder.of(Checkpoint.open(self._folder))

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **options: Any) -> dict[str, Any]:
        """The inputs of the model, (n_rows, n), and ``views``; raises ``InputError`` for inputs that are not texts."""
        if not inputs:
            return {}
        for text in inputs:
            if not isinstance(text, str):
                raise InputError(f"an input of type {type(text).__name__}, not a text", "give texts")
        longest = min(self.max_seq_length or self._encoder.max_length, self._encoder.max_length)
        rows: dict[bytes, int] = {}
        ids: list[torch.Tensor] = []
        views = torch.zeros((len(inputs), 2), dtype=torch.int64)
        for number, encoded in enumerate(self._encoder.tokenizer.encode_batch([(prompt or "") + t for t in inputs])):
            for view, pieces in enumerate((encoded.base.ids, encoded.expanded.ids)):
                row, *_ = self._encoder.single(pieces[: longest - 2])
                views[number, view] = rows.setdefault(row.tobytes(), len(rows))
                if len(rows) > len(ids):
                    ids.append(torch.from_numpy(row).long())
        padded = pad_sequence(ids, batch_first=True, padding_value=self._encoder.special.pad)
        mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
        return {"input_ids": padded, "attention_mask": mask, VIEWS: views}

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The states of each row, and ``views``."""
        views = features.pop(VIEWS)
        return {**super().forward(features, **options), VIEWS: views}

    def save(self, output_path: str, *arguments: Any, **options: Any) -> None:
        """Write the model, and beside it the added words and the base tokenizer."""
        super().save(output_path, *arguments, **options)
        if Path(output_path).resolve() != self._folder.resolve():
            copy_views(self._folder, Path(output_path))


class MeanOfViews(Module):
    """The mean of the vectors of both views, of length 1 if ``normalize``."""

    config_keys = ["normalize"]  # noqa: RUF012  (as sentence-transformers has it)

    def __init__(self, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """One vector for each text."""
        mean = features["sentence_embedding"][features[VIEWS]].mean(dim=1)
        features["sentence_embedding"] = torch.nn.functional.normalize(mean) if self.normalize else mean
        return features

    def save(self, output_path: str, *arguments: Any, **options: Any) -> None:
        """Write ``config.json``."""
        self.save_config(output_path)


def read_both_views(folder: Path, options: Mapping[str, Any]) -> Any:
    """A ``SentenceTransformer`` of an adapted model's folder that reads both tokenizations.

    Raises ``InputError`` for unknown modules.
    """
    import sentence_transformers
    from sentence_transformers.sentence_transformer import modules

    from greenadapt.checkpoints.sentence_modules import SentenceModules, listed_modules

    described = SentenceModules.read(folder)  # refuses unknown modules
    first = BothViews.load(str(folder))
    later = [getattr(modules, kind).load(str(folder), subfolder=path) for kind, path in listed_modules(folder)]
    if not later:
        later = [modules.Pooling(first.get_embedding_dimension(), "mean")]
    chain = [first, *later, MeanOfViews(described.normalizes)]
    prompts = {"prompts": described.prompts, "default_prompt_name": described.prompt_name}
    return sentence_transformers.SentenceTransformer(modules=chain, **prompts, **options)
