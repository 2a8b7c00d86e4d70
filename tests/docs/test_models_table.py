"""The table of what each command supports is what the code says."""

import sys
from pathlib import Path

SITE = Path(__file__).parents[2] / "docs" / "site"
sys.path.append(str(SITE))


def test_the_tables_of_models_are_up_to_date() -> None:
    import models

    page = models.GUIDE.read_text("utf-8")
    assert models.with_tables(page) == page, "run python docs/site/models.py"
