"""Files to examples to what a model reads, logits to predictions and scores; no torch."""
