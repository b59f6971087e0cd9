"""Build the sdist, and the wheel from it, and check their contents."""

import sys
import tarfile
import zipfile
from pathlib import Path

from scripts.environments import PINS, ROOT, ReleaseError, create_environment, install, run

IN_WHEEL = (
    "py.typed",
    "console/static/index.html",
    "console/static/vendor/uplot/LICENSE",
    "cost/page.html.j2",
    "cost/prices.toml",
    "spark/log4j2.properties",
)
IN_SDIST = ("CHANGELOG.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "constraints.txt")
NOT_IN_SDIST = (".venv", "node_modules", "__pycache__", "build", "dist", ".hypothesis")


def build(folder: Path) -> tuple[Path, Path]:
    """Build both, and return the sdist and the wheel."""
    python = create_environment(folder, "builder")
    install(python, "hatchling", folder=folder)
    run(python, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder, folder=ROOT)
    (sdist,) = folder.glob("pairbus-*.tar.gz")
    check_sdist(sdist)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps")
    run(*pip, "--build-constraint", PINS, "--wheel-dir", folder, sdist, folder=folder)
    (wheel,) = folder.glob("pairbus-*.whl")
    check_wheel(wheel)
    return sdist, wheel


def check_sdist(sdist: Path) -> None:
    """Check that the sdist has the files of the project, and no generated ones."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    missing = [name for name in IN_SDIST if name not in names]
    unexpected = [name for name in names if set(name.split("/")) & set(NOT_IN_SDIST)]
    if missing or unexpected:
        raise ReleaseError(f"The sdist lacks {missing}, and has unexpected files: {unexpected}.")


def check_wheel(wheel: Path) -> None:
    """Check that the wheel is pure Python, and has all data files and nothing else."""
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise ReleaseError(f"{wheel.name} is not a wheel for every platform.")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(f"{wheel.stem.split('-py')[0]}.dist-info/entry_points.txt")
    missing = [name for name in IN_WHEEL if f"pairbus/{name}" not in names]
    unexpected = [name for name in names if name.split("/")[0].split("-")[0] != "pairbus"]
    if missing or unexpected:
        raise ReleaseError(f"The wheel lacks {missing}, and has unexpected files: {unexpected}.")
    if b"[pytest11]" not in entry_points:
        raise ReleaseError("The wheel does not register the pytest plugin.")
