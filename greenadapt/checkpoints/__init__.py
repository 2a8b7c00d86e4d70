"""Model folders: found, read, written, mixed, and what they say of themselves."""
