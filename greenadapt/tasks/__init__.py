"""Tasks: examples from files, inputs of models, predictions from logits, and scores; no torch."""
