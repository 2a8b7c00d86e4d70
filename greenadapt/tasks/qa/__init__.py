"""Spans of a context as answers."""
