"""Fixtures of the commands: a backlog in two namespaces, and keys with few rights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.emulator import EmulatorProcess, LocalNamespace
from pairbus.emulator.auth import Right, SharedAccessRule
from tests.backlog import Backlog
from tests.commands import KEY

RULES = tuple(
    SharedAccessRule(name=right.value, primary_key=KEY, rights=frozenset({right}))
    for right in (Right.LISTEN, Right.SEND)
)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with (
        LocalNamespace("primary") as primary,
        LocalNamespace("secondary", rules=RULES, token_issuer=primary.token_issuer) as secondary,
    ):
        yield primary, secondary


@pytest.fixture
def backlog(namespaces: tuple[LocalNamespace, LocalNamespace]) -> Backlog:
    backlog = Backlog(*namespaces)
    backlog.arguments += ("--timeout", "60")  # the machine may be busy
    return backlog


@pytest.fixture
def listen_key(backlog: Backlog) -> str:
    """A connection string of the secondary with the Listen right alone."""
    return backlog.secondary.connection_string_of("Listen", KEY)


@pytest.fixture
def send_key(backlog: Backlog) -> str:
    """A connection string of the secondary with the Send right alone."""
    return backlog.secondary.connection_string_of("Send", KEY)


@pytest.fixture
def paused_emulator(tmp_path: Path) -> Iterator[EmulatorProcess]:
    """A namespace in a process that was stopped with SIGSTOP."""
    with EmulatorProcess(folder=tmp_path) as emulator, emulator.paused():
        yield emulator
        assert emulator.is_paused


@pytest.fixture
def stopped_namespace() -> str:
    """The connection string of a namespace that has stopped."""
    with LocalNamespace("stopped") as stopped:
        return stopped.connection_string
