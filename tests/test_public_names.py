"""The public names are few, typed and documented, and change only on purpose."""

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import azure.servicebus
import azure.servicebus.aio
import pytest

import pairbus
import pairbus.aio
import pairbus.backlog
import pairbus.emulator
import pairbus.errors
import pairbus.events
import pairbus.options
import pairbus.pairing.client_base
import pairbus.pairing.snapshots
import pairbus.syphon

PUBLIC = [
    "BacklogUnavailable",
    "FailureKind",
    "MessageTooLargeForBacklog",
    "PairbusError",
    "PairedClient",
    "PairedSender",
    "PairingFaulted",
    "PartlyStored",
    "PathStatus",
    "SendAvailabilityOptions",
    "SendUnavailable",
    "StateChanged",
    "__version__",
    "drop_pings",
    "pair_namespace",
]
MODULES = [
    pairbus,
    pairbus.aio,
    pairbus.backlog,
    pairbus.errors,
    pairbus.events,
    pairbus.options,
    pairbus.pairing.client_base,
    pairbus.pairing.snapshots,
    pairbus.syphon,
]
CONNECTION_STRING = (
    "Endpoint=sb://{}.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
)
SDK_CLIENT = {
    "close",
    "fully_qualified_namespace",
    "get_queue_receiver",
    "get_queue_sender",
    "get_subscription_receiver",
    "get_topic_sender",
    "list_queue_sessions",
    "list_subscription_sessions",
}
PAIRED_CLIENT = {
    *SDK_CLIENT,
    "backlog_queues",
    "fault",
    "mark_path_healthy",
    "primary",
    "secondary",
    "status",
    "syphon",
}
ENTER = ("__enter__", "__aenter__")
SENDER = {
    "cancel_scheduled_messages",
    "client_identifier",
    "close",
    "create_message_batch",
    "entity_name",
    "fully_qualified_namespace",
    "schedule_messages",
    "send_messages",
}


def test_public_names_are_the_pinned_ones():
    assert pairbus.__all__ == PUBLIC


def test_there_are_at_most_fifteen_public_names():
    assert len(pairbus.__all__) <= 15


@pytest.mark.parametrize("module", [*MODULES, pairbus.emulator], ids=lambda module: module.__name__)
def test_every_public_name_exists(module: types.ModuleType):
    missing = [name for name in module.__all__ if not hasattr(module, name)]

    assert missing == []


def public_objects() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


def public_functions(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a function, or the public methods and properties of a class of pairbus."""
    if inspect.isfunction(value):
        yield "", value
        return
    for cls in value.__mro__:
        if not cls.__module__.startswith("pairbus"):
            continue
        for name, member in vars(cls).items():
            constructs_error = name == "__init__" and issubclass(value, BaseException)
            if name.startswith("_") and name not in ENTER and not constructs_error:
                continue
            if isinstance(member, property):
                yield f".{name}", member.fget
            elif inspect.isfunction(member):
                yield f".{name}", member
            elif isinstance(member, classmethod):
                yield f".{name}", member.__func__


def contains_any(annotation: object) -> bool:
    if annotation is Any:
        return True
    return any(contains_any(part) for part in typing.get_args(annotation))


def annotations_of(value: Any) -> dict[str, Any]:
    """Return the annotations of a function or of the fields of a class. Names that are imported
    only for type checkers stay strings."""
    annotations = dict(inspect.get_annotations(value))
    for name, annotation in annotations.items():
        if isinstance(annotation, str) and "Any" in annotation.replace("AnyStr", ""):
            annotations[name] = Any
    return annotations


def test_public_signatures_have_types_and_no_any():
    violations = []
    for name, value in public_objects():
        if inspect.isclass(value):
            violations += [
                f"{name}.{field}"
                for field, annotation in annotations_of(value).items()
                if not field.startswith("_") and contains_any(annotation)
            ]
        for suffix, function in public_functions(value):
            annotations = annotations_of(function)
            parameters = [*inspect.signature(function).parameters][1 if suffix else 0 :]
            violations += [
                f"{name}{suffix}: {parameter}"
                for parameter in (*parameters, "return")
                if parameter not in annotations or contains_any(annotations[parameter])
            ]

    assert violations == []


@pytest.mark.parametrize("seam", ["now", "random", "clock", "sleep"])
def test_public_signatures_of_pairing_have_no_test_seams(seam: str):
    functions = [
        (f"{name}{suffix}", function)
        for name, value in public_objects()
        for suffix, function in (*public_functions(value), *constructor_of(value))
    ]

    assert {name for name, _ in functions} >= {
        "pairbus.pair_namespace",
        "pairbus.aio.pair_namespace",
        "pairbus.PairedClient.__init__",
        "pairbus.SendAvailabilityOptions.__init__",
    }
    assert [name for name, each in functions if seam in inspect.signature(each).parameters] == []


def constructor_of(value: Any) -> list[tuple[str, Any]]:
    has_own = inspect.isclass(value) and inspect.isfunction(value.__init__)
    return [(".__init__", value.__init__)] if has_own else []


def test_pair_namespace_has_the_same_parameters_in_both_flavours():
    for pair in (pairbus.pair_namespace, pairbus.aio.pair_namespace):
        assert [*inspect.signature(pair).parameters] == ["primary", "options"]


def test_public_objects_are_documented():
    undocumented = [
        f"{name}{suffix}"
        for name, value in public_objects()
        for suffix, function in [("", value), *public_functions(value)]
        if not inspect.getdoc(function) and not suffix.startswith(".__")
    ]

    assert undocumented == []


def visible(instance: object) -> set[str]:
    return {name for name in dir(instance) if not name.startswith("_")}


def options() -> pairbus.SendAvailabilityOptions:
    return pairbus.SendAvailabilityOptions(
        secondary=CONNECTION_STRING.format("two"),
        create_backlog=False,
        check_duplicate_detection=False,
    )


def test_paired_client_and_sender_show_the_names_of_the_sdk_and_few_more():
    client = azure.servicebus.ServiceBusClient.from_connection_string(
        CONNECTION_STRING.format("one")
    )
    with pairbus.pair_namespace(client, options()) as bus:
        sender = bus.get_queue_sender("orders")

        assert visible(client) - {"from_connection_string"} == SDK_CLIENT
        assert visible(bus) == PAIRED_CLIENT
        assert visible(sender) == SENDER
        assert visible(client.get_queue_sender("orders")) == SENDER


async def test_async_paired_client_and_sender_show_the_same_names():
    client = azure.servicebus.aio.ServiceBusClient.from_connection_string(
        CONNECTION_STRING.format("one")
    )
    async with await pairbus.aio.pair_namespace(client, options()) as bus:
        assert visible(bus) == PAIRED_CLIENT
        assert visible(bus.get_queue_sender("orders")) == SENDER
