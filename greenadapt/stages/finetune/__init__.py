"""Fine-tuning as a stage: one task or many, seeds, comparison."""
