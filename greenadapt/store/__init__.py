"""Files and folders: reading, writing, locking, publishing."""
