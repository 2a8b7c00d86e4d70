"""Search in collections of documents: paragraphs by their words, by their vectors, or by both."""
