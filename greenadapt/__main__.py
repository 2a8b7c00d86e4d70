"""``python -m greenadapt``: the same as the ``greenadapt`` command."""

from greenadapt.cli import main

if __name__ == "__main__":
    main()
