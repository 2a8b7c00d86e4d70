"""The pages that ``serve`` shows: static files, without code of others."""
