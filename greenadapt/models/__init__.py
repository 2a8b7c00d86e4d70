"""Models that are put together from pretrained ones: torch only, no paths, no tokenizers."""
