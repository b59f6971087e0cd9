"""The options of reports to a console are checked before anything is paired."""

from typing import Any

import pytest

from pairbus.console_address import ConsoleAddress, parse_console_address
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions

pytestmark = pytest.mark.rule("O4")

TOKEN = "c2VjcmV0"


def make_options(**options: Any) -> SendAvailabilityOptions:
    return SendAvailabilityOptions(**options)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://ops.example.com", ConsoleAddress("ops.example.com", 443, tls=True)),
        ("HTTPS://Ops.Example.com.:8443/", ConsoleAddress("ops.example.com", 8443, tls=True)),
        ("https://ops.example.com/bus/", ConsoleAddress("ops.example.com", 443, True, "/bus")),
        ("https://[2001:db8::1]:8443", ConsoleAddress("2001:db8::1", 8443, tls=True)),
        ("http://localhost:8080", ConsoleAddress("localhost", 8080, tls=False)),
        ("http://127.0.0.2", ConsoleAddress("127.0.0.2", 80, tls=False)),
        ("http://[::1]:8080/", ConsoleAddress("::1", 8080, tls=False)),
    ],
)
def test_address_has_host_port_and_path(url: str, address: ConsoleAddress) -> None:
    assert parse_console_address(url) == address
    assert parse_console_address(str(address)) == address


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "URL in ASCII"),
        ("ops.example.com", "must be a URL such as"),
        ("//ops.example.com", "must be a URL such as"),
        ("https://", "must be a URL such as"),
        ("ftp://ops.example.com", "must be a URL such as"),
        ("file:///etc/passwd", "must be a URL such as"),
        ("http://ops.example.com", "must use https"),
        ("http://192.168.0.1", "must use https"),
        ("http://localhost.example.com", "must use https"),
        ("http://127.0.0.1.example.com", "must use https"),
        ("https://ops.example.com:port", "check its host and port"),
        ("https://ops.example.com:99999", "check its host and port"),
        ("https://[::1", "check its host and port"),
        ("https://ops.example.com/\r\nX-Header: 1", "URL in ASCII"),
        ("https://ops.example.com/a b", "URL in ASCII"),
        ("https://café.example.com", "URL in ASCII"),
        (f"https://root:{TOKEN}@ops.example.com", "must not contain a password"),
        (f"https://{TOKEN}@ops.example.com", "must not contain a password"),
        (f"https://ops.example.com/?token={TOKEN}", "without a query"),
        (f"https://ops.example.com/#{TOKEN}", "without a query"),
        (8080, "must be a URL, not int"),
    ],
)
def test_wrong_address_is_refused_without_repeating_it(url: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        make_options(console=url, console_token=TOKEN)

    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_console_on_this_computer_needs_no_token(scheme: str, host: str) -> None:
    assert make_options(console=f"{scheme}://{host}:8080").console_token is None


def test_console_elsewhere_needs_a_token() -> None:
    with pytest.raises(ConfigurationError, match="console_token is missing"):
        make_options(console="https://ops.example.com")
    options = make_options(console="https://ops.example.com", console_token=TOKEN)
    assert options.console_token == TOKEN


@pytest.mark.parametrize(
    "token", ["", "with space", f"{TOKEN}\r\nX-Header: 1", "tökén", "x" * 4097, b"bytes", 5]
)
def test_token_that_cannot_be_a_header_is_refused_without_repeating_it(token: Any) -> None:
    with pytest.raises(ConfigurationError, match="console_token must be a string") as caught:
        make_options(console="https://ops.example.com", console_token=token)

    assert TOKEN not in str(caught.value)


def test_token_can_be_a_function_which_is_not_called_yet() -> None:
    def token() -> str:
        raise AssertionError("called")

    options = make_options(console="https://ops.example.com", console_token=token)

    assert options.console_token is token


@pytest.mark.parametrize(
    "name", ["console_token", "console_ca_file", "console_application"], ids=str
)
def test_option_of_a_console_needs_its_address(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} needs console"):
        make_options(**{name: TOKEN})


def test_ca_file_needs_https() -> None:
    with pytest.raises(ConfigurationError, match="console_ca_file needs an address that begins"):
        make_options(console="http://localhost:8080", console_ca_file="ca.pem")


@pytest.mark.parametrize("name", ["", "  ", 5])
def test_application_has_a_name(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="console_application must be a name"):
        make_options(console="http://localhost:8080", console_application=name)


def test_token_is_not_in_the_repr_of_the_options() -> None:
    options = make_options(console="https://ops.example.com", console_token=TOKEN)

    assert TOKEN not in repr(options)
    assert "console='https://ops.example.com'" in repr(options)
