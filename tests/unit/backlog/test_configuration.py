"""The configuration file: sections, environment variables, and errors."""

from pathlib import Path

import pytest

from pairbus.backlog.configuration import load_configuration, parse_configuration
from pairbus.errors import ConfigurationError

FILE = Path("/etc/pairbus.toml")
TWO_PAIRINGS = """
[pairings.orders]
primary = "orders.servicebus.windows.net"
secondary_env = "ORDERS_SECONDARY"
primary_name = "orders"
backlog_queues = 4
transport = "websocket"
max_rate = 500
max_rates = { "big/topic" = 20 }

[pairings.bills]
primary_env = "BILLS_PRIMARY"
"""


def test_section_has_the_values_of_the_file_and_of_its_variables() -> None:
    section = parse_configuration(TWO_PAIRINGS, FILE).pairing("orders")

    assert section.values({"ORDERS_SECONDARY": "second.servicebus.windows.net"}) == {
        "primary": "orders.servicebus.windows.net",
        "secondary": "second.servicebus.windows.net",
        "primary_name": "orders",
        "backlog_queues": 4,
        "transport": "websocket",
        "max_rate": 500,
    }
    assert section.max_rates == {"big/topic": 20}


def test_variable_of_another_pairing_is_not_needed() -> None:
    configuration = parse_configuration(TWO_PAIRINGS, FILE)

    assert configuration.pairing("bills").values({"BILLS_PRIMARY": "b.servicebus.windows.net"}) == {
        "primary": "b.servicebus.windows.net"
    }


def test_variable_that_is_not_set_is_named_with_file_section_and_key() -> None:
    section = parse_configuration(TWO_PAIRINGS, FILE).pairing("orders")

    with pytest.raises(ConfigurationError) as caught:
        section.values({})

    assert str(caught.value) == (
        "/etc/pairbus.toml, [pairings.orders] secondary_env: the environment variable "
        "ORDERS_SECONDARY is not set."
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[pairings.a", "is not valid TOML"),
        ("", "has no section [pairings.NAME]"),
        ("[pairing.a]\nprimary = 'x'", "'pairing' is not known"),
        ("[pairings]\na = 1", "[pairings] a: must be a section"),
        ("[pairings.a]\nsecundary = 'x'", "[pairings.a] secundary: this key is not known"),
        ("[pairings.a]\nbacklog_queues = '3'", "[pairings.a] backlog_queues: must be a whole"),
        ("[pairings.a]\nbacklog_queues = true", "[pairings.a] backlog_queues: must be a whole"),
        ("[pairings.a]\ntransport = 'udp'", "[pairings.a] transport: must be tcp or websocket"),
        ("[pairings.a]\nmax_rate = 0", "[pairings.a] max_rate: must be a number"),
        ("[pairings.a.max_rates]\norders = -1", "[pairings.a] max_rates: must be a table"),
        ("[pairings.a]\nprimary = 'x'\nprimary_env = 'Y'", "use primary or primary_env, not both"),
        ("[pairings.a]\nca_file = 'no.pem'", "[pairings.a] ca_file: the file /etc/no.pem does not"),
    ],
)
def test_error_names_the_file_the_section_and_the_key(text: str, error: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text, FILE)

    assert str(caught.value).startswith("/etc/pairbus.toml")
    assert error in str(caught.value)


def test_secret_of_the_file_is_neither_in_an_error_nor_in_the_representation() -> None:
    text = "[pairings.a]\nprimary = 'SharedAccessKey=hidden'\n"
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text + "secondary = ['SharedAccessKey=hidden']", FILE)

    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(parse_configuration(text, FILE))


def test_pairing_that_the_file_does_not_have_is_an_error_with_those_that_it_has() -> None:
    with pytest.raises(ConfigurationError, match=r"pairings\.stock.*It has: orders, bills"):
        parse_configuration(TWO_PAIRINGS, FILE).pairing("stock")


def test_ca_file_is_relative_to_the_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    file = tmp_path / "pairbus.toml"
    file.write_text("[pairings.a]\nca_file = 'ca.pem'")

    section = load_configuration(file).pairing("a")

    assert section.values({}) == {"ca_file": tmp_path / "ca.pem"}


def test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no\.toml cannot be read: No such file"):
        load_configuration(tmp_path / "no.toml")
