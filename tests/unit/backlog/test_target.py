"""The pairing that a command inspects, from connection strings."""

from typing import Any

import pytest

from pairbus.backlog.target import InspectionTarget
from pairbus.errors import ConfigurationError

ONE = "Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
TWO = ONE.replace("one.", "two.")


def target(primary: str | None = ONE, secondary: str = TWO, **options: Any) -> InspectionTarget:
    return InspectionTarget.parse(primary=primary, secondary=secondary, **options)


def test_paths_of_backlog_queues_begin_with_the_name_of_the_primary() -> None:
    parsed = target(backlog_queue_count=2)

    assert parsed.backlog_queues == ("one/x-servicebus-transfer/0", "one/x-servicebus-transfer/1")
    assert parsed.queue_path("7") == "one/x-servicebus-transfer/7"
    assert parsed.queue_path("any/path") == "any/path"


def test_repr_has_no_key() -> None:
    assert "c2VjcmV0" not in repr(target())


def test_name_of_the_primary_is_enough_without_its_connection_string() -> None:
    parsed = target(primary=None, primary_name="one", backlog_queue_count=1)

    assert parsed.backlog_queues == ("one/x-servicebus-transfer/0",)


@pytest.mark.parametrize(
    ("primary", "secondary", "options", "error"),
    [
        ("nonsense", TWO, {}, "Host of the primary: it is neither a connection string nor a"),
        (ONE, "Endpoint=", {}, "secondary: the connection string has no Endpoint"),
        (ONE, ONE, {}, "the same namespace"),
        (ONE, ONE.replace(".net/", ".net:5671/"), {}, "the same namespace"),
        (ONE, f"{TWO};EntityPath=q", {}, "restricted to 'q'"),
        (ONE, TWO.replace("two.", "two.."), {}, "secondary: 'two..servicebus.* not a valid host"),
        (ONE, TWO.replace("two.", "t wo."), {}, "not a valid host name"),
        (ONE.replace("one.", f"{'x' * 70}."), TWO, {}, "primary: '.* not a valid host name"),
        (ONE, TWO, {"primary_name": "no such/name"}, "cannot name the primary"),
    ],
)
def test_invalid_input_is_rejected_without_showing_a_key(
    primary: str, secondary: str, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error) as caught:
        target(primary, secondary, **options)

    assert "c2VjcmV0" not in str(caught.value)


def test_paths_of_backlog_queues_are_unknown_if_the_host_does_not_name_the_primary() -> None:
    nameless = target(ONE.replace("one.servicebus.windows.net", "localhost"))

    with pytest.raises(ConfigurationError, match="name of the primary is unknown"):
        _ = nameless.backlog_queues
    with pytest.raises(ConfigurationError, match="name of the primary is unknown"):
        nameless.queue_path("0")
    assert nameless.queue_path("a/path") == "a/path"
