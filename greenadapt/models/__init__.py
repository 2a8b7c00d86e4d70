"""Torch models: opened with the rows they need, run, written whole."""
