"""Raw text to counted words."""
