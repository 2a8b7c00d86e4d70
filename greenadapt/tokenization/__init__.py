"""Text to words and pieces, with the base tokenizer and the expanded one."""
