"""The peer of ``serving.py`` and ``peers.py``: questions on long contexts, as one writes it by hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from greenadapt.store.arrays import Array
from greenadapt.tasks.questions import Question
from greenadapt.tokenization.dual_tokenizer import BASE_FOLDER


@dataclass(frozen=True)
class PlainSetting:
    """The settings that the plain loop takes from our side."""

    folder: Path
    max_length: int
    device: torch.device
    is_bfloat16: bool
    threads: int


@dataclass
class Plain:
    """The plain loop."""

    model: Any
    tokenizer: Any
    max_length: int

    @classmethod
    def open(cls, setting: PlainSetting) -> "Plain":
        import transformers

        torch.set_num_threads(setting.threads)
        dtype = torch.bfloat16 if setting.is_bfloat16 else torch.float32
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(setting.folder, dtype=dtype)
        base = setting.folder / BASE_FOLDER
        tokenizer = transformers.AutoTokenizer.from_pretrained(base if base.is_dir() else setting.folder)
        return cls(model.eval().to(setting.device), tokenizer, setting.max_length)

    def answer(self, questions: Sequence[Question]) -> None:
        """The most likely first and last piece of each answer."""
        for question in questions:
            logits = self.logits(question)
            logits.argmax(axis=0)

    def logits(self, question: Question) -> Array:
        """(n_pieces, 2) float32, start and end of each piece of the context."""
        tokenizer = self.tokenizer
        question_ids = tokenizer(question.question, add_special_tokens=False)["input_ids"]
        context = tokenizer(question.context, add_special_tokens=False)["input_ids"]
        n_special = tokenizer.num_special_tokens_to_add(pair=True)
        question_ids = question_ids[: self.max_length - n_special - 2]
        before = [tokenizer.cls_token_id, *question_ids, *[tokenizer.sep_token_id] * (n_special - 2)]
        room = self.max_length - n_special - len(question_ids)
        parts = []
        read = None
        for left_edge in range(0, len(context), room // 2):
            right = min(len(context), left_edge + room // 2)
            spare = room - (right - left_edge)
            begin = left_edge - min(left_edge, max(spare // 2, spare - (len(context) - right)))
            end = min(len(context), begin + room)
            if (begin, end) != read:
                read = begin, end
                rows = self.window(before, [*context[begin:end], tokenizer.sep_token_id])
            parts.append(rows[len(before) + left_edge - begin : len(before) + right - begin])
        return np.concatenate(parts)

    def window(self, first: list[int], second: list[int]) -> Array:
        """(n, 2) float32 of one input."""
        device = self.model.device
        inputs = {"input_ids": torch.tensor([first + second], device=device)}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if "token_type_ids" in self.tokenizer.model_input_names:
            inputs["token_type_ids"] = torch.tensor([[0] * len(first) + [1] * len(second)], device=device)
        with torch.inference_mode():
            result = self.model(**inputs)
        start, end = (logits[0].float().cpu().numpy() for logits in (result.start_logits, result.end_logits))
        return np.stack([start, end], axis=1)


def quiet() -> None:
    """Silence transformers."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
