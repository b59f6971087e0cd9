"""Messages that share a row behave like messages with rows of their own."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.emulator.storage.message_groups import MAX_BYTES, MAX_MESSAGES, MIN_MESSAGES
from pairbus.emulator.storage.store import Store
from pairbus.emulator.storage.stored_message import StoredMessage
from pairbus.servicebus.message_states import ACTIVE, DEFERRED
from tests.unit.emulator.entities.harness import crash, stored_message

QUEUE = 4


def new_message(sequence: int, **changes: Any) -> StoredMessage:
    """Return a message whose size and bytes differ from those of its neighbours."""
    differences = {"size": 10 + sequence % 7, "rest": b"rest" * (sequence % 5)}
    return stored_message(sequence, **differences | changes)


def new_messages(count: int, **changes: Any) -> list[StoredMessage]:
    return [new_message(sequence, **changes) for sequence in range(1, count + 1)]


def rows(messages: list[StoredMessage]) -> list[object]:
    return [message.row(QUEUE) for message in messages]


def row_counts(store: Store) -> tuple[int, int]:
    """Return the number of rows with one message, and of those with several."""
    read = store._database.read
    ((alone,),) = read("SELECT count(*) FROM message")
    ((grouped,),) = read("SELECT count(*) FROM message_group")
    return alone, grouped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (new_messages(MIN_MESSAGES - 1), (MIN_MESSAGES - 1, 0)),
        (new_messages(MIN_MESSAGES), (0, 1)),
        (new_messages(MAX_MESSAGES + MIN_MESSAGES), (0, 2)),
        (new_messages(10, session="s"), (10, 0)),
        (new_messages(10, expires_ms=5), (10, 0)),
        (new_messages(10, state=DEFERRED), (10, 0)),
        (new_messages(10, deliveries=1), (10, 0)),
        (new_messages(10, rest=bytes(MAX_BYTES // 9)), (10, 0)),
        ([*new_messages(5), *[new_message(n, header=b"other") for n in range(6, 11)]], (0, 2)),
        ([*new_messages(5), *[new_message(n) for n in range(7, 9)]], (7, 0)),
    ],
)
def test_messages_share_a_row_if_they_are_similar(
    path: Path, messages: list[StoredMessage], expected: tuple[int, int]
) -> None:
    with Store(path) as store:
        store.messages.add_all(QUEUE, messages)

        assert row_counts(store) == expected
        assert rows(store.messages.all_after(QUEUE, 0, 100)) == rows(messages)


def test_group_is_deleted_with_its_last_message(path: Path) -> None:
    with Store(path) as store:
        messages = new_messages(10)
        store.messages.add_all(QUEUE, messages)
        store.messages.delete_all(QUEUE, messages[::2])
        assert row_counts(store) == (0, 1)
        store.messages.delete_all(QUEUE, messages[1::2])
        assert row_counts(store) == (0, 0)
        assert store._database.read("SELECT * FROM removed_from_group") == []


def test_messages_of_a_group_stay_removed_after_a_kill(path: Path) -> None:
    store = Store(path)
    messages = new_messages(10)
    store.messages.add_all(QUEUE, messages)
    store.messages.delete_all(QUEUE, messages[:3])
    store.commit()
    store.messages.delete_all(QUEUE, messages[3:5])
    crash(store)

    with Store(path) as again:
        left = again.messages.all_after(QUEUE, 0, 100)
        assert rows(left) == rows(messages[3:])
        assert again.messages.totals(QUEUE) == {ACTIVE: (7, sum(m.size for m in messages[3:]))}


def test_groups_of_other_queues_and_deleted_entities_are_not_read(path: Path) -> None:
    with Store(path) as store:
        id = store.entities.add("q", "Queue", "", 5).id
        for queue in (id << 2, (id + 1) << 2):
            messages = new_messages(10)
            store.messages.add_all(queue, messages)
            store.messages.delete_all(queue, messages[:1])
        store.entities.delete(id)
        store.messages.reload_removed()

        assert store.messages.all_after(id << 2, 0, 100) == []
        assert store.messages.get(id << 2, 5) is None
        assert len(store.messages.all_after((id + 1) << 2, 0, 100)) == 9


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "delete", "change", "read", "restart"]),
        st.integers(1, 40),
        st.integers(1, 40),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_any_sequence_of_operations_has_the_result_of_separate_rows(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("groups") / "store.db"
    store = Store(path)
    expected: dict[int, object] = {}
    live: dict[int, StoredMessage] = {}
    number = 0
    for operation, first, count in operations:
        selected = [live[sequence] for sequence in sorted(live)[first::3]][:count]
        if operation == "add":
            added = [new_message(number + index) for index in range(1, count + 1)]
            number += count + first % 2  # sometimes a number is skipped
            store.messages.add_all(QUEUE, added)
            live |= {message.sequence: message for message in added}
            expected |= {message.sequence: message.row(QUEUE) for message in added}
        elif operation == "delete":
            store.messages.delete_all(QUEUE, selected)
            for message in selected:
                del live[message.sequence], expected[message.sequence]
        elif operation == "change":
            for message in selected:
                message.deliveries += 1
                store.messages.put(QUEUE, message)
                expected[message.sequence] = message.row(QUEUE)
        elif operation == "restart":
            store.close()
            store = Store(path)
            live = {m.sequence: m for m in store.messages.all_after(QUEUE, 0, 10_000)}
        after = first if operation == "read" else 0
        read = store.messages.active_after(QUEUE, after, count)
        sequences = [sequence for sequence in sorted(expected) if sequence > after]
        assert rows(read) == [expected[sequence] for sequence in sequences[:count]]
        found = store.messages.get(QUEUE, first)
        assert (found and found.row(QUEUE)) == expected.get(first)
    total = sum(message.size for message in live.values())
    assert store.messages.totals(QUEUE) == ({ACTIVE: (len(live), total)} if live else {})
    store.close()
