"""The search for backlog queues, with and without a list of them."""

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

UNAUTHORIZED = NotAuthorized("listing queues needs the Manage right")


def listed(expected: int, *indexes: int) -> QueueListing:
    return QueueListing("shop", expected, indexes)


def not_listed(expected: int, name: str = "shop") -> QueueListing:
    return QueueListing(name, expected, None, UNAUTHORIZED)


def probe_all(search: QueueSearch, existing: set[int]) -> list[int]:
    """Probe all indexes of a search, and return them."""
    probed = []
    for index in search:
        probed.append(index)
        if index not in existing:
            search.missing()
    return probed


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


def test_search_with_a_list_visits_exactly_the_listed_queues() -> None:
    search = listed(3, 0, 2, 8).search()

    assert list(search) == [0, 2, 8]
    assert search.found == (0, 2, 8)
    assert search.searched_to is None
    assert search.path(8) == backlog_path("shop", 8)


def test_listed_queue_that_was_deleted_meanwhile_is_not_found() -> None:
    search = listed(2, 0, 1).search()

    assert probe_all(search, {0}) == [0, 1]
    assert search.found == (0,)


def test_without_a_list_indexes_are_probed_until_ten_in_a_row_have_no_queue() -> None:
    search = not_listed(3).search()
    probed = probe_all(search, {0, 1, 8})

    assert probed == list(range(8 + PROBE_GAP + 1))
    assert search.found == (0, 1, 8)
    assert search.searched_to == 8 + PROBE_GAP
    assert search.complete


def test_missing_queues_below_the_expected_count_do_not_end_the_search() -> None:
    search = not_listed(3 * PROBE_GAP).search()

    assert probe_all(search, set()) == list(range(4 * PROBE_GAP))
    assert search.found == ()


def test_failed_probe_ends_the_search_beyond_the_expected_count() -> None:
    search = not_listed(2).search()
    probed = []
    for index in search:
        probed.append(index)
        if index >= 2:
            search.stop()

    assert probed == [0, 1, 2]
    assert (search.found, search.searched_to) == ((0, 1), 1)


def test_failed_probe_of_an_expected_queue_does_not_skip_the_other_expected_queues() -> None:
    search = not_listed(3).search()
    probed = []
    for index in search:
        probed.append(index)
        if index == 0:
            search.stop()

    assert probed == [0, 1, 2]
    assert search.searched_to == 2


def test_search_ends_at_the_longest_possible_path() -> None:
    name = "x" * (260 - len("/x-servicebus-transfer/0"))

    assert probe_all(not_listed(1, name).search(), set(range(100))) == list(range(10))


def test_incomplete_search_reports_no_mismatch() -> None:
    search = not_listed(3).search()
    next(iter(search))

    assert not search.complete
    assert search.queue_mismatch is None


@pytest.mark.parametrize(
    ("expected", "found", "text"),
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
def test_mismatch_names_missing_and_unexpected_queues(
    expected: int, found: list[int], text: str | None
) -> None:
    assert queue_mismatch(expected, found) == text


def test_queues_are_named_by_ranges_of_their_indexes() -> None:
    assert describe_queues([4]) == "backlog queue 4"
    assert describe_queues([0, 1, 2, 5, 7, 8]) == "backlog queues 0 to 2, 5, 7 to 8"
    assert describe_queues(range(12)) == "backlog queues 0 to 11"
