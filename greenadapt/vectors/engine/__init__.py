"""Training of CBOW vectors on the cores of one machine: parts of the text, compiled code, threads."""
