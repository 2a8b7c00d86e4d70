"""Text to words and pieces, by the base tokenizer and by the expanded one."""
