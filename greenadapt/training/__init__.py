"""Training: from examples or text to batches, losses and optimizer steps."""
