"""The store: what was committed stays, what was not is gone, and every question has an index."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbus.emulator.storage.store import (
    MAX_SEQUENCE,
    Store,
    StoredMessage,
    StoreFailed,
)
from pairbus.errors import StateError
from pairbus.servicebus.message_states import ACTIVE, DEFERRED, SCHEDULED
from tests.unit.emulator.entities.harness import crash


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


def stored(sequence: int, **changes: Any) -> StoredMessage:
    values: dict[str, Any] = {
        "state": ACTIVE,
        "enqueued_ms": 1,
        "expires_ms": None,
        "due_ms": None,
        "deliveries": 0,
        "session": None,
        "size": 10,
        "header": b"header",
        "annotation_count": 2,
        "annotations": b"annotations",
        "rest": b"rest",
    }
    return StoredMessage(sequence, **values | changes)


def numbers(messages: list[StoredMessage]) -> list[int]:
    return [one.sequence for one in messages]


def killed(store: Store, path: Path) -> Store:
    """Another store on the file of one that had no time to commit."""
    crash(store)
    return Store(path)


# Commits.


def test_what_was_committed_is_there_after_a_kill_and_what_was_not_is_gone(
    store: Store, path: Path
) -> None:
    store.put(4, stored(1))
    store.put(4, stored(2))
    store.commit()
    store.put(4, stored(3))
    store.delete(4, 1)

    with killed(store, path) as again:
        assert numbers(again.any_after(4, 0, 10)) == [1, 2]


def test_what_was_read_in_between_is_no_reason_to_keep_it(store: Store, path: Path) -> None:
    store.put(4, stored(1))
    assert numbers(store.any_after(4, 0, 10)) == [1]

    with killed(store, path) as again:
        assert again.any_after(4, 0, 10) == []


def test_reads_see_what_was_written_before_committed_or_not(store: Store) -> None:
    store.put(4, stored(1))
    store.put(4, stored(2))
    store.delete(4, 1)

    assert numbers(store.any_after(4, 0, 10)) == [2]


def test_a_store_is_dirty_from_a_write_to_the_commit(store: Store) -> None:
    assert not store.dirty
    store.put(4, stored(1))
    assert store.dirty
    store.get(4, 1)
    assert store.dirty
    store.commit()
    assert not store.dirty
    store.delete(4, 1)
    assert store.dirty


def test_reading_leaves_nothing_to_commit(store: Store) -> None:
    store.get(4, 1)
    store.due(5, 10)
    store.expired(5, 10)
    store.forget_seen(5)

    assert not store.dirty


def test_closing_commits_and_can_be_done_twice(path: Path) -> None:
    store = Store(path)
    store.put(4, stored(1))
    store.close()
    store.close()

    with Store(path) as again:
        assert numbers(again.any_after(4, 0, 10)) == [1]


def test_a_store_that_cannot_commit_closes_all_the_same(path: Path) -> None:
    store = Store(path)
    store.put(4, stored(1, state=None))

    with pytest.raises(StoreFailed) as caught:
        store.close()
    assert isinstance(caught.value.__cause__, sqlite3.IntegrityError)
    with pytest.raises(sqlite3.ProgrammingError):
        store._db.execute("SELECT 1")


def test_a_store_that_failed_does_nothing_more_and_the_next_one_has_the_last_commit(
    path: Path,
) -> None:
    told = []
    store = Store(path)
    store.on_failure = lambda: told.append(store.failure)
    store.put(4, stored(1))
    store.commit()
    store.put(4, stored(2))
    store.put(4, stored(3, state=None))
    with pytest.raises(StoreFailed, match="NOT NULL") as first:
        store.commit()
    uses: list[Callable[[], object]] = [
        store.commit,
        lambda: store.get(4, 1),
        lambda: store.touch_entity(1, 1),
        lambda: store.put_meter([("q", "send", 1, 1, 1, 1)]),
        lambda: store.add_entity("q", "Queue", "", 5),
    ]
    for use in uses:
        with pytest.raises(StoreFailed) as later:
            use()
        assert later.value.__cause__ is first.value.__cause__
    store.close()
    assert told == [store.failure]
    with Store(path) as next_one:
        assert [one.sequence for one in next_one.any_after(4, 0, 10)] == [1]


def test_a_read_that_fails_is_a_failure_too(path: Path) -> None:
    with Store(path) as store:
        store._db.execute("DROP TABLE seen")
        with pytest.raises(StoreFailed, match="seen"):
            store.forget_seen(1)
        assert store.failure is not None


def test_a_file_that_is_no_database_cannot_be_opened(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreFailed, match=path.name):
        Store(path)


# One store at a time.


def test_second_store_on_the_same_file_is_refused_and_the_first_loses_nothing(
    store: Store, path: Path
) -> None:
    store.put(4, stored(1))
    store.commit()

    with pytest.raises(StateError, match="already in use"):
        Store(path)

    store.put(4, stored(2))
    store.close()
    with Store(path) as again:
        assert numbers(again.any_after(4, 0, 10)) == [1, 2]


def test_file_reached_through_a_symbolic_link_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    with Store(tmp_path / "data" / "store.db"), pytest.raises(StateError, match="already in use"):
        Store(tmp_path / "link" / "store.db")


def test_stores_of_two_files_in_one_folder_are_independent(store: Store, path: Path) -> None:
    with Store(path.with_name("other.db")) as other:
        other.put(4, stored(1))
        other.commit()
        assert store.any_after(4, 0, 10) == []


def test_store_that_could_not_be_opened_does_not_keep_the_file_in_use(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreFailed, match=path.name):
        Store(path)
    path.unlink()
    Store(path).close()


def test_store_that_failed_frees_the_file_when_it_is_closed(path: Path) -> None:
    store = Store(path)
    store.put(4, stored(1, state=None))
    with pytest.raises(StoreFailed):
        store.close()
    Store(path).close()


def test_messages_are_looked_at_until_they_have_so_many_bytes_but_one_at_least(
    store: Store,
) -> None:
    for sequence in range(1, 6):
        store.put(4, stored(sequence, size=100, session="s"))
    for session in (None, "s"):
        for room, count in ((1, 1), (100, 1), (101, 2), (300, 3), (1000, 5)):
            found = store.any_after(4, 0, 10, session, room)
            assert [one.sequence for one in found] == [1, 2, 3, 4, 5][:count]
    assert len(store.any_after(4, 0, 2, None, 1000)) == 2


# Messages.


def test_every_column_comes_back(store: Store) -> None:
    given = stored(
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
    store.put(4, given)

    found = store.get(4, 7)

    assert found is not None
    assert found.row(4) == given.row(4)


@pytest.mark.parametrize(
    ("writes", "there"),
    [
        ([("put", 1), ("delete", 1)], []),
        ([("put", 1), ("delete", 1), ("put", 1)], [1]),
        ([("put", 1), ("put", 1)], [1]),
        ([("delete", 1), ("put", 1), ("put", 2), ("delete", 2)], [1]),
    ],
)
def test_the_last_write_of_a_turn_counts(
    store: Store, writes: list[tuple[str, int]], there: list[int]
) -> None:
    for verb, sequence in writes:
        if verb == "put":
            store.put(4, stored(sequence))
        else:
            store.delete(4, sequence)

    assert numbers(store.any_after(4, 0, 10)) == there


def test_queues_do_not_see_each_other(store: Store) -> None:
    for entity in (4, 5, 6):
        store.put(entity, stored(1))
        store.put(entity, stored(MAX_SEQUENCE))

    assert numbers(store.any_after(5, 0, 10)) == [1, MAX_SEQUENCE]
    assert numbers(store.any_after(5, 1, 10)) == [MAX_SEQUENCE]
    assert store.any_after(5, MAX_SEQUENCE, 10) == []
    assert store.totals(5) == {ACTIVE: (2, 20)}


def test_active_messages_are_read_in_order_from_a_number(store: Store) -> None:
    for sequence in (3, 1, 5, 2):
        store.put(4, stored(sequence, session="a" if sequence > 1 else "b"))
    store.put(4, stored(4, state=DEFERRED, session="a"))

    assert numbers(store.active_after(4, 1, 2)) == [2, 3]
    assert numbers(store.active_after(4, 3, 10)) == [5]
    assert numbers(store.active_in_session(4, "a", 2, 10)) == [3, 5]
    assert numbers(store.any_after(4, 1, 10, "a")) == [2, 3, 4, 5]


def test_what_is_due_or_expired_is_found_in_every_queue_the_oldest_first(store: Store) -> None:
    store.put(4, stored(1, state=SCHEDULED, due_ms=30))
    store.put(8, stored(1, state=SCHEDULED, due_ms=20))
    store.put(8, stored(2, expires_ms=50))
    store.put(4, stored(2, expires_ms=40))
    store.put(4, stored(3, expires_ms=10, state=DEFERRED))

    assert (store.next_due_ms(), store.next_expiry_ms()) == (20, 40)
    assert [(entity, one.sequence) for entity, one in store.due(30, 10)] == [(8, 1), (4, 1)]
    assert [(entity, one.sequence) for entity, one in store.due(29, 10)] == [(8, 1)]
    assert [(entity, one.sequence) for entity, one in store.expired(50, 10)] == [(4, 2), (8, 2)]
    assert [(entity, one.sequence) for entity, one in store.expired(50, 1)] == [(4, 2)]


def test_expiry_can_be_put_off(store: Store) -> None:
    store.put(4, stored(1, expires_ms=40))
    store.postpone_expiry(4, 1, 60)

    assert store.next_expiry_ms() == 60
    assert store.expired(59, 10) == []


def test_sessions_are_counted_in_the_order_of_their_first_message(store: Store) -> None:
    for sequence, session in enumerate(["b", "a", "b", "c"], start=1):
        store.put(4, stored(sequence, session=session))
    store.put(4, stored(9, session="d", state=DEFERRED))

    assert list(store.session_counts(4).items()) == [("b", 2), ("a", 1), ("c", 1)]


# Entities and what belongs to them.


def test_an_entity_goes_with_everything_that_it_has_and_its_neighbours_stay(store: Store) -> None:
    ids = [store.add_entity(f"q{number}", "Queue", "", 5).id for number in range(3)]
    for id in ids:
        for queue in (id << 2, id << 2 | 1, id << 2 | 2):
            store.put(queue, stored(1))
            store.set_session_state(queue, "s", b"state")
        store.put_rule(id, "r", "")
        store.seen(id, "m", 0, 100)

    store.delete_entity(ids[1])

    assert [row.id for row in store.entities()] == [ids[0], ids[2]]
    for id in ids:
        there = id != ids[1]
        for queue in (id << 2, id << 2 | 1, id << 2 | 2):
            assert bool(store.any_after(queue, 0, 10)) is there
            assert (store.session_state(queue, "s") is not None) is there
        assert bool(store.rules(id)) is there
        assert store.seen(id, "m", 0, 100) is there


def test_the_id_of_an_entity_is_never_used_again(store: Store, path: Path) -> None:
    first = store.add_entity("q", "Queue", "", 5).id
    store.delete_entity(first)
    store.close()

    with Store(path) as again:
        assert again.add_entity("q", "Queue", "", 5).id > first


def test_an_entity_keeps_what_was_said_of_it(store: Store) -> None:
    id = store.add_entity("Orders", "Queue", "one", 5).id
    store.update_entity(id, "two", 6)
    store.touch_entity(id, 7)
    store.reserve_sequences(id, 1001)

    (row,) = store.entities()

    assert (row.path, row.kind, row.description) == ("Orders", "Queue", "two")
    assert (row.created_ms, row.updated_ms, row.accessed_ms) == (5, 6, 7)
    assert row.next_sequence == 1001


def test_two_entities_cannot_have_one_path_in_two_spellings(store: Store) -> None:
    store.add_entity("orders", "Queue", "", 5)

    with pytest.raises(StoreFailed, match="UNIQUE"):
        store.add_entity("ORDERS", "Topic", "", 5)


def test_a_rule_is_replaced_and_removed_whatever_the_spelling(store: Store) -> None:
    store.put_rule(1, "Red", "one")
    store.put_rule(1, "RED", "two")
    assert [text for _, text in store.rules(1)] == ["two"]

    store.delete_rule(1, "red")
    assert store.rules(1) == []


def test_an_id_is_known_until_its_window_is_over(store: Store) -> None:
    assert not store.seen(1, "m", 0, 100)
    assert store.seen(1, "m", 99, 199)  # the window starts with the message that was taken in
    assert not store.seen(2, "m", 99, 199)
    assert not store.seen(1, "m", 100, 200)


def test_ids_are_forgotten_when_their_window_is_over(store: Store) -> None:
    store.seen(1, "old", 0, 100)
    store.seen(1, "new", 50, 150)
    store.forget_seen(100)

    assert store._read("SELECT message_id FROM seen") == [("new",)]


def test_a_session_state_can_be_set_changed_emptied_and_removed(store: Store) -> None:
    for state in (b"one", b"two", b"", None):
        store.set_session_state(4, "s", state)
        assert store.session_state(4, "s") == state
        assert store.sessions_with_state(4) == ([] if state is None else ["s"])


def test_the_meter_keeps_its_last_reading(store: Store) -> None:
    store.put_meter([("q", "send", 1, 1, 10, 1), ("q", "receive", 2, 1, 10, 2)])
    store.put_meter([("q", "send", 2, 2, 20, 2)])

    assert sorted(store.meter_rows()) == [("q", "receive", 2, 1, 10, 2), ("q", "send", 2, 2, 20, 2)]


def test_clearing_forgets_everything(store: Store) -> None:
    id = store.add_entity("q", "Queue", "", 5).id
    store.put(id << 2, stored(1))
    store.put_meter([("q", "send", 1, 1, 10, 1)])
    store.clear()

    assert store.entities() == store.meter_rows() == store.any_after(id << 2, 0, 10) == []


# Cost.


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.active_after(4, 0, 10),
        lambda store: store.active_in_session(4, "s", 0, 10),
        lambda store: store.any_after(4, 0, 10),
        lambda store: store.any_after(4, 0, 10, "s"),
        lambda store: store.get(4, 1),
        lambda store: store.due(0, 10),
        lambda store: store.expired(0, 10),
        lambda store: store.next_due_ms(),
        lambda store: store.next_expiry_ms(),
        lambda store: store.postpone_expiry(4, 1, 5),
        lambda store: store.session_state(4, "s"),
        lambda store: store.seen(4, "m", 0, 10),
        lambda store: store.forget_seen(0),
    ],
)
def test_no_question_reads_a_table_from_end_to_end(
    store: Store, ask: Callable[[Store], object]
) -> None:
    asked: list[str] = []
    store._db.set_trace_callback(asked.append)
    ask(store)
    store._db.set_trace_callback(None)

    plans = [
        step[3]
        for statement in asked
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE")
        for step in store._db.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]

    assert plans
    # `min` of an index reads one end of it, which is a search, too.
    assert all(plan.startswith("SEARCH") for plan in plans), plans
