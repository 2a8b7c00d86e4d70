"""The version of greenadapt, in a file that every module can import."""

__version__ = "0.3.0"
