"""What is on disk, whoever wrote it."""
