"""Models behind HTTP, with a page."""
