"""The rotation of the backlog queues."""

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


def pull_all(rotation: Rotation, now: float = 0.0) -> None:
    for queue in QUEUES:
        rotation.failed(queue, BROKEN, now)


def pulled(rotation: Rotation) -> dict[str, tuple[BaseException, float]]:
    return {queue: (state.cause, state.since) for queue, state in rotation.pulled().items()}


@pytest.mark.rule("S4")
def test_queues_are_chosen_uniformly(rotation: Rotation) -> None:
    claims = Counter(rotation.claim_any(0.0) for _ in range(4000))

    assert set(claims) == set(QUEUES)
    assert all(850 < count < 1150 for count in claims.values())


@pytest.mark.rule("S4")
def test_remaining_queues_are_chosen_uniformly_after_one_is_pulled(rotation: Rotation) -> None:
    rotation.failed("b", BROKEN, 0.0)

    claims = Counter(rotation.claim_any(1.0) for _ in range(3000))

    assert set(claims) == {"a", "c", "d"}
    assert all(850 < count < 1150 for count in claims.values())


@pytest.mark.rule("S4")
def test_failed_queue_is_pulled_for_all_senders(rotation: Rotation) -> None:
    assert rotation.claim("a", 0.0)
    assert rotation.claim("a", 0.0)  # two senders use it

    assert rotation.failed("a", BROKEN, 0.0)

    assert not rotation.claim("a", 0.0)
    assert "a" not in {rotation.claim_any(0.0) for _ in range(100)}


@pytest.mark.rule("S4")
def test_only_the_first_failure_pulls_a_queue(rotation: Rotation) -> None:
    assert rotation.failed("a", BROKEN, 0.0) is True
    assert rotation.failed("a", BROKEN, 0.0) is False
    assert rotation.failed("b", BROKEN, 0.0) is True


def test_excluded_queues_are_not_chosen(rotation: Rotation) -> None:
    assert rotation.claim_any(0.0, ("a", "b", "d")) == "c"
    assert rotation.claim_any(0.0, QUEUES) is None


@pytest.mark.rule("S5")
def test_no_queue_is_chosen_when_all_are_pulled(rotation: Rotation) -> None:
    pull_all(rotation)

    assert rotation.claim_any(COOL_DOWN - 0.001) is None


@pytest.mark.rule("S4")
def test_pulled_queue_is_not_usable_before_its_cool_down_is_over(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 10.0)

    assert not rotation.claim("a", 10.0 + COOL_DOWN - 0.001)
    assert rotation.claim("a", 10.0 + COOL_DOWN)


@pytest.mark.rule("S4")
def test_pulled_queue_is_usable_long_after_its_cool_down(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 10.0)

    assert rotation.claim("a", 10.0 + 100 * COOL_DOWN)


@pytest.mark.rule("S4")
def test_one_sender_at_a_time_tries_a_pulled_queue(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 0.0)

    assert rotation.claim("a", COOL_DOWN)
    assert not rotation.claim("a", COOL_DOWN)
    assert not rotation.claim("a", COOL_DOWN + 1000)


@pytest.mark.rule("S4")
def test_choosing_a_pulled_queue_claims_it(rotation: Rotation) -> None:
    pull_all(rotation)

    claimed = [rotation.claim_any(COOL_DOWN) for _ in range(5)]

    assert set(claimed[:4]) == set(QUEUES)  # each once
    assert claimed[4] is None


@pytest.mark.rule("S4")
def test_queue_that_accepts_a_message_is_restored(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 0.0)
    rotation.claim("a", COOL_DOWN)

    assert rotation.succeeded("a") is True

    assert pulled(rotation) == {}
    assert rotation.claim("a", COOL_DOWN)
    assert rotation.claim("a", COOL_DOWN)


def test_success_of_a_queue_in_the_rotation_restores_nothing(rotation: Rotation) -> None:
    assert rotation.succeeded("a") is False


@pytest.mark.rule("S4")
def test_failed_try_starts_another_cool_down(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 0.0)
    rotation.claim("a", COOL_DOWN)
    again = OSError("again")

    assert rotation.failed("a", again, COOL_DOWN + 5) is False

    assert not rotation.claim("a", 2 * COOL_DOWN)
    assert pulled(rotation) == {"a": (again, COOL_DOWN + 5)}
    assert rotation.claim("a", 2 * COOL_DOWN + 5)


@pytest.mark.rule("S4")
def test_released_claim_leaves_the_queue_to_the_next_sender(rotation: Rotation) -> None:
    rotation.failed("a", BROKEN, 0.0)
    rotation.claim("a", COOL_DOWN)

    rotation.release("a")

    assert pulled(rotation) == {"a": (BROKEN, 0.0)}
    assert rotation.claim("a", COOL_DOWN)
    assert not rotation.claim("a", COOL_DOWN)


def test_releasing_a_queue_in_the_rotation_does_nothing(rotation: Rotation) -> None:
    rotation.release("a")

    assert rotation.claim("a", 0.0)


def test_last_cause_is_that_of_the_queue_pulled_last(rotation: Rotation) -> None:
    assert rotation.last_cause is None
    last = OSError("last")
    rotation.failed("a", BROKEN, 1.0)
    rotation.failed("b", last, 3.0)
    rotation.failed("c", BROKEN, 2.0)

    assert rotation.last_cause is last


def test_without_a_cool_down_a_pulled_queue_is_usable_immediately() -> None:
    rotation = Rotation(("a",), cool_down_s=0.0, random=Random(1))
    rotation.failed("a", BROKEN, 5.0)

    assert rotation.claim_any(5.0) == "a"
    assert rotation.claim_any(5.0) is None
