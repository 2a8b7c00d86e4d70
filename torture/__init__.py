"""Tries to break greenadapt: faults, hostile input, load. See ``__main__``."""
