"""Search in collections of documents: paragraphs by their words."""
