"""Masked language modelling, from the first step to the folder."""
