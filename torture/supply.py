"""What greenadapt is built on: licences of what is installed, and hashes of the versions that are checked.

    python torture/supply.py licences          # of the installed packages that greenadapt and its extras need
    python torture/supply.py hashes            # constraints-hashes.txt has the versions of constraints.txt
    python torture/supply.py vulnerabilities   # of constraints.txt, by pip-audit in build/audit; needs the network

``make audit`` runs all three, and writes a list of all parts (SBOM, CycloneDX).
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
ALLOWED = re.compile(
    r"""(?: \(?MIT(?:-0|-CMU|\ License)?\)? | Expat | (?:3-Clause\ )?(?:new\ |modified\ |simplified\ )?BSD\b.*
    | BSD-[0-9]-Clause.* | 0BSD | (?:The\ )?Apache\b.* | ISC\b.* | (?:PSF|Python|CNRI)\b.* | MPL[-\ ]?2\.0.*
    | Mozilla\ Public.*2\.0.* | (?:The\ )?Unlicense.* | Public\ Domain | HPND\b.* | Historical\ Permission.*
    | Zlib\b.* | BSL-1\.0 | CC0-1\.0 | LGPL-2\.1\b.* | Zope.* | Blue\ Oak.* | Unicode-.* )$""",
    re.VERBOSE | re.IGNORECASE,
)
"""Of each part of a licence; gensim's LGPL is met by importing it unchanged."""
STATED = {"openvino": "Apache-2.0", "nncf": "Apache-2.0"}
"""Licences that packages say in no field that can be read, as their sites do."""


def dependencies(name: str = "greenadapt") -> dict[str, Distribution]:
    """By name, the installed distributions that one needs with all its extras, itself left out."""
    distributions: dict[str, Distribution] = {}
    waiting = [(name, "")]
    seen = set()
    while waiting:
        key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        try:
            installed = distribution(key[0])
        except PackageNotFoundError:
            continue
        distributions[canonicalize_name(key[0])] = installed
        for text in installed.requires or ():
            needed = Requirement(text)
            extras = ["", key[1]] if key[0] != name else ["", *installed.metadata.get_all("Provides-Extra", [])]
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting += [(canonicalize_name(needed.name), extra) for extra in ("", *needed.extras)]
    distributions.pop(canonicalize_name(name), None)
    return dict(sorted(distributions.items()))


def licence_of(package: Distribution) -> str:
    """A distribution's licence: its expression, else its classifiers, else the first line of its field; "" if none."""
    metadata = package.metadata
    if expressions := metadata.get_all("License-Expression", []):
        return str(expressions[0])
    classifiers = [
        classifier for classifier in metadata.get_all("Classifier", []) if classifier.startswith("License :: ")
    ]
    named = [classifier.rpartition(" :: ")[2] for classifier in classifiers if classifier.count(" :: ") > 1]
    if named:
        return " OR ".join(named)
    return "".join(metadata.get_all("License", [])).strip().split("\n")[0]


def refused(licence: str) -> list[str]:
    """The parts of a licence that are not allowed; of alternatives one has to be."""
    parts = [part.strip(" ()") for part in re.split(r"\bAND\b|;", licence)]
    return [part for part in parts if not any(ALLOWED.match(name.strip(" ()")) for name in re.split(r"\bOR\b|/", part))]


def check_licences() -> Iterator[str]:
    """Problems of the licences of installed packages."""
    for name, package in dependencies().items():
        licence = STATED.get(name) or licence_of(package)
        if not licence:
            yield f"{name} {package.version} states no licence"
        elif parts := refused(licence):
            yield f"{name} {package.version} has the licence {licence}, of which {' and '.join(parts)} is not allowed"


def check_hashes() -> Iterator[str]:
    """Where constraints-hashes.txt differs from constraints.txt."""
    versions, hashed = (_versions(ROOT / f"{name}.txt") for name in ("constraints", "constraints-hashes"))
    for name in sorted({*versions, *hashed}):
        if versions.get(name) != hashed.get(name):
            yield f"{name}: {versions.get(name)} in constraints.txt, {hashed.get(name)} in constraints-hashes.txt"
    blocks = re.split(r"\n(?=\S)", (ROOT / "constraints-hashes.txt").read_text("utf-8"))
    for block in blocks:
        if "==" in block and not block.startswith("#") and not re.search(r"--hash=sha256:[0-9a-f]{64}", block):
            yield f"{block.split('==')[0]} has no hash"


def check_vulnerabilities() -> Iterator[str]:
    """Known vulnerabilities of the versions in constraints.txt, and packages that could not be looked up."""
    command = [str(ROOT / "build" / "audit" / "bin" / "pip-audit"), "-r", str(ROOT / "constraints.txt")]
    process = subprocess.run([*command, "--no-deps", "--disable-pip", "-f", "json"], capture_output=True, text=True)
    try:
        packages = json.loads(process.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = process.stderr.strip().splitlines()[-1:] or ["nothing was said"]
        print(f"VULNERABILITIES WERE NOT CHECKED: pip-audit failed ({last[0]})", file=sys.stderr)
        return
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped:
        n = f"{len(skipped)} of {len(packages)} packages"
        print(f"VULNERABILITIES WERE NOT CHECKED of {n}, such as {skipped[0]}", file=sys.stderr)
    for package in packages:
        for vulnerability in package.get("vulns", ()):
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
            yield f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}"


def _versions(path: Path) -> dict[str, str]:
    lines = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


def main() -> int:
    """Print the problems; the exit code is 1 if there are any."""
    checks = {"licences": check_licences, "hashes": check_hashes, "vulnerabilities": check_vulnerabilities}
    problems = [problem for check in sys.argv[1:] or checks for problem in checks[check]()]
    print(
        "\n".join(problems)
        if problems
        else f"{', '.join(sys.argv[1:] or checks)}: nothing wrong in what could be checked"
    )
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
