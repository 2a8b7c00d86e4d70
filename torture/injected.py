"""The program with a fault in it, in a process that was forked from one with everything imported (``Forked``)."""

import ctypes
import json
import resource
import sys
from pathlib import Path
from typing import Any

CODE = "from torture.injected import main; main()"


def main() -> None:
    """Run ``greenadapt`` with the arguments after the first one, which says as JSON what goes wrong."""
    _, faults_text, *arguments = sys.argv
    faults: dict[str, Any] = json.loads(faults_text)
    shim: Any = ctypes.CDLL(None)
    begin = _status("VmSize")
    if "clock" in faults:
        seconds, reads = faults["clock"]
        shim.torture_clock(ctypes.c_long(seconds), ctypes.c_long(reads))
    if "arm" in faults:
        folder, n, error, goes_on = faults["arm"]
        shim.torture_arm(folder.encode(), ctypes.c_long(n), ctypes.c_int(error), ctypes.c_int(goes_on))
    if "memory" in faults:
        resource.setrlimit(resource.RLIMIT_AS, (begin + faults["memory"],) * 2)
    if "file_bytes" in faults:
        resource.setrlimit(resource.RLIMIT_FSIZE, (faults["file_bytes"],) * 2)
    if "patience" in faults:
        from greenadapt.corpus import download

        download._TIMEOUT = (faults["patience"],) * 2
    if "hub" in faults:
        from huggingface_hub import constants

        constants.ENDPOINT, constants.HF_HUB_OFFLINE = faults["hub"], False
        constants.HF_HUB_DISABLE_XET = True  # large files by the older protocol
    from greenadapt.cli import main as greenadapt

    sys.argv = ["greenadapt", *arguments]
    try:
        greenadapt()
    finally:
        if "count" in faults:
            figures = {"changes": shim.torture_count() if "arm" in faults else 0, "memory": _status("VmPeak") - begin}
            Path(faults["count"]).write_text(json.dumps(figures))


def _status(name: str) -> int:
    """A size of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise ValueError(name)
