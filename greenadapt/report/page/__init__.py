"""The page that shows results: its parts, its plots, and the HTML."""
