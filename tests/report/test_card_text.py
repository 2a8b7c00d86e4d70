"""What the READMEs of fine-tuned models share."""

from dataclasses import asdict

from greenadapt.config import MemoryConfig
from greenadapt.report.cards import example_file, memory_text, reads_text


def test_what_is_read() -> None:
    assert example_file({"task": "classification", "text_fields": ["a", "b"]}) == "pairs.jsonl"
    assert example_file({"task": "classification", "text_fields": ["a"]}) == "texts.txt"
    assert example_file({"task": "qa"}) == "questions.jsonl"
    assert "no added words" in reads_text("tiny", {}, is_expanded=False)
    assert "the base tokenization alone" in reads_text("tiny", {"mix": "base", "pool": "mean"}, is_expanded=True)


def test_a_memory() -> None:
    general = {"name": "tiny", "sha256": "ab" * 32, "source": "org/tiny"}
    config = MemoryConfig(strategy="logits")
    memory = {**asdict(config), "general": general}
    assert memory_text(None) == ""
    assert "are added to its own" in memory_text(memory)
    assert "stayed as it was and is needed" in memory_text(memory)
    assert "lies in `memory/`" in memory_text({**memory, "frozen": False})
