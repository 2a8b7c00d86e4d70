"""Reports for people: model cards, tables in the terminal, the page of ``report``."""
