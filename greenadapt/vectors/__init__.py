"""From counted words to rows of an embedding."""
