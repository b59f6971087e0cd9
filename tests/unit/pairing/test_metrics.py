"""The metrics of a pairing are read from its state."""

from datetime import timedelta

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusServerBusyError

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.metrics import PairingMetrics
from pairbus.pairing.state import PairingState
from pairbus.telemetry.metrics import PATH_STATE, SENT_MESSAGES
from pairbus.telemetry.samples import Sample
from pairbus.telemetry.senders import ServerAddress

pytestmark = pytest.mark.rule("O1")

DOWN = ServiceBusConnectionError(message="down")
BUSY = ServiceBusServerBusyError(message="busy")


@pytest.fixture
def pairing() -> PairingState:
    return PairingState(
        SendAvailabilityOptions(failover_interval=timedelta()),
        primary="one:5673",
        secondary="two",
        queues=("q",),
        on_change=lambda: None,
        start_recovery=lambda path: None,
    )


def samples(pairing: PairingState, name: str) -> list[Sample]:
    metrics = PairingMetrics(pairing, ServerAddress("one", 5673), ServerAddress("two"))
    return [sample for sample in metrics.samples() if sample.name == name]


def test_current_state_is_1_and_the_others_are_0(pairing: PairingState) -> None:
    pairing.send_failed(pairing.path("orders"), DOWN)
    pairing.path("bills")

    states = {
        (sample.labels["path"], sample.labels["state"]): sample.value
        for sample in samples(pairing, PATH_STATE)
    }
    assert len(states) == 8
    assert [key for key, value in states.items() if value == 1] == [
        ("orders", "failover"),
        ("bills", "healthy"),
    ]


def test_messages_are_counted_by_server_and_failure(pairing: PairingState) -> None:
    path = pairing.path("orders")
    pairing.recorder.sent(path, 5)
    pairing.recorder.stored(path, 3)
    pairing.recorder.call_failed(path, BUSY, 2)

    values = {
        (sample.labels["server.address"], sample.labels.get("error.type")): sample.value
        for sample in samples(pairing, SENT_MESSAGES)
    }
    assert values == {("one", None): 5, ("two", None): 3, ("one", "busy"): 2}
    ports = {sample.labels.get("server.port") for sample in samples(pairing, SENT_MESSAGES)}
    assert ports == {5673, None}


def test_closed_pairing_has_counters_only(pairing: PairingState) -> None:
    pairing.recorder.sent(pairing.path("orders"), 5)
    pairing.mark_closed(pairing.primary)

    assert samples(pairing, PATH_STATE) == []
    assert [sample.value for sample in samples(pairing, SENT_MESSAGES)] == [5]
