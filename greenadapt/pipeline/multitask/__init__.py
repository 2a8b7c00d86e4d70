"""Many tasks on one encoder (arXiv 1902.02671): trained together, added to, listed, removed, and asked."""
