"""The demo: all of it, offline."""
