"""The page that ``serve`` shows: static files, without code of others."""
