"""The tables of a namespace's SQLite file, and their migrations."""

import sqlite3

TABLES = (
    "entity",
    "message",
    "message_group",
    "removed_from_group",
    "rule",
    "seen",
    "session_state",
    "meter",
    "clock",
)

_MIGRATIONS = [
    # `entity` is the id of an entity in `rule` and `seen`, and that of a queue in `session_state`.
    """
    CREATE TABLE entity (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        path TEXT NOT NULL UNIQUE COLLATE NOCASE,
        kind TEXT NOT NULL,
        description TEXT NOT NULL,
        next_sequence INTEGER NOT NULL DEFAULT 1,
        created_ms INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        accessed_ms INTEGER NOT NULL
    );
    CREATE TABLE message (
        key INTEGER PRIMARY KEY,
        state INTEGER NOT NULL,
        enqueued_ms INTEGER NOT NULL,
        expires_ms INTEGER,
        due_ms INTEGER,
        deliveries INTEGER NOT NULL,
        session TEXT,
        size INTEGER NOT NULL,
        header BLOB NOT NULL,
        annotation_count INTEGER NOT NULL,
        annotations BLOB NOT NULL,
        rest BLOB NOT NULL
    );
    CREATE INDEX message_expires ON message (expires_ms)
        WHERE expires_ms IS NOT NULL AND state <> 1;
    CREATE INDEX message_due ON message (due_ms) WHERE due_ms IS NOT NULL;
    CREATE INDEX message_session ON message (session) WHERE session IS NOT NULL;
    CREATE INDEX message_aside ON message (state) WHERE state <> 0;
    CREATE TABLE rule (
        entity INTEGER NOT NULL,
        name TEXT NOT NULL COLLATE NOCASE,
        description TEXT NOT NULL,
        PRIMARY KEY (entity, name)
    ) WITHOUT ROWID;
    CREATE TABLE seen (
        entity INTEGER NOT NULL,
        message_id TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        PRIMARY KEY (entity, message_id)
    ) WITHOUT ROWID;
    CREATE INDEX seen_until ON seen (until_ms);
    CREATE TABLE session_state (
        entity INTEGER NOT NULL,
        session TEXT NOT NULL,
        state BLOB,
        updated_ms INTEGER NOT NULL,
        PRIMARY KEY (entity, session)
    ) WITHOUT ROWID;
    CREATE TABLE meter (
        entity TEXT NOT NULL,
        kind TEXT NOT NULL,
        operations INTEGER NOT NULL,
        messages INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        units INTEGER NOT NULL,
        PRIMARY KEY (entity, kind)
    ) WITHOUT ROWID;
    """,
    # One row, or none if the clock was never advanced.
    "CREATE TABLE clock (id INTEGER PRIMARY KEY, offset_ms INTEGER NOT NULL);",
    # `key` is that of the last message. `numbers` are the sizes of the messages, and the numbers of
    # bytes that each has in `rest`, as unsigned integers of 32 bits.
    """
    CREATE TABLE message_group (
        key INTEGER PRIMARY KEY,
        count INTEGER NOT NULL,
        enqueued_ms INTEGER NOT NULL,
        header BLOB NOT NULL,
        annotation_count INTEGER NOT NULL,
        annotations BLOB NOT NULL,
        size INTEGER NOT NULL,
        numbers BLOB NOT NULL,
        rest BLOB NOT NULL
    );
    CREATE TABLE removed_from_group (key INTEGER PRIMARY KEY, bits INTEGER NOT NULL);
    """,
]
"""One script per version of the schema. A script is never changed once it was released."""


def prepare(database: sqlite3.Connection) -> None:
    """Set up durability, and migrate the file to the newest version of the schema."""
    # FULL: every commit waits until the log is on disk. The next start replays the log.
    # Some builds of SQLite overwrite deleted messages by default, which takes longer than deleting.
    database.executescript(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "PRAGMA secure_delete = OFF;"
        "PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = 4000;"
    )
    (version,) = database.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
        database.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
