"""Messages as rows, and what a syphon is told."""

import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pyspark import cloudpickle

from pairbus.amqp.client import ClientOptions, Credential
from pairbus.amqp.sections import Message, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.errors import ConfigurationError
from pairbus.servicebus.application_properties import TTL_EXPIRED
from pairbus.spark.columns import (
    NOT_A_MESSAGE,
    SCHEMA,
    ReceivedMessage,
    as_rows,
    backlog_rows,
    destination_of,
    sequence_of,
    turn_back,
)
from pairbus.syphon.options import SyphonOptions
from pairbus.transfer import MISSING_PATH, to_backlog

ONE = "Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
TWO = "Endpoint=sb://two.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
COLUMNS = tuple(part.split()[0] for part in SCHEMA.split(", "))


def delivered(payload: bytes, number: int = 7) -> bytes:
    """A message as a namespace delivers it."""
    message = Message.parse(payload)
    message.edit_message_annotations(
        {
            Symbol("x-opt-enqueued-time"): Timestamp(1_000),
            Symbol("x-opt-sequence-number"): number,
        }
    )
    return message.encode()


def plain(**properties: object) -> bytes:
    return Message.build(
        properties=Properties(message_id="m", **properties),
        application_properties={"n": 1},
        data=b"body",
    ).encode()


def test_a_row_has_every_column_of_the_schema():
    payload = delivered(to_backlog(plain(subject="s"), "orders"))

    [row] = as_rows([ReceivedMessage("q", payload, b"t" * 16)], COLUMNS).to_pylist()

    assert tuple(row) == COLUMNS
    assert (row["queue"], row["sequence_number"], row["message_id"]) == ("q", 7, "m")
    assert (row["destination"], row["subject"], row["lock_token"]) == ("orders", "s", b"t" * 16)
    assert row["enqueued_time"].timestamp() == 1.0
    assert row["payload"] == payload
    assert ("n", "1") in row["application_properties"]


def test_a_message_of_the_backlog_is_turned_back():
    payload = delivered(to_backlog(plain(group_id="s"), "orders"))

    row = turn_back(ReceivedMessage("q", payload, b"t" * 16), 99, None)

    assert (row.destination, row.session_id, row.problem) == ("orders", "s", None)
    assert row.locked_until == 99
    assert row.payload == plain(group_id="s")
    assert backlog_rows([row]).to_pylist()[0]["destination"] == "orders"


@pytest.mark.parametrize(
    ("payload", "problem"), [(plain(), MISSING_PATH), (b"\x00\x01", NOT_A_MESSAGE)]
)
def test_what_cannot_be_turned_back_says_why(payload: bytes, problem: str):
    row = turn_back(ReceivedMessage("q", payload, None), 0, None)

    assert row.problem == problem
    assert row.description
    assert row.payload == payload


def test_what_has_expired_in_the_backlog_says_so():
    from pairbus.amqp.sections import Header
    from pairbus.amqp.types import UInt

    message = Message.build(header=Header(ttl=UInt(500)), data=b"x").encode()

    row = turn_back(ReceivedMessage("q", delivered(to_backlog(message, "orders")), None), 0, 10_000)

    assert row.problem == TTL_EXPIRED


@pytest.mark.parametrize("number", [0, 1, 127, 200, 2**40])
def test_the_sequence_number_is_found_however_it_is_written(number: int):
    assert sequence_of(delivered(plain(), number)) == number


def test_a_message_without_a_number_or_a_destination_has_none():
    assert sequence_of(plain()) == 0
    assert destination_of(plain()) is None
    assert destination_of(b"nonsense") is None


def test_the_options_name_the_backlog_queues_as_the_pairing_does():
    options = SyphonOptions(primary=ONE, secondary=TWO, backlog_queue_count=2)  # type: ignore[arg-type]

    assert options.backlog_queues == (
        "one/x-servicebus-transfer/0",
        "one/x-servicebus-transfer/1",
    )
    assert isinstance(options.primary, ClientOptions)
    assert "a2V5" not in repr(options)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"secondary": ONE}, "one namespace"),
        ({"primary": 5}, "primary"),
        ({"backlog_queue_count": 0}, "backlog_queue_count"),
        ({"max_rate": 0.0}, "max_rate"),
        ({"ttl": "halve"}, "ttl"),
        ({"poll": timedelta(milliseconds=1)}, "poll"),
        ({"stuck_after": timedelta()}, "stuck_after"),
        ({"primary": ONE.replace("one.servicebus.windows.net", "127.0.0.1")}, "primary_name"),
    ],
)
def test_a_wrong_option_says_which(changes: dict[str, object], said: str):
    with pytest.raises(ConfigurationError, match=said):
        SyphonOptions(**{"primary": ONE, "secondary": TWO, **changes})  # type: ignore[arg-type]


class Identity:
    """A credential that holds on to something of its process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def get_token(self, *scopes: str, **kwargs: object) -> object:
        raise NotImplementedError


def client_with(tokens: object) -> ClientOptions:
    return ClientOptions(host="one.servicebus.windows.net", tokens=tokens)  # type: ignore[arg-type]


def test_a_credential_that_cannot_be_sent_to_workers_is_refused_and_the_error_says_what_to_do():
    identity = Identity()

    with pytest.raises(ConfigurationError, match=r"primary cannot be sent.*a function that makes"):
        SyphonOptions(primary=client_with(Credential(lambda: identity)), secondary=TWO)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [Identity, partial(Identity)], ids=["importable", "by value"])
def test_a_factory_can_be_sent_and_its_copies_are_one_connection(make: Any):
    options = SyphonOptions(primary=client_with(Credential(make)), secondary=TWO)  # type: ignore[arg-type]

    copies = [cloudpickle.loads(cloudpickle.dumps(options)) for _ in range(2)]

    assert len({options.primary, *(copy.primary for copy in copies)}) == 1
    assert client_with(Credential(make)) != options.primary
