"""Builds images with buildah and runs them, without a daemon and without a registry.

The base image is made with debootstrap. A container is a chroot into the files of an image: as the
user of the image, without capabilities, with a read-only root, temporary folders for its volumes,
and a network of its own. It needs root, and the Debian packages buildah and debootstrap.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.environments import ROOT, ReleaseError, run

FOLDER = ROOT / "build" / "images"
SUITE = "trixie"
BASE = "localhost/pairbus-base"
WAIT_S = 180.0
APT_SETTINGS = """\
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
"""
SLIM = ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists")
"""Folders that the slim images of Debian leave out, and caches."""


def buildah(*arguments: str | Path) -> str:
    """Run buildah with a storage folder of its own, and return its output."""
    storage = ("--root", FOLDER / "storage", "--runroot", FOLDER / "run", "--storage-driver", "vfs")
    return run("buildah", *storage, *arguments, folder=ROOT).stdout.strip()


def check_tools() -> None:
    """Raise ReleaseError if something is missing."""
    missing = [name for name in ("buildah", "debootstrap", "ip") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        raise ReleaseError(
            "Images are built as root, with the Debian packages buildah, debootstrap and iproute2. "
            f"Missing: {', '.join(missing) or 'root'}."
        )


def create_base() -> None:
    """Create the base image, unless an earlier run did."""
    if BASE in buildah("images", "--format", "{{.Name}}").split():
        return
    folder = FOLDER / "base"
    shutil.rmtree(folder, ignore_errors=True)
    run("debootstrap", "--variant=minbase", SUITE, folder, folder=FOLDER)
    # As in the image debian:trixie-slim.
    (folder / "etc" / "apt" / "apt.conf.d" / "docker-clean").write_text(APT_SETTINGS)
    for name in SLIM:
        shutil.rmtree(folder / name)
    for name in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial"):
        (folder / name).mkdir(parents=True)
    container = buildah("from", "scratch")
    buildah("add", container, folder, "/")
    buildah("commit", "--rm", container, BASE)
    shutil.rmtree(folder)


def build_image(dockerfile: Path) -> str:
    """Build an image, and return its name."""
    name = f"localhost/pairbus-{dockerfile.stem}"
    options: list[str | Path] = ["--isolation", "chroot", "--build-arg", f"BASE={BASE}"]
    if (authority := os.environ.get("PIP_CERT")) is not None:  # this machine needs it
        settings = FOLDER / "pip.conf"
        settings.write_text("[global]\ncert = /run/authority.pem\n", encoding="utf-8")
        options += ["--volume", f"{authority}:/run/authority.pem:ro"]
        options += ["--volume", f"{settings}:/etc/pip.conf:ro"]
    buildah("bud", *options, "--format", "docker", "--file", dockerfile, "--tag", name, ROOT)
    return name


@contextmanager
def files_of(image: str) -> Iterator[Path]:
    """Mount the files of an image."""
    container = buildah("from", "--pull-never", image)
    try:
        yield Path(buildah("mount", container))
    finally:
        buildah("rm", container)


def configuration_of(image: str) -> dict[str, Any]:
    """Return the configuration of an image."""
    inspected = json.loads(buildah("inspect", "--type", "image", image))
    configuration: dict[str, Any] = inspected["Docker"]["config"]
    return configuration


class Container:
    """A running container of an image, in a network namespace, until the end of a `with` block."""

    def __init__(
        self, image: str, files: Path, network: str, *arguments: str, **variables: str
    ) -> None:
        self.configuration = configuration_of(image)
        # As a container engine does it.
        hosts = f"127.0.0.1 localhost {socket.gethostname()}\n"
        (files / "etc" / "hosts").write_text(hosts, encoding="ascii")
        self._variables = self.configuration["Env"] + [f"{k}={v}" for k, v in variables.items()]
        self.log = FOLDER / f"{image.rpartition('/')[2]}-{arguments[0]}.log"
        mounts = [
            f"mount --bind {files} {files}",
            f"mount -t proc proc {files}/proc",
            f"mount --rbind /dev {files}/dev",
            f"mount -t tmpfs -o mode=1777 tmpfs {files}/tmp",
        ]
        mounts += [
            f"mount -t tmpfs -o uid=10001,gid=10001 tmpfs {files}{volume}"
            for volume in self.configuration.get("Volumes") or {}
        ]
        mounts.append(f"mount -o remount,bind,ro {files}")
        command = shlex.join(self._restricted(files, *self.configuration["Entrypoint"], *arguments))
        script = " && ".join([*mounts, f"exec {command}"])
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", network, "unshare", "--mount", "sh", "-c", script],
                stdout=log,
                stderr=log,
            )
        self._files = files

    def _restricted(self, files: Path, *command: str) -> list[str]:
        user = self.configuration["User"]
        drop = ("--bounding-set=-all", "--no-new-privs", "--clear-groups")
        inside = ("setpriv", f"--reuid={user}", f"--regid={user}", *drop)
        environment = ("env", "-i", f"--chdir={self.configuration['WorkingDir']}")
        return ["chroot", str(files), *inside, *environment, *self._variables, *command]

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the container, as its user."""
        enter = ("nsenter", "--mount", "--net", f"--target={self._process.pid}")
        return subprocess.run(
            [*enter, *self._restricted(self._files, *command)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def status(self) -> dict[str, str]:
        """Return what the kernel says about the first process."""
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        lines = (line.partition(":") for line in text.splitlines())
        return {name: value.strip() for name, _, value in lines}

    def is_healthy(self) -> bool:
        """Run the health check of the image."""
        kind, *command = self.configuration["Healthcheck"]["Test"]
        assert kind == "CMD", kind
        return self.run(*command).returncode == 0

    def wait_until_healthy(self) -> float:
        """Wait for the health check to succeed, and return the time that it took."""
        return self.wait_until(self.is_healthy)

    def wait_until(self, condition: Callable[[], bool]) -> float:
        """Wait for a condition, and return the time that it took."""
        start = time.monotonic()
        while not condition():
            if self._process.poll() is not None or time.monotonic() > start + WAIT_S:
                raise ReleaseError(f"The container does not work:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.5)
        return time.monotonic() - start

    def stop(self) -> int:
        """Stop the container as a container engine does, and return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
