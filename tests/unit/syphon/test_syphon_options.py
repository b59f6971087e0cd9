"""Options of a syphon."""

import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pyspark import cloudpickle

from pairbus.amqp.client import ClientOptions, Credential
from pairbus.errors import ConfigurationError
from pairbus.syphon.options import SyphonOptions

PRIMARY = "Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
SECONDARY = "Endpoint=sb://two.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"


def test_backlog_queues_have_the_names_that_the_pairing_gives_them():
    options = SyphonOptions(primary=PRIMARY, secondary=SECONDARY, backlog_queue_count=2)  # type: ignore[arg-type]

    assert options.backlog_queues == (
        "one/x-servicebus-transfer/0",
        "one/x-servicebus-transfer/1",
    )
    assert isinstance(options.primary, ClientOptions)
    assert "a2V5" not in repr(options)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"secondary": PRIMARY}, "same namespace"),
        ({"primary": 5}, "primary"),
        ({"backlog_queue_count": 0}, "backlog_queue_count"),
        ({"max_rate": 0.0}, "max_rate"),
        ({"ttl": "halve"}, "ttl"),
        ({"archive_format": "delta"}, "archive_format .* parquet, orc, json, csv, not 'delta'"),
        ({"poll": timedelta(milliseconds=1)}, "poll"),
        ({"stuck_after": timedelta()}, "stuck_after"),
        ({"missing_destination_grace": timedelta(seconds=-1)}, "missing_destination_grace"),
        ({"primary": PRIMARY.replace("one.servicebus.windows.net", "127.0.0.1")}, "primary_name"),
    ],
)
def test_error_names_the_option_that_is_not_valid(changes: dict[str, object], error: str):
    with pytest.raises(ConfigurationError, match=error):
        SyphonOptions(**{"primary": PRIMARY, "secondary": SECONDARY, **changes})  # type: ignore[arg-type]


class Identity:
    """A credential that cannot be pickled, because it has a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def get_token(self, *scopes: str, **kwargs: object) -> object:
        raise NotImplementedError


def client_with(tokens: object) -> ClientOptions:
    return ClientOptions(host="one.servicebus.windows.net", tokens=tokens)  # type: ignore[arg-type]


def test_credential_that_cannot_be_pickled_is_refused_with_advice():
    identity = Identity()

    with pytest.raises(
        ConfigurationError, match=r"primary cannot be sent.*a function that creates"
    ):
        SyphonOptions(primary=client_with(Credential(lambda: identity)), secondary=SECONDARY)  # type: ignore[arg-type]


@pytest.mark.parametrize("factory", [Identity, partial(Identity)], ids=["importable", "by value"])
def test_copies_of_a_credential_factory_share_one_connection(factory: Any):
    options = SyphonOptions(primary=client_with(Credential(factory)), secondary=SECONDARY)  # type: ignore[arg-type]

    copies = [cloudpickle.loads(cloudpickle.dumps(options)) for _ in range(2)]

    # Connections of a worker are found by their options.
    assert len({options.primary, *(copy.primary for copy in copies)}) == 1
    assert client_with(Credential(factory)) != options.primary
