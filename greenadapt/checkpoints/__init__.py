"""Model folders: find, read, write and interpolate them, and their metadata."""
