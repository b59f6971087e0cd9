"""Pairing two namespaces: checks, failed attempts, and every kind of credential end to end."""

import asyncio
import socket
import threading
import time
from typing import Any

import azure.servicebus
import azure.servicebus.aio
import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import TransportType

import pairbus.aio
from pairbus import SendAvailabilityOptions
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import (
    AlreadyPaired,
    BacklogUnavailable,
    ConfigurationError,
    OptionsMissing,
    SameNamespace,
    SecondaryInUse,
    SecondaryIsPrimary,
    SecondaryMissing,
)
from pairbus.events import PathStatus
from pairbus.pairing.namespaces import registry
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import sign_token
from tests.integration.emulator_clients import QUICK_CLOSE
from tests.integration.pairs import (
    QUICK,
    SENDS,
    Make,
    Pair,
    error_of,
    gather_all,
    message,
    until,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def refusal(pair: Pair, primary: Any, secondary: Any, **options: Any) -> type[Any]:
    """Return the class of the error that pairing two clients raises."""
    error = await error_of(pair.start(primary=primary, secondary=secondary, **options))
    assert error is not None
    return type(error)


def unreachable_namespace(port: int) -> str:
    """Return a namespace that is never reached."""
    return (
        f"Endpoint=sb://localhost:{port}/;SharedAccessKeyName=n;SharedAccessKey=k;"
        "UseDevelopmentEmulator=true;"
    )


@pytest.mark.rule("P1")
async def test_each_mistake_has_its_own_error_and_checks_are_made_in_order(make: Make) -> None:
    pair, other = await make(start=False), await make(start=False)
    first, second = pair.primary.connection_string, pair.secondary.connection_string
    primary, secondary = pair.connect(first), pair.connect(second)
    assert await error_with_options(pair, primary, None) is OptionsMissing
    for nothing in (None, ""):
        options = SendAvailabilityOptions(secondary=nothing)
        assert await error_with_options(pair, primary, options) is SecondaryMissing
    assert await refusal(pair, primary, first) is SameNamespace
    assert await refusal(pair, primary, pair.connect(first)) is SameNamespace

    await other.start(primary=primary, secondary=secondary)
    # This client is already paired: SameNamespace is raised before all other errors.
    assert await error_with_options(pair, primary, options) is SecondaryMissing
    assert await refusal(pair, primary, first) is SameNamespace
    assert await refusal(pair, primary, second) is AlreadyPaired
    assert await refusal(pair, primary, unreachable_namespace(1)) is AlreadyPaired
    # The secondary is a primary, or serves another one.
    third = pair.connect(unreachable_namespace(1))
    assert await refusal(pair, third, first) is SecondaryIsPrimary
    assert await refusal(pair, third, second) is SecondaryInUse
    assert not any(pairing.client is third for pairing in registry._pairings.values())


async def error_with_options(pair: Pair, primary: Any, options: Any) -> type[Any]:
    """Return the class of the error that pairing with these options raises."""
    start = pairbus.pair_namespace if pair.sync else pairbus.aio.pair_namespace
    return type(await error_of(pair.do(start, primary, options)))


@pytest.mark.rule("P1")
async def test_secondary_that_is_a_primary_is_reported_before_secondary_in_use(make: Make) -> None:
    pair, other, third = await gather_all(make(start=False) for _ in range(3))
    first, second = pair.primary.connection_string, pair.secondary.connection_string
    await other.start()
    back = pair.connect(second)
    assert await refusal(pair, back, first) is SecondaryIsPrimary
    await other.close()
    await third.start(primary=back, secondary=pair.connect(first))  # possible now
    assert await refusal(pair, pair.connect(first), second) is SecondaryIsPrimary


@pytest.mark.rule("P1")
async def test_two_clients_of_one_namespace_can_both_be_paired_with_one_secondary(
    make: Make,
) -> None:
    first, second = await gather_all((make(), make()))
    queue = first.queue()
    first.fault("internal-error", queue)
    await gather_all(pair.sender(queue).send_messages(message()) for pair in (first, second))
    assert [len(pair.backlog(queue)) for pair in (first, second)] == [1, 1]


@pytest.mark.rule("P1")
async def test_entity_path_and_clients_of_the_other_flavour_are_refused(make: Make) -> None:
    pair = await make(start=False)
    first, second = pair.primary.connection_string, pair.secondary.connection_string
    primary = pair.connect(first)
    wrong = (azure.servicebus.aio if pair.sync else azure.servicebus).ServiceBusClient
    for given, other in (
        (pair.connect(f"{first}EntityPath=q;"), second),
        (primary, f"{second}EntityPath=q;"),
        (primary, pair.connect(f"{second}EntityPath=q;")),
        (wrong.from_connection_string(first), second),
        (primary, wrong.from_connection_string(second)),
        (primary, "nonsense"),
        (primary, 42),
    ):
        error = await error_of(pair.start(primary=given, secondary=other))
        assert type(error) is ConfigurationError
    error = await error_of(pair.start(primary=primary, secondary=second, primary_name=None))
    assert "primary_name" in str(error)
    hosted = {"enable_syphon": True, "syphon_options": "none of ours"}
    error = await error_of(pair.start(primary=primary, secondary=second, **hosted))
    assert "syphon" in str(error)
    assert not any(pairing.client is primary for pairing in registry._pairings.values())


@pytest.mark.rule("P1", "P6")
async def test_failed_pairing_can_be_repeated(make: Make) -> None:
    pair = await make(start=False)
    primary = pair.connect(pair.primary.connection_string)
    send_only = pair.secondary.connection_string_of(SENDS.name, SENDS.primary_key)
    for secondary in (send_only, pair.connect(send_only)):
        assert await refusal(pair, primary, secondary) is BacklogUnavailable
        assert not any(pairing.client is primary for pairing in registry._pairings.values())
    await pair.start(primary=primary, secondary=pair.secondary.connection_string)
    queue = pair.queue()
    pair.fault("internal-error", queue)
    await pair.sender(queue).send_messages(message())
    assert len(pair.backlog(queue)) == 1
    await pair.close()
    # Closed pairings can be paired again.
    await pair.start(primary=primary)


@pytest.mark.rule("P1")
async def test_cancelled_pairing_is_not_paired_and_sends_no_further_request() -> None:
    def request_threads() -> set[threading.Thread]:
        return {
            thread for thread in threading.enumerate() if thread.name.startswith("pairbus requests")
        }

    others = request_threads()
    primary = azure.servicebus.aio.ServiceBusClient.from_connection_string(unreachable_namespace(1))
    with socket.create_server(("localhost", 0)) as frozen:  # it accepts and never answers
        options = SendAvailabilityOptions(
            secondary=unreachable_namespace(frozen.getsockname()[1]), primary_name="cancelled"
        )
        pairing = asyncio.create_task(pairbus.aio.pair_namespace(primary, options))
        connection, _ = await asyncio.to_thread(frozen.accept)
        assert request_threads() - others
        pairing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pairing
        assert not any(pairing.client is primary for pairing in registry._pairings.values())

        connection.close()  # ends the request, which would be repeated
        await until(lambda: not request_threads() - others, "the request to end")
        frozen.setblocking(False)
        with pytest.raises(BlockingIOError):
            frozen.accept()


class Bearer:
    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken("some-token", int(time.time()) + 3600)


class AsyncBearer:
    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return Bearer().get_token(*scopes)

    async def close(self) -> None: ...

    async def __aenter__(self) -> "AsyncBearer":
        return self

    async def __aexit__(self, *exc: object) -> None: ...


def clients(pair: Pair, namespace: LocalNamespace) -> dict[str, Any]:
    """Return a client for each kind of credential, one of them over TLS."""
    parsed = ConnectionString.parse(namespace.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    host = f"localhost:{namespace.port}"
    signature = sign_token(f"sb://{host}/", parsed.key_name, parsed.key, int(time.time()) + 600)
    sdk = azure.servicebus if pair.sync else azure.servicebus.aio
    bearer: Any = Bearer() if pair.sync else AsyncBearer()
    made = {
        "named key": sdk.ServiceBusClient(
            host, AzureNamedKeyCredential(parsed.key_name, parsed.key), use_tls=False, **QUICK
        ),
        "signature": sdk.ServiceBusClient(
            host, AzureSasCredential(signature), use_tls=False, **QUICK
        ),
        "bearer": sdk.ServiceBusClient(host, bearer, use_tls=False, **QUICK),
        "over TLS": sdk.ServiceBusClient(
            "localhost",
            AzureNamedKeyCredential(parsed.key_name, parsed.key),
            custom_endpoint_address=f"sb://{host}",
            connection_verify=namespace.ca_file,
            transport_type=TransportType.Amqp,
            **QUICK,
        ),
    }
    pair.clients += made.values()
    return made


@pytest.mark.rule("P7")
async def test_every_kind_of_credential_fails_over_and_back(make: Make) -> None:
    pairs = [await make(start=False) for _ in range(4)]
    primaries = clients(pairs[0], pairs[0].primary)
    secondaries = clients(pairs[0], pairs[0].secondary)
    await gather_all(
        pair.start(primary=primaries[kind], secondary=secondaries[kind], fake_clock=True)
        for pair, kind in zip(pairs, primaries, strict=True)
    )
    paths = [pair.queue() for pair in pairs]
    faults = [pair.fault("internal-error", path) for pair, path in zip(pairs, paths, strict=True)]
    senders = [
        pair.bus.get_queue_sender(path, **QUICK_CLOSE)
        for pair, path in zip(pairs, paths, strict=True)
    ]
    for _ in range(2):
        await gather_all(
            pair.do(sender.send_messages, message())
            for pair, sender in zip(pairs, senders, strict=True)
        )
    for pair, path, fault, kind in zip(pairs, paths, faults, primaries, strict=True):
        assert fault.fired == 1, kind
        assert len(pair.backlog(path)) == 2, kind
        pair.remove_faults(fault)
        pair.advance(90)
    await gather_all(
        pair.until_state(path, PathStatus.HEALTHY) for pair, path in zip(pairs, paths, strict=True)
    )
