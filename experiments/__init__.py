"""The experiments of the three papers: scripts that fill their tables."""
