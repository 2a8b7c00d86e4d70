"""Fine-tuning, from the first step to the folder."""
