"""URLs of HTTP proxies."""

import pytest

from pairbus.errors import ConfigurationError
from pairbus.servicebus.proxy import Proxy

WITH_PASSWORD = Proxy(host="proxy", port=3128, username="me", password="p@ss/word")


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://proxy:3128", Proxy(host="proxy", port=3128)),
        ("http://proxy:3128/", Proxy(host="proxy", port=3128)),
        ("proxy:3128", Proxy(host="proxy", port=3128)),
        ("http://proxy", Proxy(host="proxy", port=80)),
        ("http://[::1]:3128", Proxy(host="::1", port=3128)),
        ("http://me:p%40ss%2Fword@proxy:3128", WITH_PASSWORD),
    ],
)
def test_url_is_parsed(url: str, proxy: Proxy):
    assert Proxy.from_url(url) == proxy


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "https://me:hidden@proxy:3128",
        "socks5://me:hidden@proxy:3128",
        "http://me:hidden@proxy:port",
        "http://me:hidden@proxy:70000",
        "http://me:hidden@proxy:0",
        "http://me:hidden@proxy:3128/path",
        "http://[me:hidden@proxy",
    ],
)
def test_invalid_url_is_refused_without_quoting_it(url: str):
    with pytest.raises(ConfigurationError, match="proxy") as raised:
        Proxy.from_url(url)

    assert "hidden" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_scheme_of_the_host_is_removed():
    assert Proxy(host="http://proxy/", port=3128) == Proxy(host="proxy", port=3128)


def test_password_is_not_shown():
    assert "p@ss" not in repr(WITH_PASSWORD)
    assert WITH_PASSWORD.address == "proxy:3128"


def test_credentials_are_sent_as_a_header():
    assert WITH_PASSWORD.headers == {"Proxy-Authorization": "Basic bWU6cEBzcy93b3Jk"}
    assert Proxy(host="proxy", port=3128).headers == {}
