"""Which backlog queues exist, which indexes are tried without a list, and how that is said."""

import pytest

from pairbus.backlog.discovery import (
    PROBE_GAP,
    QueueListing,
    QueueSearch,
    describe_queues,
    queue_mismatch,
)
from pairbus.errors import NotAuthorized
from pairbus.servicebus.backlog_paths import backlog_index, backlog_path

REFUSED = NotAuthorized("listing queues needs the Manage right")


def listed(expected: int, *indexes: int) -> QueueListing:
    return QueueListing("shop", expected, indexes)


def not_listed(expected: int, name: str = "shop") -> QueueListing:
    return QueueListing(name, expected, None, REFUSED)


def try_all(walk: QueueSearch, existing: set[int]) -> list[int]:
    """Return the indexes that are tried where some have a queue."""
    tried = []
    for index in walk:
        tried.append(index)
        if index not in existing:
            walk.missing()
    return tried


@pytest.mark.parametrize(
    ("path", "index"),
    [
        ("shop/x-servicebus-transfer/0", 0),
        ("Shop/X-ServiceBus-Transfer/12", 12),
        ("shop/x-servicebus-transfer/", None),
        ("shop/x-servicebus-transfer/01", None),
        ("shop/x-servicebus-transfer/-1", None),
        ("shop/x-servicebus-transfer/1/2", None),
        ("shop/x-servicebus-transfer/one", None),
        ("shop/x-servicebus-transfer/\u0661", None),
        ("other/x-servicebus-transfer/1", None),
        ("a/shop/x-servicebus-transfer/1", None),
        ("shop", None),
    ],
)
def test_index_of_a_backlog_queue_is_read_from_its_path(path: str, index: int | None) -> None:
    assert backlog_index("shop", path) == index


def test_listed_queues_are_all_that_exist() -> None:
    walk = listed(3, 0, 2, 8).walk()

    assert list(walk) == [0, 2, 8]
    assert walk.found == (0, 2, 8)
    assert walk.searched_to is None
    assert walk.path(8) == backlog_path("shop", 8)


def test_listed_queue_that_was_deleted_meanwhile_is_not_found() -> None:
    walk = listed(2, 0, 1).walk()

    assert try_all(walk, {0}) == [0, 1]
    assert walk.found == (0,)


def test_without_a_list_indexes_are_tried_until_several_in_a_row_have_no_queue() -> None:
    walk = not_listed(3).walk()
    tried = try_all(walk, {0, 1, 8})

    assert tried == list(range(8 + PROBE_GAP + 1))
    assert walk.found == (0, 1, 8)
    assert walk.searched_to == 8 + PROBE_GAP
    assert walk.complete


def test_missing_queues_below_the_expected_number_do_not_end_the_search() -> None:
    walk = not_listed(3 * PROBE_GAP).walk()

    assert try_all(walk, set()) == list(range(4 * PROBE_GAP))
    assert walk.found == ()


def test_index_that_could_not_be_tried_ends_the_search_beyond_the_expected_number() -> None:
    walk = not_listed(2).walk()
    tried = []
    for index in walk:
        tried.append(index)
        if index >= 2:
            walk.stop()

    assert tried == [0, 1, 2]
    assert (walk.found, walk.searched_to) == ((0, 1), 1)


def test_error_at_an_expected_queue_still_tries_the_other_expected_queues() -> None:
    walk = not_listed(3).walk()
    tried = []
    for index in walk:
        tried.append(index)
        if index == 0:
            walk.stop()

    assert tried == [0, 1, 2]
    assert walk.searched_to == 2


def test_search_ends_where_a_path_would_be_too_long() -> None:
    name = "x" * (260 - len("/x-servicebus-transfer/0"))

    assert try_all(not_listed(1, name).walk(), set(range(100))) == list(range(10))


def test_search_that_was_left_early_says_nothing_about_the_number_of_queues() -> None:
    walk = not_listed(3).walk()
    next(iter(walk))

    assert not walk.complete
    assert walk.queue_mismatch is None


@pytest.mark.parametrize(
    ("expected", "found", "said"),
    [
        (2, [0, 1], None),
        (2, [], None),
        (3, [0, 1], "--backlog-queues is 3, but backlog queue 2 does not exist."),
        (9, [1, 4], "--backlog-queues is 9, but backlog queues 0, 2 to 3, 5 to 8 do not exist."),
        (
            *(1, [0, 1]),
            (
                "--backlog-queues is 1, but backlog queue 1 exists too; a syphon with "
                "--backlog-queues 1 does not drain it."
            ),
        ),
        (
            *(2, [1, 5, 6, 9]),
            (
                "--backlog-queues is 2, but backlog queues 5 to 6, 9 exist too; a syphon with "
                "--backlog-queues 2 does not drain them. Backlog queue 0 does not exist."
            ),
        ),
    ],
)
def test_difference_between_expected_and_existing_queues_is_said_in_words(
    expected: int, found: list[int], said: str | None
) -> None:
    assert queue_mismatch(expected, found) == said


def test_queues_are_named_by_ranges_of_their_indexes() -> None:
    assert describe_queues([4]) == "backlog queue 4"
    assert describe_queues([0, 1, 2, 5, 7, 8]) == "backlog queues 0 to 2, 5, 7 to 8"
    assert describe_queues(range(12)) == "backlog queues 0 to 11"
