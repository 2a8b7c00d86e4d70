"""What greenadapt knows of each architecture of transformers: a file for each, found by ``registry``."""
