"""One function per command, from folder to folder: reading, algorithm and writing together."""
