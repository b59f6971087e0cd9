"""Write the software bill of materials of the built wheel to dist/, in the CycloneDX format.

It lists every package that `pip install 'pairbus[all]'` installs with the pins of constraints.txt,
with versions, licences and hashes. The tool that writes it has an environment of its own.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.environments import ROOT, ReleaseError, create_environment, group, install, run

LIST = """
import json
from importlib import metadata
print(json.dumps({package.name: package.version for package in metadata.distributions()}))
"""


def find_wheel() -> Path:
    """Return the wheel of `make wheel`."""
    wheels = list((ROOT / "dist").glob("pairbus-*.whl"))
    if len(wheels) != 1:
        raise ReleaseError(f"dist/ has {len(wheels)} wheels. Run: make wheel")
    return wheels[0]


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def write(wheel: Path, folder: Path) -> Path:
    """Write the bill of materials of a wheel, and return its path."""
    python = create_environment(folder)
    install(python, f"{wheel}[all]", folder=folder)
    tool = create_environment(folder, "tool").with_name("cyclonedx-py")
    install(tool.with_name("python"), *group("release"), folder=folder)
    draft = folder / "draft.json"
    run(
        *(tool, "environment", "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library"),
        *("--output-reproducible", "--validate", "--output-file", draft, python),
        folder=folder,
    )
    installed = json.loads(run(python, "-I", "-c", LIST, folder=folder).stdout)
    bill = json.loads(draft.read_text(encoding="utf-8"))
    # pyproject.toml has no version: it is in the source.
    bill["metadata"]["component"]["version"] = installed.pop("pairbus")
    check(bill, installed)
    path = wheel.with_name(f"{wheel.name.split('-py')[0]}.cdx.json")
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    return path


def check(bill: dict[str, Any], installed: dict[str, str]) -> None:
    """Check that the bill lists exactly the other installed packages, each with a licence."""
    if (name := bill["metadata"]["component"]["name"]) != "pairbus":
        raise ReleaseError(f"The bill is of {name}.")
    expected = {normalized(name): version for name, version in installed.items()}
    listed = {normalized(each["name"]): each["version"] for each in bill["components"]}
    if listed != expected:
        differing = sorted(listed.items() ^ expected.items())
        raise ReleaseError(f"The bill and the environment differ: {differing}.")
    unlicensed = sorted(each["name"] for each in bill["components"] if not each.get("licenses"))
    if unlicensed:
        raise ReleaseError(f"The bill has no licence of {unlicensed}.")


def main() -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="pairbus-sbom-") as name:
            path = write(find_wheel(), Path(name).resolve())
    except ReleaseError as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    count = len(json.loads(path.read_text(encoding="utf-8"))["components"])
    print(f"sbom: {path.relative_to(ROOT)}, {count} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
