"""What fine-tuning begins with: a model, and perhaps a general model as its memory."""

from dataclasses import dataclass

from greenadapt.config import MemoryConfig
from greenadapt.features import Encoder
from greenadapt.model import PretrainedModel
from greenadapt.pipeline.adapted import starting_model
from greenadapt.pipeline.memory_choice import MemoryChoice
from greenadapt.pipeline.session import check_model, note_code
from greenadapt.progress import Progress
from greenadapt.training.layout import MEMORY_FILE


@dataclass(frozen=True)
class Start:
    """What training begins with."""

    model: PretrainedModel
    memory: MemoryChoice | None

    @classmethod
    def of(cls, model: str, memory: str | None, config: MemoryConfig) -> "Start":
        """The model, and the general model that is its memory, by what the user called them; both are checked."""
        found = starting_model(model)
        check_model(found, whole=True)
        return cls(found, None if memory is None else MemoryChoice.find(memory, found, config))

    def tell(self, encoder: Encoder, progress: Progress) -> None:
        """Say what the model, which reads by ``encoder``, does not have or will not have."""
        note_code(self.model, progress)
        if not encoder.has_words:
            progress.note(f"{self.model.name} has no added words: both tokenizations are the same")
        if self.memory is None and (self.model.folder / MEMORY_FILE).is_file():
            progress.warn(f"{self.model.source} was trained with a memory, and has none without --memory")
