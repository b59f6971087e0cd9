"""The states of the two clients of a pairing, and the monitor that compares them."""

import os

import pytest

from pairbus.errors import PairingFaulted, PairingForked, StateError
from pairbus.pairing.client_state import (
    PARTNER_TIMEOUT_S,
    ClientState,
    PartnerAction,
    PartnerMonitor,
)

CAUSE = OSError("gone")


def two_clients() -> tuple[ClientState, ClientState, PartnerMonitor]:
    primary, secondary = ClientState("one"), ClientState("two")
    return primary, secondary, PartnerMonitor(primary, secondary)


def test_open_client_raises_nothing() -> None:
    client = ClientState("one")

    client.check_open()

    assert (client.down, client.error()) == (False, None)


def test_closed_client_raises_state_error() -> None:
    client = ClientState("one")

    assert client.set_closed()
    assert not client.set_closed()

    with pytest.raises(StateError, match="closed"):
        client.check_open()
    assert client.down


@pytest.mark.rule("Y7")
def test_client_that_the_application_closed_says_so() -> None:
    client = ClientState("one")

    assert client.set_closed_by_application()
    assert client.down
    assert client.set_closed()  # everything that depends on it is closed afterwards
    assert not client.set_closed_by_application()

    with pytest.raises(StateError, match="The application closed its ServiceBusClient of one"):
        client.check_open()


@pytest.mark.rule("Y7")
def test_client_that_was_closed_before_is_not_closed_by_the_application() -> None:
    client = ClientState("one")
    client.set_closed()

    assert not client.set_closed_by_application()

    with pytest.raises(StateError, match="The pairing is closed"):
        client.check_open()


@pytest.mark.rule("Y7")
@pytest.mark.parametrize("closed", [True, False])
def test_faulted_client_raises_its_first_cause(closed: bool) -> None:
    client = ClientState("one")
    if closed:
        client.set_closed()

    assert client.set_fault(CAUSE)
    assert not client.set_fault(RuntimeError("another"))

    assert client.down
    with pytest.raises(PairingFaulted, match="gone") as caught:
        client.check_open()
    assert caught.value.__cause__ is CAUSE


@pytest.mark.parametrize("before", ["open", "closed", "faulted"])
def test_client_in_a_child_process_says_which_process_made_it(before: str) -> None:
    client = ClientState("one")
    if before == "closed":
        client.set_closed()
    if before == "faulted":
        client.set_fault(CAUSE)
    assert not client.forked

    client.set_forked()
    client.set_fault(RuntimeError("later, in the child"))

    assert (client.forked, client.down) == (True, True)
    with pytest.raises(PairingForked, match=f"made in process {os.getpid()}") as caught:
        client.check_open()
    assert caught.value.pid == os.getpid()
    assert client.error() is not client.error()  # each call gets its own traceback


@pytest.mark.rule("Y7")
def test_no_action_while_both_clients_are_open() -> None:
    _, _, monitor = two_clients()

    assert {monitor.check(at) for at in (0, 4, 1000)} == {PartnerAction.NONE}


@pytest.mark.rule("Y7")
@pytest.mark.parametrize("faulted", [True, False])
@pytest.mark.parametrize(
    ("down", "action"),
    [(0, PartnerAction.FAULT_SECONDARY), (1, PartnerAction.FAULT_PRIMARY)],
    ids=["primary", "secondary"],
)
def test_partner_of_a_client_that_is_down_is_faulted_after_5_seconds(
    down: int, action: PartnerAction, faulted: bool
) -> None:
    clients = two_clients()
    monitor = clients[2]
    assert monitor.check(90) is PartnerAction.NONE
    if faulted:
        clients[down].set_fault(CAUSE)
    else:
        clients[down].set_closed()

    assert PARTNER_TIMEOUT_S == 5
    assert monitor.check(100) is PartnerAction.NONE
    assert monitor.check(104.9) is PartnerAction.NONE
    assert monitor.check(105) is action


@pytest.mark.rule("Y7")
@pytest.mark.parametrize("after", [0.0, 3.0, 50.0])
def test_syphon_stops_when_both_clients_are_down(after: float) -> None:
    primary, secondary, monitor = two_clients()
    primary.set_closed()
    monitor.check(100)
    secondary.set_fault(CAUSE)

    assert monitor.check(100 + after) is PartnerAction.STOP
