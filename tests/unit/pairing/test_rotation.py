"""Which backlog queues are in use."""

from collections import Counter
from random import Random

import pytest

from pairbus.pairing.rotation import Rotation

QUEUES = ("a", "b", "c", "d")
COOL_DOWN = 60.0
BROKEN = OSError("broken")


@pytest.fixture
def rotation() -> Rotation:
    return Rotation(QUEUES, cool_down_s=COOL_DOWN, random=Random(1))


def all_out(rotation: Rotation, now: float = 0.0) -> None:
    for queue in QUEUES:
        rotation.failed(queue, BROKEN, now)


@pytest.mark.rule("S4")
def test_each_queue_is_as_likely_as_the_others(rotation: Rotation) -> None:
    picks = Counter(rotation.pick(0.0) for _ in range(4000))

    assert set(picks) == set(QUEUES)
    assert all(850 < count < 1150 for count in picks.values())


@pytest.mark.rule("S4")
def test_when_one_is_out_the_rest_are_as_likely_as_each_other(rotation: Rotation) -> None:
    rotation.failed("b", BROKEN, 0.0)

    picks = Counter(rotation.pick(1.0) for _ in range(3000))

    assert set(picks) == {"a", "c", "d"}
    assert all(850 < count < 1150 for count in picks.values())


@pytest.mark.rule("S4")
def test_a_queue_that_failed_is_out_for_all_at_once(rotation: Rotation) -> None:
    assert rotation.claim("a", 0.0)
    assert rotation.claim("a", 0.0)  # two senders use it

    assert rotation.failed("a", BROKEN, 0.0)

    assert not rotation.claim("a", 0.0)
    assert "a" not in {rotation.pick(0.0) for _ in range(100)}


@pytest.mark.rule("S4")
def test_only_the_first_failure_takes_a_queue_out(rotation: Rotation) -> None:
    assert rotation.failed("a", BROKEN, 0.0) is True
    assert rotation.failed("a", BROKEN, 0.0) is False
    assert rotation.failed("b", BROKEN, 0.0) is True


def test_queues_that_were_tried_are_not_picked(rotation: Rotation) -> None:
    assert rotation.pick(0.0, ("a", "b", "d")) == "c"
    assert rotation.pick(0.0, QUEUES) is None


@pytest.mark.rule("S5")
def test_when_all_are_out_there_is_none(rotation: Rotation) -> None:
    all_out(rotation)

    assert rotation.pick(COOL_DOWN - 0.001) is None


@pytest.mark.rule("S4")
def test_a_queue_is_left_alone_until_its_cool_down_is_over(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 10.0)

    assert not rotation.claim("a", 10.0 + COOL_DOWN - 0.001)
    assert rotation.claim("a", 10.0 + COOL_DOWN)


@pytest.mark.rule("S4")
def test_one_sender_at_a_time_tries_a_queue_that_was_out(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 0.0)

    assert rotation.claim("a", COOL_DOWN)
    assert not rotation.claim("a", COOL_DOWN)
    assert not rotation.claim("a", COOL_DOWN + 1000)


@pytest.mark.rule("S4")
def test_who_picks_a_queue_that_was_out_is_the_one_who_tries_it(rotation: Rotation) -> None:
    all_out(rotation)

    picked = [rotation.pick(COOL_DOWN) for _ in range(5)]

    assert set(picked[:4]) == set(QUEUES)  # each once
    assert picked[4] is None


@pytest.mark.rule("S4")
def test_a_queue_that_takes_a_message_is_in_again(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 0.0)
    rotation.claim("a", COOL_DOWN)

    assert rotation.succeeded("a") is True

    assert rotation.out() == {}
    assert rotation.claim("a", COOL_DOWN)
    assert rotation.claim("a", COOL_DOWN)


def test_a_queue_that_was_in_is_not_restored(rotation: Rotation) -> None:
    assert rotation.succeeded("a") is False


@pytest.mark.rule("S4")
def test_a_try_that_fails_starts_another_cool_down(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 0.0)
    rotation.claim("a", COOL_DOWN)
    again = OSError("again")

    assert rotation.failed("a", again, COOL_DOWN + 5) is False

    assert not rotation.claim("a", 2 * COOL_DOWN)
    assert rotation.out() == {"a": (again, COOL_DOWN + 5)}
    assert rotation.claim("a", 2 * COOL_DOWN + 5)


@pytest.mark.rule("S4")
def test_a_try_of_which_nothing_is_known_leaves_it_to_the_next(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 0.0)
    rotation.claim("a", COOL_DOWN)

    rotation.let_go("a")

    assert rotation.out() == {"a": (BROKEN, 0.0)}
    assert rotation.claim("a", COOL_DOWN)
    assert not rotation.claim("a", COOL_DOWN)


def test_letting_go_of_a_queue_that_is_in_does_nothing(rotation: Rotation) -> None:
    rotation.let_go("a")

    assert rotation.claim("a", 0.0)


def test_the_last_cause_is_that_of_the_queue_that_went_last(rotation: Rotation) -> None:
    assert rotation.last_cause is None
    last = OSError("last")
    rotation.failed("a", BROKEN, 1.0)
    rotation.failed("b", last, 3.0)
    rotation.failed("c", BROKEN, 2.0)

    assert rotation.last_cause is last


def test_without_a_cool_down_a_queue_can_be_tried_at_once() -> None:
    rotation = Rotation(("a",), cool_down_s=0.0, random=Random(1))
    rotation.failed("a", BROKEN, 5.0)

    assert rotation.pick(5.0) == "a"
    assert rotation.pick(5.0) is None
