"""Follow the tutorial in an empty Debian, as a new user, and print what the terminal shows.

    make tutorial

The only differences to a new machine: sudo is installed and asks for no password, and the wheel of
dist/ is installed in the place of the package on PyPI. Needs root, and debootstrap from Debian.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

from scripts.environments import ROOT, ReleaseError, run
from scripts.sbom import find_wheel
from tests.documentation import Block, read_blocks
from tests.tutorial import PAGE, Shell, run_steps

FOLDER = ROOT / "build" / "tutorial"
USER = "reader"
PACKAGE = "pip install 'pairbus["
SET_UP = f"""
apt-get update -qq
apt-get install -qq --no-install-recommends sudo
useradd --create-home --shell /bin/bash {USER}
echo '{USER} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{USER}
"""
HOSTS = "127.0.0.1 localhost\n127.0.1.1 debian\n"
"""The names that the installer of Debian writes."""
ENTER = """
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
hostname debian
exec chroot "$@"
"""
"""Enters a folder, with mounts and a host name that end with the shell."""


def report(message: str) -> None:
    print(f"tutorial: {message}", flush=True)


def chroot(folder: Path, *command: str) -> list[str]:
    """Return a command that runs another one in a folder. Its processes end with it."""
    isolate = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child")
    return [*isolate, "sh", "-e", "-c", ENTER, "sh", str(folder), *command]


@contextmanager
def debian(suite: str) -> Iterator[Path]:
    """Create an empty Debian with a user."""
    folder = FOLDER / suite
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        run("debootstrap", "--variant=minbase", suite, folder, folder=FOLDER)
        (folder / "etc" / "hosts").write_text(HOSTS, encoding="ascii")
        shutil.copy("/etc/resolv.conf", folder / "etc")
        if (authority := os.environ.get("PIP_CERT")) is not None:  # this network needs it
            shutil.copy(authority, folder / "etc" / "authority.pem")
            settings = "[global]\ncert = /etc/authority.pem\n"
            (folder / "etc" / "pip.conf").write_text(settings, encoding="ascii")
        run(*chroot(folder, "sh", "-e", "-c", SET_UP), folder=FOLDER)
        yield folder
    finally:
        shutil.rmtree(folder)


def with_wheel(block: Block, wheel: str) -> Block:
    """Install a wheel in the place of the package on PyPI."""
    return replace(block, code=block.code.replace(PACKAGE, f"pip install '{wheel}["))


def follow(folder: Path, wheel: Path) -> None:
    """Run every block of the page as the user."""
    shutil.copy(wheel, folder / "opt")
    blocks = [with_wheel(block, f"/opt/{wheel.name}") for block in read_blocks(PAGE)]
    if not any(wheel.name in block.code for block in blocks):
        raise ReleaseError(f"The tutorial does not contain {PACKAGE!r}.")
    home = Path("home", USER)
    login = ("runuser", "--login", USER)
    shell = Shell(chroot(folder, *login), folder / home, {"PATH": os.environ["PATH"]})
    try:
        printed = 0
        for block, output in run_steps(shell, blocks, folder / home / "outage"):
            errors = shell.errors()
            print(*(f"$ {line}" for line in block.code.splitlines()), sep="\n")
            print(output, errors[printed:], sep="\n", flush=True)
            printed = len(errors)
    finally:
        shell.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Follow the tutorial in an empty Debian.")
    parser.add_argument("suites", nargs="*", default=["bookworm"], help="Releases of Debian.")
    start = monotonic()
    try:
        if os.geteuid() != 0 or shutil.which("debootstrap") is None:
            raise ReleaseError("Run this as root, with the Debian package debootstrap.")
        for suite in parser.parse_args().suites:
            with debian(suite) as folder:
                report(f"Debian {suite}, with the user {USER}")
                follow(folder, find_wheel())
    except (AssertionError, ReleaseError, subprocess.TimeoutExpired) as error:
        print(f"tutorial: {error}", file=sys.stderr)
        return 1
    report(f"followed to its end in {monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
