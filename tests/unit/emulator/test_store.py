"""The store keeps exactly what was committed, and every query uses an index."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pairbus.emulator.storage.database import StoreFailed
from pairbus.emulator.storage.schema import _MIGRATIONS
from pairbus.emulator.storage.store import Store
from pairbus.emulator.storage.stored_message import MAX_SEQUENCE, StoredMessage
from pairbus.errors import StateError
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from tests.unit.emulator.entities.harness import crash
from tests.unit.emulator.entities.harness import stored_message as stored


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


def sequences(messages: list[StoredMessage]) -> list[int]:
    return [message.sequence for message in messages]


def reopen_after_kill(store: Store, path: Path) -> Store:
    """Return a new store on the file of one that was killed before it committed."""
    crash(store)
    return Store(path)


# Commits.


def test_kill_keeps_committed_writes_and_loses_uncommitted_ones(store: Store, path: Path) -> None:
    store.messages.put(4, stored(1))
    store.messages.put(4, stored(2))
    store.commit()
    store.messages.put(4, stored(3))
    store.messages.delete_all(4, [stored(1)])

    with reopen_after_kill(store, path) as again:
        assert sequences(again.messages.all_after(4, 0, 10)) == [1, 2]


@pytest.mark.rule("N4")
def test_file_without_a_clock_gets_one_that_is_not_ahead(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"{_MIGRATIONS[0]} PRAGMA user_version = 1;")
    with Store(path) as store:
        assert store.clock_offset_ms() == 0
        store.set_clock_offset_ms(7)
        store.set_clock_offset_ms(11)
    with Store(path) as store:
        assert store.clock_offset_ms() == 11


def test_reading_a_write_does_not_commit_it(store: Store, path: Path) -> None:
    store.messages.put(4, stored(1))
    assert sequences(store.messages.all_after(4, 0, 10)) == [1]

    with reopen_after_kill(store, path) as again:
        assert again.messages.all_after(4, 0, 10) == []


def test_reads_see_uncommitted_writes(store: Store) -> None:
    store.messages.put(4, stored(1))
    store.messages.put(4, stored(2))
    store.messages.delete_all(4, [stored(1)])

    assert sequences(store.messages.all_after(4, 0, 10)) == [2]


def test_store_is_dirty_from_a_write_to_the_commit(store: Store) -> None:
    assert not store.is_dirty
    store.messages.put(4, stored(1))
    assert store.is_dirty
    store.messages.get(4, 1)
    assert store.is_dirty
    store.commit()
    assert not store.is_dirty
    store.messages.delete_all(4, [stored(1)])
    assert store.is_dirty


def test_reading_leaves_nothing_to_commit(store: Store) -> None:
    store.messages.get(4, 1)
    store.messages.due(5, 10)
    store.messages.expired(5, 10)
    store.message_ids.delete_expired(5)

    assert not store.is_dirty


def test_closing_commits_and_can_be_repeated(path: Path) -> None:
    store = Store(path)
    store.messages.put(4, stored(1))
    store.close()
    store.close()

    with Store(path) as again:
        assert sequences(again.messages.all_after(4, 0, 10)) == [1]


def test_store_that_cannot_commit_is_closed(path: Path) -> None:
    store = Store(path)
    store.messages.put(4, stored(1, state=None))

    with pytest.raises(StoreFailed) as caught:
        store.close()
    assert isinstance(caught.value.__cause__, sqlite3.IntegrityError)
    with pytest.raises(sqlite3.ProgrammingError):
        store._database.connection.execute("SELECT 1")


def test_failed_store_refuses_calls_and_the_next_store_has_the_last_commit(
    path: Path,
) -> None:
    failures: list[StoreFailed | None] = []
    store = Store(path, on_failure=lambda: failures.append(store.failure))
    store.messages.put(4, stored(1))
    store.commit()
    store.messages.put(4, stored(2))
    store.messages.put(4, stored(3, state=None))
    with pytest.raises(StoreFailed, match="NOT NULL") as first:
        store.commit()
    calls: list[Callable[[], object]] = [
        store.commit,
        lambda: store.messages.get(4, 1),
        lambda: store.entities.touch(1, 1),
        lambda: store.put_meter_rows([("q", "send", 1, 1, 1, 1)]),
        lambda: store.entities.add("q", "Queue", "", 5),
    ]
    for call in calls:
        with pytest.raises(StoreFailed) as later:
            call()
        assert later.value.__cause__ is first.value.__cause__
    store.close()
    assert failures == [store.failure]
    with Store(path) as reopened:
        assert sequences(reopened.messages.all_after(4, 0, 10)) == [1]


def test_failed_read_is_a_failure_of_the_store(path: Path) -> None:
    with Store(path) as store:
        store._database.connection.execute("DROP TABLE seen")
        with pytest.raises(StoreFailed, match="seen"):
            store.message_ids.delete_expired(1)
        assert store.failure is not None


def test_file_that_is_not_a_database_cannot_be_opened(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreFailed, match=path.name):
        Store(path)


# One store at a time.


def test_second_store_on_the_same_file_is_refused_and_the_first_loses_nothing(
    store: Store, path: Path
) -> None:
    store.messages.put(4, stored(1))
    store.commit()

    with pytest.raises(StateError, match="already in use"):
        Store(path)

    store.messages.put(4, stored(2))
    store.close()
    with Store(path) as again:
        assert sequences(again.messages.all_after(4, 0, 10)) == [1, 2]


def test_file_reached_through_a_symbolic_link_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    with Store(tmp_path / "data" / "store.db"), pytest.raises(StateError, match="already in use"):
        Store(tmp_path / "link" / "store.db")


def test_stores_of_two_files_in_one_folder_are_independent(store: Store, path: Path) -> None:
    with Store(path.with_name("other.db")) as other:
        other.messages.put(4, stored(1))
        other.commit()
        assert store.messages.all_after(4, 0, 10) == []


def test_store_that_could_not_be_opened_does_not_keep_the_file_in_use(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreFailed, match=path.name):
        Store(path)
    path.unlink()
    Store(path).close()


def test_store_that_failed_frees_the_file_when_it_is_closed(path: Path) -> None:
    store = Store(path)
    store.messages.put(4, stored(1, state=None))
    with pytest.raises(StoreFailed):
        store.close()
    Store(path).close()


def test_reading_stops_at_the_message_that_reaches_the_limit_of_bytes(
    store: Store,
) -> None:
    for sequence in range(1, 6):
        store.messages.put(4, stored(sequence, size=100, session="s"))
    for session in (None, "s"):
        for max_bytes, count in ((1, 1), (100, 1), (101, 2), (300, 3), (1000, 5)):
            messages = store.messages.all_after(4, 0, 10, session, max_bytes)
            assert sequences(messages) == [1, 2, 3, 4, 5][:count]
    assert len(store.messages.all_after(4, 0, 2, None, 1000)) == 2


# Messages.


def test_every_column_is_stored(store: Store) -> None:
    original = stored(
        7,
        state=SCHEDULED,
        enqueued_ms=1,
        expires_ms=2,
        due_ms=3,
        deliveries=4,
        session="Sitzung ü",
        size=5,
        header=b"\x00",
        annotation_count=6,
        annotations=b"",
        rest=b"\xff" * 100_000,
    )
    store.messages.put(4, original)

    read = store.messages.get(4, 7)

    assert read is not None
    assert read.row(4) == original.row(4)


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ([("put", 1), ("delete", 1)], []),
        ([("put", 1), ("delete", 1), ("put", 1)], [1]),
        ([("put", 1), ("put", 1)], [1]),
        ([("delete", 1), ("put", 1), ("put", 2), ("delete", 2)], [1]),
    ],
)
def test_last_write_of_a_turn_counts(
    store: Store, writes: list[tuple[str, int]], expected: list[int]
) -> None:
    for operation, sequence in writes:
        if operation == "put":
            store.messages.put(4, stored(sequence))
        else:
            store.messages.delete_all(4, [stored(sequence)])

    assert sequences(store.messages.all_after(4, 0, 10)) == expected


def test_queues_do_not_see_messages_of_each_other(store: Store) -> None:
    for entity in (4, 5, 6):
        store.messages.put(entity, stored(1))
        store.messages.put(entity, stored(MAX_SEQUENCE))

    assert sequences(store.messages.all_after(5, 0, 10)) == [1, MAX_SEQUENCE]
    assert sequences(store.messages.all_after(5, 1, 10)) == [MAX_SEQUENCE]
    assert store.messages.all_after(5, MAX_SEQUENCE, 10) == []
    assert store.messages.totals(5) == {ACTIVE: (2, 20)}


def test_active_messages_are_read_in_order_after_a_sequence_number(store: Store) -> None:
    for sequence in (3, 1, 5, 2):
        store.messages.put(4, stored(sequence, session="a" if sequence > 1 else "b"))
    store.messages.put(4, stored(4, state=DEFERRED, session="a"))

    assert sequences(store.messages.active_after(4, 1, 2)) == [2, 3]
    assert sequences(store.messages.active_after(4, 3, 10)) == [5]
    assert sequences(store.messages.active_in_session(4, "a", 2, 10)) == [3, 5]
    assert sequences(store.messages.all_after(4, 1, 10, "a")) == [2, 3, 4, 5]


def test_due_and_expired_messages_of_all_queues_are_read_oldest_first(store: Store) -> None:
    store.messages.put(4, stored(1, state=SCHEDULED, due_ms=30))
    store.messages.put(8, stored(1, state=SCHEDULED, due_ms=20))
    store.messages.put(8, stored(2, expires_ms=50))
    store.messages.put(4, stored(2, expires_ms=40))
    store.messages.put(4, stored(3, expires_ms=10, state=DEFERRED))

    assert [(queue, message.sequence) for queue, message in store.messages.due(30, 10)] == [
        (8, 1),
        (4, 1),
    ]
    assert [(queue, message.sequence) for queue, message in store.messages.due(29, 10)] == [(8, 1)]
    assert [(queue, message.sequence) for queue, message in store.messages.expired(50, 10)] == [
        (4, 2),
        (8, 2),
    ]
    assert [(queue, message.sequence) for queue, message in store.messages.expired(50, 1)] == [
        (4, 2)
    ]


def test_expiry_can_be_postponed(store: Store) -> None:
    store.messages.put(4, stored(1, expires_ms=40))
    store.messages.postpone_expiry(4, 1, 60)

    assert store.messages.expired(59, 10) == []
    assert [message.sequence for _, message in store.messages.expired(60, 10)] == [1]


def test_sessions_are_counted_in_the_order_of_their_first_message(store: Store) -> None:
    for sequence, session in enumerate(["b", "a", "b", "c"], start=1):
        store.messages.put(4, stored(sequence, session=session))
    store.messages.put(4, stored(9, session="d", state=DEFERRED))

    assert list(store.messages.session_counts(4).items()) == [("b", 2), ("a", 1), ("c", 1)]


# Entities, their rules, message ids and session states.


def test_deleting_an_entity_deletes_all_its_data_and_no_other(store: Store) -> None:
    ids = [store.entities.add(f"q{number}", "Queue", "", 5).id for number in range(3)]
    for id in ids:
        for queue in (id << 2, id << 2 | 1, id << 2 | 2):
            store.messages.put(queue, stored(1))
            store.session_states.set(queue, "s", b"state", 0)
        store.entities.put_rule(id, "r", "")
        store.message_ids.is_duplicate(id, "m", 0, 100)

    store.entities.delete(ids[1])

    assert [row.id for row in store.entities.all()] == [ids[0], ids[2]]
    for id in ids:
        exists = id != ids[1]
        for queue in (id << 2, id << 2 | 1, id << 2 | 2):
            assert bool(store.messages.all_after(queue, 0, 10)) is exists
            assert (store.session_states.get(queue, "s") is not None) is exists
        assert bool(store.entities.rules(id)) is exists
        assert store.message_ids.is_duplicate(id, "m", 0, 100) is exists


def test_id_of_an_entity_is_never_used_again(store: Store, path: Path) -> None:
    first = store.entities.add("q", "Queue", "", 5).id
    store.entities.delete(first)
    store.close()

    with Store(path) as again:
        assert again.entities.add("q", "Queue", "", 5).id > first


def test_changes_of_an_entity_are_stored(store: Store) -> None:
    id = store.entities.add("Orders", "Queue", "one", 5).id
    store.entities.update(id, "two", 6)
    store.entities.touch(id, 7)
    store.entities.reserve_sequences(id, 1001)

    (row,) = store.entities.all()

    assert (row.path, row.kind, row.description) == ("Orders", "Queue", "two")
    assert (row.created_ms, row.updated_ms, row.accessed_ms) == (5, 6, 7)
    assert row.next_sequence == 1001


def test_paths_of_entities_are_unique_regardless_of_case(store: Store) -> None:
    store.entities.add("orders", "Queue", "", 5)

    with pytest.raises(StoreFailed, match="UNIQUE"):
        store.entities.add("ORDERS", "Topic", "", 5)


def test_names_of_rules_are_compared_regardless_of_case(store: Store) -> None:
    store.entities.put_rule(1, "Red", "one")
    store.entities.put_rule(1, "RED", "two")
    assert [text for _, text in store.entities.rules(1)] == ["two"]

    store.entities.delete_rule(1, "red")
    assert store.entities.rules(1) == []


def test_message_id_is_a_duplicate_until_its_window_ends(store: Store) -> None:
    assert not store.message_ids.is_duplicate(1, "m", 0, 100)
    assert store.message_ids.is_duplicate(
        1, "m", 99, 199
    )  # the window starts with the accepted message
    assert not store.message_ids.is_duplicate(2, "m", 99, 199)
    assert not store.message_ids.is_duplicate(1, "m", 100, 200)


def test_message_ids_are_deleted_when_their_window_ends(store: Store) -> None:
    store.message_ids.is_duplicate(1, "old", 0, 100)
    store.message_ids.is_duplicate(1, "new", 50, 150)
    store.message_ids.delete_expired(100)

    assert store._database.read("SELECT message_id FROM seen") == [("new",)]


def test_session_state_can_be_set_changed_emptied_and_deleted(store: Store) -> None:
    for state in (b"one", b"two", b"", None):
        store.session_states.set(4, "s", state, 0)
        assert store.session_states.get(4, "s") == state
        assert store.session_states.sessions(4) == ([] if state is None else ["s"])


def test_meter_keeps_its_last_reading(store: Store) -> None:
    store.put_meter_rows([("q", "send", 1, 1, 10, 1), ("q", "receive", 2, 1, 10, 2)])
    store.put_meter_rows([("q", "send", 2, 2, 20, 2)])

    assert sorted(store.meter_rows()) == [("q", "receive", 2, 1, 10, 2), ("q", "send", 2, 2, 20, 2)]


def test_clearing_deletes_everything(store: Store) -> None:
    id = store.entities.add("q", "Queue", "", 5).id
    store.messages.put(id << 2, stored(1))
    store.put_meter_rows([("q", "send", 1, 1, 10, 1)])
    store.clear()

    assert (
        store.entities.all() == store.meter_rows() == store.messages.all_after(id << 2, 0, 10) == []
    )


# Query plans.


@pytest.mark.parametrize(
    "query",
    [
        lambda store: store.messages.active_after(4, 0, 10),
        lambda store: store.messages.active_in_session(4, "s", 0, 10),
        lambda store: store.messages.all_after(4, 0, 10),
        lambda store: store.messages.all_after(4, 0, 10, "s"),
        lambda store: store.messages.get(4, 1),
        lambda store: store.messages.due(0, 10),
        lambda store: store.messages.expired(0, 10),
        lambda store: store.messages.postpone_expiry(4, 1, 5),
        lambda store: store.session_states.get(4, "s"),
        lambda store: store.message_ids.is_duplicate(4, "m", 0, 10),
        lambda store: store.message_ids.delete_expired(0),
    ],
)
def test_no_query_scans_a_table(store: Store, query: Callable[[Store], object]) -> None:
    statements: list[str] = []
    store._database.connection.set_trace_callback(statements.append)
    query(store)
    store._database.connection.set_trace_callback(None)

    plans = [
        step[3]
        for statement in statements
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE")
        for step in store._database.connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]

    assert plans
    # `min` of an index reads one end of it, which SQLite calls a search.
    assert all(plan.startswith("SEARCH") for plan in plans), plans
