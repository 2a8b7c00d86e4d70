"""The demo: all stages, offline."""
