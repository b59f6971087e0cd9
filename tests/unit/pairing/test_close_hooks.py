"""Hooks that are called before the application closes a client of the SDK."""

import asyncio
import gc
import inspect
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from pairbus.pairing.close_hooks import CloseHook

pytestmark = pytest.mark.rule("Y7")
TEXT = "Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"


class Client(ServiceBusClient):
    """A client that counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        super().close()
        self.closed += 1


class AsyncClient(AsyncServiceBusClient):
    """An asynchronous client that counts how often it was closed."""

    closed = 0

    async def close(self) -> None:
        await super().close()
        self.closed += 1


KINDS = {"sync": Client, "aio": AsyncClient}


class Owner:
    """The owner of a hook. It notes how often the client had been closed before."""

    def __init__(self, client: Any, error: Exception | None = None) -> None:
        self.client = client
        self.error = error
        self.notified: list[int] = []
        is_async = isinstance(client, AsyncClient)
        self.hook = CloseHook(client, self.on_close_async if is_async else self.on_close)

    def on_close(self) -> None:
        self.notified.append(self.client.closed)
        if self.error is not None:
            raise self.error

    async def on_close_async(self) -> None:
        await asyncio.sleep(0)
        self.on_close()


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param].from_connection_string(TEXT)


async def close(client: Any) -> None:
    result = client.close()
    assert inspect.isawaitable(result) is isinstance(client, AsyncClient)
    if inspect.isawaitable(result):
        await result


async def leave_block(client: Any) -> None:
    if isinstance(client, AsyncClient):
        async with client:
            pass
    else:
        with client:
            pass


async def test_owner_is_notified_before_each_close(client: Any) -> None:
    owner = Owner(client)

    await close(client)
    await leave_block(client)

    assert owner.notified == [0, 1]
    assert client.closed == 2


async def test_hook_that_was_removed_leaves_no_trace(client: Any) -> None:
    owner = Owner(client)
    owner.hook.remove()
    owner.hook.remove()

    await close(client)

    assert (owner.notified, client.closed) == ([], 1)
    assert "close" not in vars(client)


async def test_client_is_closed_although_its_owner_fails(client: Any) -> None:
    owner = Owner(client, error=OSError("failed"))

    with pytest.raises(OSError, match="failed"):
        await close(client)

    assert (owner.notified, client.closed) == ([0], 1)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
async def test_several_owners_can_end_in_any_order(client: Any, order: tuple[int, ...]) -> None:
    owners = [Owner(client) for _ in range(3)]
    await close(client)
    assert [owner.notified for owner in owners] == [[0]] * 3

    for number, ended in enumerate(order, start=1):
        owners[ended].hook.remove()
        await close(client)
        active = [owners[index] for index in order[number:]]
        assert all(len(owner.notified) == 1 + number for owner in active)
        assert len(owners[ended].notified) == number

    assert client.closed == 4
    assert "close" not in vars(client)


async def test_owner_that_no_longer_exists_is_not_notified(client: Any) -> None:
    notified = Owner(client).notified
    gc.collect()

    await close(client)
    assert (notified, client.closed) == ([], 1)

    # The end of another owner removes the rest.
    Owner(client).hook.remove()
    assert "close" not in vars(client)


async def test_replacement_of_close_by_other_code_is_kept(client: Any) -> None:
    calls: list[str] = []

    def replace(name: str) -> Any:
        inner = client.close

        def close() -> Any:
            calls.append(name)
            return inner()

        client.close = close
        return close

    first = replace("first")
    owner = Owner(client)
    second = replace("second")

    await close(client)
    assert (calls, owner.notified) == (["second", "first"], [0])

    owner.hook.remove()
    assert client.close is second
    await close(client)
    assert (calls[2:], owner.notified) == (["second", "first"], [0])

    client.close = first
    owner = Owner(client)
    owner.hook.remove()
    assert client.close is first


def test_hook_looks_like_the_method_that_it_replaces(client: Any) -> None:
    original = client.close
    owner = Owner(client)

    assert client.close.__doc__ == original.__doc__
    assert inspect.iscoroutinefunction(client.close) is inspect.iscoroutinefunction(original)
    owner.hook.remove()
