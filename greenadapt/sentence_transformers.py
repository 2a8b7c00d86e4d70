"""Both tokenizations of a text in sentence-transformers, by modules that its ``modules.json`` can name.

An adapted model's folder loads in sentence-transformers as it is, and is then read in the expanded tokenization. With
``BothViews`` in place of the transformer, and ``MeanOfViews`` at the end, each text is read in both, and its vector is
the mean of both. ``AdaptedModel.to_sentence_transformers`` makes such a model.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Module, Transformer

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.errors import InputError
from greenadapt.storage.arrays import IntArray
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
        """The inputs of the model, (n_rows, n), and ``views``; raises ``InputError`` for what is no text."""
        if not inputs:
            return {}
        for one in inputs:
            if not isinstance(one, str):
                raise InputError(f"an input of type {type(one).__name__}, not a text", "give texts")
        longest = min(self.max_seq_length or self._encoder.max_length, self._encoder.max_length)
        rows: dict[bytes, int] = {}
        ids: list[IntArray] = []
        views = np.zeros((len(inputs), 2), np.int64)
        for number, both in enumerate(self._encoder.tokenizer.encode_batch([(prompt or "") + one for one in inputs])):
            for view, pieces in enumerate((both.base.ids, both.expanded.ids)):
                own, *_ = self._encoder.single(pieces[: longest - 2])
                views[number, view] = rows.setdefault(own.tobytes(), len(rows))
                if len(rows) > len(ids):
                    ids.append(own)
        shape = len(ids), max(map(len, ids))
        padded, mask = np.full(shape, self._encoder.special.pad, np.int64), np.zeros(shape, np.int64)
        for row, own in enumerate(ids):
            padded[row, : len(own)], mask[row, : len(own)] = own, 1
        features = {"input_ids": padded, "attention_mask": mask, VIEWS: views}
        return {name: torch.from_numpy(array) for name, array in features.items()}

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The states of each row; ``views`` is passed on."""
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

    Raises ``InputError`` if the folder has modules that are not known.
    """
    import sentence_transformers
    from sentence_transformers.sentence_transformer import modules as known

    from greenadapt.checkpoints.sentence_modules import SentenceModules, listed_modules

    described = SentenceModules.read(folder)  # refuses what is not known
    first = BothViews.load(str(folder))
    rest = [getattr(known, kind).load(str(folder), subfolder=place) for kind, place in listed_modules(folder)]
    if not rest:
        rest = [known.Pooling(first.get_embedding_dimension(), "mean")]
    chain = [first, *rest, MeanOfViews(described.normalizes)]
    prompts = {"prompts": described.prompts, "default_prompt_name": described.prompt_name}
    return sentence_transformers.SentenceTransformer(modules=chain, **prompts, **options)
