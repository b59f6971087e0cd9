"""Credentials that are created in each worker, and credentials that stay in the driver."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pairbus.amqp.client import Credential, HeldCredential
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import ConfigurationError
from pairbus.servicebus.tokens import TokenSource
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.query import Syphon
from tests.backlog import Backlog
from tests.commands import run
from tests.messages import message, numbered
from tests.spark.conftest import SparkOutput
from tests.spark.identity import Identity, RecordedCredential, created_in_each_worker
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("primary") as primary,
        LocalNamespace("secondary", token_issuer=primary.token_issuer) as secondary,
    ):
        yield primary, secondary


def with_tokens(options: SyphonOptions, tokens: TokenSource) -> SyphonOptions:
    return replace(
        options,
        primary=replace(options.primary, tokens=tokens),
        secondary=replace(options.secondary, tokens=tokens),
    )


def open_connections(namespace: LocalNamespace) -> int:
    """Return the number of connections that processes of this machine have to a namespace."""
    port = f":{namespace.port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[2].endswith(port) and line.split()[3] == "01" for line in lines)


def test_credential_is_created_in_the_workers_only(
    session: SparkSession, backlog: Backlog, tmp_path: Path
) -> None:
    path = backlog.path("one")
    options = with_tokens(
        backlog.options(), created_in_each_worker(backlog.primary.token_issuer, tmp_path)
    )
    backlog.put(path, numbered(100), queue=0)
    backlog.put(path, numbered(100, "n"), queue=1)
    with Syphon(options, spark=session) as syphon:
        wait_until(lambda: syphon.status().moved[path] == 200, "all messages")
        for n in range(8):
            backlog.put(path, [message(f"o-{n}")], queue=n % 2)
            wait_until(lambda n=n: syphon.status().moved[path] == 201 + n, "one more micro-batch")
        processes = {int(file.name) for file in tmp_path.iterdir()}
        # A worker reuses its connection, although each task gets a new copy of the options.
        assert open_connections(backlog.primary) <= len(processes)

    assert processes, "no credential was created"
    assert os.getpid() not in processes
    assert len(backlog.ids(path)) == 208


@pytest.mark.rule("A1")
def test_workers_get_tokens_of_the_driver_that_spark_shows_nowhere(
    session: SparkSession, backlog: Backlog, tmp_path: Path, spark_output: SparkOutput
) -> None:
    path = backlog.path("orders")
    credential = RecordedCredential(backlog.primary.token_issuer)
    options = with_tokens(backlog.options(), HeldCredential(credential))
    backlog.put(path, numbered(50))
    with Syphon(options, spark=session, checkpoint=str(tmp_path)) as syphon:
        wait_until(lambda: syphon.status().moved[path] == 50, "the first messages")
        used = len(credential.tokens)
        wait_until(lambda: len(credential.tokens) > used, "a new token")
        backlog.put(path, numbered(50, "n"))
        wait_until(lambda: syphon.status().moved[path] == 100, "the other messages")
        query = syphon._query
        assert query is not None
        plan = query._jsq.explainInternal(True)
        shown = spark_output.pages(session)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    shown |= {str(file): file.read_bytes() for file in (*files, *spark_output.files())}
    shown["plan"] = plan.encode()

    assert backlog.left() == 0
    assert any(b"SparkListenerTaskEnd" in content for content in shown.values()), "no event log"
    assert any("offsets" in name for name in shown), "no checkpoint"
    assert str(spark_output.log) in shown
    for token in credential.tokens:
        assert [name for name, content in shown.items() if token.encode() in content] == []


def test_credential_that_cannot_be_pickled_is_refused_when_options_are_created(
    backlog: Backlog, tmp_path: Path
) -> None:
    identity = Identity(str(backlog.primary.token_issuer.key_file), str(tmp_path))

    with pytest.raises(ConfigurationError, match="a function that creates the credential"):
        with_tokens(backlog.options(), Credential(lambda: identity))


@pytest.mark.soak
@pytest.mark.rule("A1")
def test_command_drains_with_hosts_and_the_default_credential(
    backlog: Backlog, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    namespaces = (backlog.primary, backlog.secondary)
    ca_file.write_text("".join(Path(each.ca_file).read_text() for each in namespaces))
    path = backlog.path("hosts")
    backlog.put(path, numbered(50))

    result = run(
        *("syphon", "--once", *backlog.arguments),
        *("--ca-file", str(ca_file)),
        PAIRBUS_PRIMARY=f"localhost:{backlog.primary.port}",
        PAIRBUS_SECONDARY=f"localhost:{backlog.secondary.port}",
        AZURE_TOKEN_CREDENTIALS="ManagedIdentityCredential",
        IDENTITY_ENDPOINT=backlog.primary.identity_endpoint,
        IDENTITY_HEADER=backlog.primary.token_issuer.identity_header,
    )

    assert result.returncode == 0, result.stderr
    assert "50 messages moved, 0 dead-lettered." in result.stdout
    assert (backlog.left(), len(backlog.ids(path))) == (0, 50)
