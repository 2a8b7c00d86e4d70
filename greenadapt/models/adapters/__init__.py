"""Many tasks on one encoder (Stickland and Murray, arXiv 1902.02671)."""
