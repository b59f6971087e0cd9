"""The health of the secondary's host: when it is down, and when it is probed."""

import pytest

from pairbus.pairing.secondary_health import (
    FIRST_PROBE_S,
    MAX_PROBE_INTERVAL_S,
    HostProbe,
    SecondaryHealth,
)

QUEUES = ("a", "b", "c")
DOWN, LATER = OSError("down"), OSError("later")

pytestmark = pytest.mark.rule("S2a")


@pytest.fixture
def health() -> SecondaryHealth:
    return SecondaryHealth(QUEUES)


@pytest.fixture
def down(health: SecondaryHealth) -> SecondaryHealth:
    """A host that is down since 100.0, after the queue "b" failed."""
    assert health.failed("b", DOWN, began=90.0, now=100.0)
    return health


def test_host_is_up_at_first(health: SecondaryHealth) -> None:
    assert not health.is_down
    assert health.next_probe is None


def test_failed_connection_means_down_and_a_probe_of_the_same_queue(down: SecondaryHealth) -> None:
    assert down.is_down
    assert down.cause is DOWN
    assert down.next_probe == HostProbe("b", 100.0 + FIRST_PROBE_S)


def test_further_failures_do_not_move_the_probe(down: SecondaryHealth) -> None:
    assert down.failed("c", LATER, began=95.0, now=100.5)

    assert down.cause is LATER
    assert down.next_probe == HostProbe("b", 101.0)


def test_probes_take_turns_and_become_rarer(down: SecondaryHealth) -> None:
    probes = []
    now = 100.0
    for _ in range(6):
        probe = down.next_probe
        assert probe is not None
        probes.append((probe.queue, probe.at - now))
        now = probe.at
        assert not down.probe_failed(probe.queue, LATER, began=now, now=now)

    assert probes == [("b", 1), ("c", 2), ("a", 4), ("b", 5), ("c", 5), ("a", 5)]
    assert probes[-1][1] == MAX_PROBE_INTERVAL_S
    assert down.cause is LATER


def test_success_of_the_queue_that_failed_ends_the_outage(down: SecondaryHealth) -> None:
    assert down.succeeded("b", 102.0)

    assert not down.is_down
    assert down.next_probe is None
    assert not down.succeeded("b", 103.0)  # it was up already


def test_next_outage_begins_with_the_shortest_interval(down: SecondaryHealth) -> None:
    down.probe_failed("b", LATER, began=101.0, now=101.0)
    down.succeeded("b", 103.0)

    assert down.failed("c", DOWN, began=110.0, now=110.0)

    assert down.next_probe == HostProbe("c", 110.0 + FIRST_PROBE_S)


def test_failure_of_an_attempt_that_began_before_a_success_concerns_its_queue(
    health: SecondaryHealth,
) -> None:
    health.succeeded("a", 100.0)

    assert not health.failed("b", DOWN, began=99.0, now=105.0)
    assert not health.is_down
    assert health.failed("b", DOWN, began=100.0, now=106.0)
    assert health.is_down


def test_queue_that_failed_is_probed_again_after_another_answered(down: SecondaryHealth) -> None:
    assert down.succeeded("a", 102.0)

    assert not down.is_down
    assert down.next_probe == HostProbe("b", 102.0)


def test_queue_is_at_fault_if_only_its_probe_fails(down: SecondaryHealth) -> None:
    down.succeeded("a", 102.0)

    assert down.probe_failed("b", LATER, began=102.0, now=103.0)

    assert not down.is_down
    assert down.next_probe is None


def test_queue_is_not_at_fault_if_its_probe_began_before_the_host_answered(
    down: SecondaryHealth,
) -> None:
    down.succeeded("a", 102.0)

    assert not down.probe_failed("b", LATER, began=101.0, now=103.0)

    assert not down.is_down
    assert down.next_probe == HostProbe("b", 102.0)


def test_success_of_the_queue_that_failed_ends_its_probes(down: SecondaryHealth) -> None:
    down.succeeded("a", 102.0)

    assert not down.succeeded("b", 103.0)

    assert down.next_probe is None


def test_only_queue_is_probed_each_time() -> None:
    health = SecondaryHealth(("only",))
    health.failed("only", DOWN, began=0.0, now=0.0)
    health.probe_failed("only", DOWN, began=1.0, now=1.0)

    assert health.next_probe == HostProbe("only", 3.0)
    assert health.succeeded("only", 4.0)
    assert health.next_probe is None


# Hosts that open links and answer no send.


@pytest.fixture
def on_trial(health: SecondaryHealth) -> SecondaryHealth:
    """A host that answered no send until 100.0, and opened a link at 101.0."""
    assert health.failed("b", DOWN, began=100.0, now=100.0, unanswered=True)
    assert not health.accepts_call
    assert health.succeeded("b", 101.0)
    return health


def test_host_that_answered_no_send_is_on_trial_after_a_probe(on_trial: SecondaryHealth) -> None:
    assert not on_trial.is_down
    assert on_trial.accepts_call
    assert on_trial.next_probe is None
    assert on_trial.unanswered is DOWN


def test_host_on_trial_accepts_one_call_at_a_time(on_trial: SecondaryHealth) -> None:
    assert on_trial.begin_trial()
    assert not on_trial.accepts_call

    on_trial.release_trial()

    assert on_trial.accepts_call
    assert on_trial.begin_trial()


def test_answer_to_a_send_ends_the_trial(on_trial: SecondaryHealth) -> None:
    on_trial.begin_trial()

    on_trial.send_answered()

    assert on_trial.accepts_call
    assert on_trial.unanswered is None
    assert not on_trial.begin_trial()  # calls are ordinary again
    assert on_trial.accepts_call


def test_host_that_does_not_answer_a_trial_is_down_and_probed_more_rarely(
    on_trial: SecondaryHealth,
) -> None:
    intervals = []
    now = 101.0
    for _ in range(4):
        assert on_trial.begin_trial()
        on_trial.trial_failed("c", LATER, now)
        assert on_trial.is_down
        assert on_trial.cause is on_trial.unanswered is LATER
        probe = on_trial.next_probe
        assert probe is not None
        assert probe.queue == "c"
        intervals.append(probe.at - now)
        now = probe.at
        assert on_trial.succeeded("c", now)

    assert intervals == [2, 4, 5, 5]
    on_trial.send_answered()
    assert on_trial.failed("b", DOWN, began=now, now=now)
    assert on_trial.next_probe == HostProbe("b", now + FIRST_PROBE_S)


def test_trial_fails_even_if_a_probe_succeeded_after_it_began(on_trial: SecondaryHealth) -> None:
    on_trial.begin_trial()
    on_trial.succeeded("a", 102.0)

    on_trial.trial_failed("c", LATER, 103.0)

    assert on_trial.is_down


def test_late_result_of_a_trial_does_not_move_the_probe(on_trial: SecondaryHealth) -> None:
    on_trial.begin_trial()
    on_trial.failed("a", DOWN, began=102.0, now=102.0)

    on_trial.trial_failed("c", LATER, 103.0)

    assert on_trial.next_probe == HostProbe("a", 103.0)


def test_host_whose_connections_failed_is_not_on_trial(down: SecondaryHealth) -> None:
    down.succeeded("b", 101.0)

    assert not down.begin_trial()
    assert down.accepts_call
