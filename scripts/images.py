"""Build the images of deploy/images, run them, and build the manifests of deploy/kubernetes.

    make images

The checks: the user, the read-only root, the health checks of emulator, console and syphon, a drain
by the syphon, and the end after SIGTERM. kustomize comes from Debian.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import kubernetes_validate
import yaml

from scripts.containers import (
    BASE,
    FOLDER,
    Container,
    build_image,
    buildah,
    check_tools,
    create_base,
    files_of,
)
from scripts.environments import ROOT, ReleaseError, run
from scripts.sbom import find_wheel

DOCKERFILES = ROOT / "deploy" / "images"
MAX_SIZES_MB = {"console": 300, "syphon": 1500}
STORE = """
import sys
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pairbus.servicebus.backlog_paths import backlog_path
from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.transfer import to_backlog
with Client(ClientOptions.from_connection_string(sys.argv[2])) as client:
    message = Message.build(data=b"hello").encode()
    Sender(client, backlog_path("primary", 0)).send_batch([to_backlog(message, "orders")])
with ServiceBusClient.from_connection_string(sys.argv[1]) as client:
    with client.get_queue_receiver("orders", max_wait_time=120) as receiver:
        print(next(receiver))
"""
CREATE = """
import sys
from pairbus.servicebus.administration import AdministrationClient, AdministrationOptions
from pairbus.servicebus.backlog_paths import backlog_path
with AdministrationClient(AdministrationOptions.from_connection_string(sys.argv[1])) as client:
    client.create_queue(backlog_path("primary", 0))
"""


def report(message: str) -> None:
    print(f"images: {message}", flush=True)


@contextmanager
def network() -> Iterator[str]:
    """Create a network namespace with a loopback interface."""
    name = f"pairbus-images-{os.getpid()}"
    run("ip", "netns", "add", name, folder=FOLDER)
    try:
        run("ip", "-n", name, "link", "set", "lo", "up", folder=FOLDER)
        yield name
    finally:
        run("ip", "netns", "del", name, folder=FOLDER)


def check_restrictions(container: Container) -> str:
    """Check the user and the root file system of a container."""
    status = container.status()
    if set(status["Uid"].split() + status["Gid"].split()) != {"10001"}:
        raise ReleaseError(f"The user of the container is {status['Uid']}.")
    if int(status["CapBnd"], 16) or int(status["CapEff"], 16) or status["NoNewPrivs"] != "1":
        raise ReleaseError(f"The container has capabilities: {status}")
    for path in ("/opt/pairbus/file", "/etc/file", "/file"):
        result = container.run("touch", path)
        if result.returncode == 0:
            raise ReleaseError(f"{path} of the container can be written.")
    if "Read-only file system" not in result.stderr:
        raise ReleaseError(f"The root of the container is not read-only: {result.stderr}")
    return "user 10001, read-only root, no capabilities"


def check_size(name: str, files: Path) -> str:
    """Check the size of an image."""
    size = int(run("du", "--summarize", "--bytes", files, folder=FOLDER).stdout.split()[0]) / 1e6
    if size > MAX_SIZES_MB[name]:
        raise ReleaseError(f"The image {name} has {size:.0f} MB, more than {MAX_SIZES_MB[name]}.")
    return f"{size:.0f} MB"


def run_here(network: str, code: str, *arguments: str) -> str:
    """Run a program of this machine in the network of the containers."""
    command = ("ip", "netns", "exec", network, sys.executable, "-c", code, *arguments)
    return run(*command, folder=FOLDER).stdout.strip()


def check_images(console: str, syphon: str) -> None:
    """Run the emulator, the console and the syphon, and drain a backlog."""
    with (
        network() as net,
        files_of(console) as emulator_files,
        files_of(console) as console_files,
        files_of(syphon) as syphon_files,
    ):
        report(f"console: {check_size('console', console_files)}")
        report(f"syphon: {check_size('syphon', syphon_files)}")
        namespaces = ("--namespace", "primary", "--namespace", "secondary", "--queue", "orders")
        arguments = ("emulator", *namespaces, "--port", "5671", "--json", "--folder", "data")
        with Container(console, emulator_files, net, *arguments) as emulator:
            if emulator.is_healthy():
                raise ReleaseError("The emulator is healthy before it listens.")
            seconds = emulator.wait_until_healthy()
            report(f"emulator: {check_restrictions(emulator)}; healthy after {seconds:.1f} s")
            emulator.wait_until(lambda: "}]}" in emulator.log.read_text())
            values = json.loads(emulator.log.read_text().splitlines()[0])["namespaces"]
            primary, secondary = (each["connection_string"] for each in values)
            run_here(net, CREATE, secondary)
            variables = {
                "PAIRBUS_PRIMARY": primary,
                "PAIRBUS_SECONDARY": secondary,
                "PAIRBUS_PRIMARY_NAME": "primary",
                "PAIRBUS_BACKLOG_QUEUES": "1",
            }
            with Container(console, console_files, net, "console", **variables) as running:
                # The check of the image succeeds with the emulator alone, in the same network.
                health = ("python", "/opt/pairbus/health.py", "--console", "8710")
                seconds = running.wait_until(lambda: running.run(*health).returncode == 0)
                report(f"console: {check_restrictions(running)}; healthy after {seconds:.1f} s")
                report(f"console: exit status {running.stop()} after SIGTERM")
            check_syphon(syphon, syphon_files, net, variables)
            report(f"emulator: exit status {emulator.stop()} after SIGTERM")


def check_syphon(syphon: str, files: Path, net: str, variables: dict[str, str]) -> None:
    """Drain a message with the syphon, and stop it."""
    arguments = ("syphon", "--status-file", "/tmp/syphon.json", "--metrics-port", "9464")
    with Container(syphon, files, net, *arguments, **variables) as running:
        seconds = running.wait_until_healthy()
        message = run_here(net, STORE, variables["PAIRBUS_PRIMARY"], variables["PAIRBUS_SECONDARY"])
        if message != "hello":
            raise ReleaseError(f"The syphon did not deliver the message: {message!r}")
        restrictions = check_restrictions(running)
        lines = running.run("ps", "-U", "10001", "-o", "rss=,args=").stdout.splitlines()
        used_mb = sum(int(line.split()[0]) for line in lines if " emulator " not in line) / 1000
        if (status := running.stop()) != 0:
            raise ReleaseError(
                f"The syphon ended with {status}:\n{running.log.read_text()[-2000:]}"
            )
    report(
        f"syphon: {restrictions}; healthy after {seconds:.1f} s; delivered a message; "
        f"{used_mb:.0f} MB of memory; exit status 0 after SIGTERM"
    )


def check_manifests() -> None:
    """Build the overlays with kustomize, and validate every object."""
    container = buildah("from", "--pull-never", BASE)
    try:
        shell = "apt-get update -qq && apt-get install -qq --no-install-recommends kustomize"
        buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", shell)
        buildah("add", container, ROOT / "deploy" / "kubernetes", "/kubernetes")
        kustomize = ("run", "--isolation", "chroot", container, "--", "kustomize", "build")
        for overlay in ("base", "example"):
            objects = list(yaml.safe_load_all(buildah(*kustomize, f"/kubernetes/{overlay}")))
            for each in objects:
                kubernetes_validate.validate(
                    each, kubernetes_validate.latest_version(), strict=True
                )
            report(f"kustomize build {overlay}: {len(objects)} valid objects")
        enable = "sed -i 's/^# components:/components:/; s/^#   - /  - /'"
        example = "/kubernetes/example/kustomization.yaml"
        buildah(*kustomize[:5], "sh", "-c", f"{enable} {example}")
        text = buildah(*kustomize, "/kubernetes/example")
        if text.count("name: pairbus-namespaces") != 2:
            raise ReleaseError("The component connection-strings does not change both containers.")
        report("kustomize build example with connection-strings: both containers get the secret")
    finally:
        buildah("rm", container)


def main() -> int:
    start = monotonic()
    try:
        check_tools()
        FOLDER.mkdir(parents=True, exist_ok=True)
        find_wheel()
        create_base()
        report(f"base image: {BASE}")
        check_manifests()
        console, syphon = (
            build_image(DOCKERFILES / f"{name}.Dockerfile") for name in ("console", "syphon")
        )
        report(f"built {console} and {syphon}")
        check_images(console, syphon)
    except (ReleaseError, subprocess.TimeoutExpired) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    report(f"passed in {monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
