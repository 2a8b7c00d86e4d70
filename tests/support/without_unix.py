"""greenadapt in an interpreter without what only Unix has, as on Windows, and without torch and gensim.

Prints a line of JSON with the modules that cannot be imported. Standard input has a command a line, a JSON list of
arguments: the command line runs it, and then a line of JSON has its exit code, what it printed, and its errors.
"""

import contextlib
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import sys
from types import ModuleType

import greenadapt

NOT_INSTALLED = ["torch", "transformers", "accelerate", "ray", "gensim"]
OF_UNIX = ["fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "posix", "syslog", "readline", "curses"]
ATTRIBUTES = {
    os: [
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "fork", "forkpty", "register_at_fork"),
        *("nice", "sysconf", "sched_getaffinity", "getloadavg", "uname", "statvfs", "pread", "pwrite", "sendfile"),
        *("posix_fadvise", "posix_fallocate", "mkfifo", "chown", "fchown", "fchmod", "getuid", "geteuid", "getgid"),
        *("setsid", "killpg", "getpgid", "WNOHANG", "EX_OK", "EX_TEMPFAIL", "EX_UNAVAILABLE"),
    ],
    signal: [
        *("SIGALRM", "SIGKILL", "SIGPIPE", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGQUIT"),
        *("setitimer", "ITIMER_REAL", "alarm", "pthread_sigmask"),
    ],
    select: ["poll", "epoll"],
}


def failures() -> dict[str, str]:
    """Module → why it cannot be imported."""
    failed = {}
    for module in pkgutil.walk_packages(greenadapt.__path__, "greenadapt."):
        if module.name != "greenadapt.__main__":
            try:
                importlib.import_module(module.name)
            except (ImportError, AttributeError) as error:
                failed[module.name] = str(error)
    return failed


def lesser(module: ModuleType) -> ModuleType:
    """A copy of a module without the attributes that only Unix has."""
    copy = ModuleType(module.__name__)
    vars(copy).update({name: value for name, value in vars(module).items() if name not in ATTRIBUTES[module]})
    return copy


def called(command: list[str]) -> tuple[object, str, str]:
    """Exit code, output and errors of a command."""
    sys.argv[1:] = command
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            importlib.import_module("greenadapt.cli").main()
        except SystemExit as end:
            return end.code, out.getvalue(), err.getvalue()
    raise AssertionError(f"{command} did not end")


def main() -> None:
    """Import everything, then greenadapt alone again without what is of Unix: other packages may use it here."""
    sys.modules.update(dict.fromkeys(NOT_INSTALLED))  # type: ignore[arg-type]
    failures()
    for name in [name for name in sys.modules if name.split(".")[0] == "greenadapt"]:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(OF_UNIX))  # type: ignore[arg-type]
    sys.modules.update({module.__name__: lesser(module) for module in ATTRIBUTES})
    failed = failures()
    sys.modules.update({module.__name__: module for module in ATTRIBUTES})
    sys.stdout.write(json.dumps(failed) + "\n")
    for line in sys.stdin:
        sys.stdout.write(json.dumps(called(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
