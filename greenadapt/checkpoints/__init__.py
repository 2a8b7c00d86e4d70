"""Model folders: find, read and write them, and their metadata."""
