"""The tables of the three papers, filled by our own runs."""
