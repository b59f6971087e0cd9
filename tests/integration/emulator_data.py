"""The data that a namespace stores."""

import sqlite3
from contextlib import closing
from typing import Any

from pairbus.amqp.sections import Message
from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.storage.schema import TABLES


def stored(namespace: LocalNamespace, path: str = "q") -> list[str]:
    """Return the bodies of the messages in a queue."""
    payloads = namespace.call(
        lambda core: [message.rest for message in core.entities.get(path).queue.peek(0, 99)]
    )
    return [Message.parse(payload).read_body()[1][0].decode() for payload in payloads]


def contents(namespace: LocalNamespace) -> dict[str, list[tuple[Any, ...]]]:
    """Return all stored data except the meter, which may count requests of a bad client."""
    namespace.call(lambda core: None)  # commit pending writes
    with closing(sqlite3.connect(namespace.folder / "namespace.db")) as db:
        tables = dict.fromkeys(TABLES, "*") | {"entity": "id, path, kind, description"}
        del tables["meter"]
        return {
            table: db.execute(f"SELECT {columns} FROM {table}").fetchall()
            for table, columns in tables.items()
        }
