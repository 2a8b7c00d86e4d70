"""``python -m greenadapt``: the same as the ``greenadapt`` command."""

import signal

# Until the command line is imported, Ctrl-C ends the process without a traceback.
_on_ctrl_c = signal.getsignal(signal.SIGINT)
if _on_ctrl_c is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run the command line."""
    from greenadapt.cli import main

    signal.signal(signal.SIGINT, _on_ctrl_c)
    main()


if __name__ == "__main__":
    main()
