"""A label for each word."""
