"""The application closes its own clients of the SDK, which a pairing uses."""

import asyncio
from typing import Any

import pytest

from pairbus.errors import SendUnavailable, StateError
from tests.integration.pairs import Make, Pair, error_of, message, until
from tests.integration.raw_peer import DEADLINE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def close_client(pair: Pair, client: Any, how: str) -> None:
    """Close a client of the SDK by its method, or at the end of a `with` block."""
    if how == "close":
        await pair.do(client.close)
    elif pair.sync:
        await asyncio.to_thread(leave_block, client)
    else:
        async with client:
            pass


def leave_block(client: Any) -> None:
    with client:
        pass


async def with_one_failed_path(pair: Any) -> tuple[str, str, list[Any]]:
    """Return a healthy path, one in failover, and their senders, which have sent a message each."""
    healthy, failing = pair.queues(2)
    senders = await pair.entered(healthy, failing)
    fault = pair.fault("disable", failing)
    for sender in senders:
        await sender.send_messages(message("before"))
    assert fault.fired
    return healthy, failing, senders


@pytest.mark.rule("Y7")
@pytest.mark.parametrize("how", ["close", "with"])
async def test_closing_the_own_client_of_the_primary_closes_the_pairing(
    make: Make, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = await make()
    primary, _ = pair.clients
    healthy, _, senders = await with_one_failed_path(pair)

    await asyncio.wait_for(close_client(pair, primary, how), DEADLINE_S)

    assert (pair.bus.primary.closed, pair.bus.secondary.closed) == (True, False)
    assert pair.bus.status().closed
    assert "The application closes its client of" in caplog.text
    calls = [sender.send_messages for sender in senders]
    calls += [lambda *_: senders[0].create_message_batch(), lambda *_: senders[1].__aenter__()]
    for call in calls:
        error = await error_of(call(message("after")))
        assert type(error) is StateError
        assert "The application closed its ServiceBusClient of" in str(error)
    with pytest.raises(StateError, match="application closed"):
        pair.bus.get_queue_sender(healthy)
    assert "close" not in vars(primary)
    await pair.close()

    # The client of the SDK works again after its close, and can be paired again.
    again = await make(start=False)
    await again.start(primary=primary)
    await again.sender(healthy).send_messages(message("again"))
    assert len(pair.arrived(healthy)) == 2


@pytest.mark.rule("Y7", "S5")
@pytest.mark.parametrize("how", ["close", "with"])
async def test_closing_the_own_client_of_the_secondary_leaves_the_primary(
    make: Make, how: str
) -> None:
    pair = await make()
    _, secondary = pair.clients
    healthy, failing, senders = await with_one_failed_path(pair)

    await asyncio.wait_for(close_client(pair, secondary, how), DEADLINE_S)

    assert (pair.bus.primary.closed, pair.bus.secondary.closed) == (False, True)
    await senders[0].send_messages(message("after"))
    assert len(pair.arrived(healthy)) == 2
    for _ in range(2):
        error = await error_of(senders[1].send_messages(message("after")))
        assert isinstance(error, SendUnavailable)
        assert type(error.backlog_error) is StateError
        assert "The application closed its ServiceBusClient of" in str(error.backlog_error)
    assert len(pair.backlog(failing)) == 1
    assert "close" not in vars(secondary)


@pytest.mark.rule("S14")
async def test_sends_in_progress_end_before_the_own_client_is_closed(make: Make) -> None:
    pair = await make()
    queue = pair.queue()
    acknowledged: list[str] = []

    async def keep_sending(name: str) -> None:
        sender = pair.sender(queue)
        for number in range(100_000):
            id_ = f"{name}-{number}"
            await sender.send_messages(message(message_id=id_))
            acknowledged.append(id_)

    tasks = [asyncio.ensure_future(error_of(keep_sending(name))) for name in "abc"]
    await until(lambda: len(acknowledged) > 30, "some messages")
    await asyncio.wait_for(close_client(pair, pair.clients[0], "close"), DEADLINE_S)
    errors = await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE_S)

    # No call failed with an error of the SDK in the midst of a send.
    assert [type(error) for error in errors] == [StateError] * 3, errors
    assert len(pair.arrived(queue)) == len(acknowledged)


async def test_end_of_a_pairing_restores_the_clients_of_the_application(make: Make) -> None:
    pair, other = await make(), await make(start=False)
    await other.start(secondary=pair.clients[1])  # both pairings use one client
    clients = [*pair.clients, *other.clients]
    assert all("close" in vars(client) for client in clients)

    await pair.close()
    assert "close" not in vars(pair.clients[0])
    await other.close()

    assert not any("close" in vars(client) for client in clients)
    await pair.do(clients[0].close)


@pytest.mark.rule("Y7")
async def test_every_pairing_of_a_closed_client_is_closed(make: Make) -> None:
    pair, other = await make(), await make(start=False)
    await other.start(secondary=pair.clients[1])

    await pair.do(pair.clients[1].close)

    assert (pair.bus.secondary.closed, other.bus.secondary.closed) == (True, True)
