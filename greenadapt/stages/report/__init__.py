"""The report stage: results in, one page out."""
