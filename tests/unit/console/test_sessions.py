"""Sessions and the database of the console."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from pairbus.console.roles import ConsoleRole
from pairbus.console.sessions import MAX_SESSIONS, SessionStore, csrf_value
from pairbus.console.storage import ConsoleDatabase
from pairbus.console.tokens import ConsoleToken, TokenSigner
from pairbus.errors import ConfigurationError

NOW = 1_000_000.0


def token(*, once: bool = False, seconds: float = 3600) -> ConsoleToken:
    signer = TokenSigner(b"k" * 32)
    text = signer.issue(ConsoleRole.VIEWER, timedelta(seconds=seconds), NOW, once=once)
    content = signer.verify(text, NOW)
    assert content is not None
    return content


def test_sessions_and_used_links_survive_a_restart(tmp_path: Path):
    path = tmp_path / "console.sqlite3"
    database = ConsoleDatabase(path)
    link = token(once=True)
    created = SessionStore(database, NOW).create(link, NOW)
    assert created is not None
    database.close()

    sessions = SessionStore(ConsoleDatabase(path), NOW)

    assert sessions.find(created[0], NOW) == created[1]
    assert sessions.create(link, NOW) is None


@pytest.mark.rule("O3")
def test_database_has_no_secret_and_is_private(tmp_path: Path):
    path = tmp_path / "console.sqlite3"
    database = ConsoleDatabase(path)
    created = SessionStore(database, NOW).create(token(), NOW)
    assert created is not None
    database.close()

    for secret in (created[0], csrf_value(created[0])):
        assert secret.encode() not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600


def test_number_of_sessions_is_bounded():
    sessions = SessionStore(ConsoleDatabase(None), NOW)
    first = sessions.create(token(seconds=10), NOW)
    assert first is not None
    last = None
    for _ in range(MAX_SESSIONS):
        last = sessions.create(token(), NOW)

    assert last is not None
    assert sessions.find(first[0], NOW) is None
    assert sessions.find(last[0], NOW) is not None


def test_file_that_is_no_database_is_refused(tmp_path: Path):
    path = tmp_path / "console.sqlite3"
    path.write_bytes(b"text" * 1000)

    with pytest.raises(ConfigurationError, match="Delete it"):
        ConsoleDatabase(path)


def test_database_of_another_version_is_refused(tmp_path: Path):
    path = tmp_path / "console.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()

    with pytest.raises(ConfigurationError, match="version 9"):
        ConsoleDatabase(path)


def test_sessions_work_without_the_database():
    database = ConsoleDatabase(None)
    sessions = SessionStore(database, NOW)
    database.close()

    created = sessions.create(token(), NOW)

    assert created is not None
    assert sessions.find(created[0], NOW) is not None
    assert database.problem is not None
