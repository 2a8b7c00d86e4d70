"""Raw text to words: recipes say where a corpus is, readers make documents of its files, words.py counts the words."""
