"""A class or a number for a text or a pair of texts."""
