"""Names and paths of entities."""

import pytest

from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_paths import (
    check_name,
    check_path,
    covers,
    normalize_path,
    path_from_address,
)


@pytest.mark.parametrize(
    "path", ["q", "a/b/c", "txt/.-_123", "ns/x-servicebus-transfer/0", "Größe", "a" * 260, "a~b"]
)
def test_a_path_is_let_pass(path: str):
    check_path("queue", path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/a", "a/", "a//b", "a b", "a?b", "a#b", "a@b", "a*b", "a\\b", "$management", "a/$x"),
        *("a" * 261, "a\n", ".", "..", "a/../b", "a%2Fb"),
    ],
)
def test_a_path_that_is_none_is_refused(path: str):
    with pytest.raises(ConfigurationError, match="queue"):
        check_path("queue", path)


@pytest.mark.parametrize("path", ["t/Subscriptions/s", "subscriptions", "a/SUBSCRIPTIONS"])
def test_a_path_that_reads_like_a_subscription_is_refused(path: str):
    with pytest.raises(ConfigurationError, match="is reserved for subscriptions"):
        check_path("topic", path)


@pytest.mark.parametrize("name", ["", "a" * 51, "a/b", "$Default", "a b", ".."])
def test_a_subscription_name_that_is_none_is_refused(name: str):
    with pytest.raises(ConfigurationError):
        check_name("subscription", name)


def test_the_default_rule_may_have_its_name():
    check_name("rule", "$Default")
    check_name("rule", "$default")


def test_case_and_outer_slashes_do_not_matter():
    assert normalize_path("/A/b/") == normalize_path("a/B")


@pytest.mark.parametrize(
    ("above", "path", "covered"),
    [
        ("", "q", True),
        ("q", "q", True),
        ("Q", "q/$DeadLetterQueue", True),
        ("t", "t/Subscriptions/s", True),
        ("q", "q2", False),
        ("q", "", False),
        ("t/Subscriptions/s", "t", False),
        ("t/subscriptions/s", "T/Subscriptions/S/$management", True),
    ],
)
def test_a_path_covers_itself_and_what_lies_below(above: str, path: str, covered: bool):
    assert covers(above, path) is covered


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("sb://localhost:5671/a/b", "a/b"),
        ("sb://localhost/a%2Fb/", "a/b"),
        ("https://localhost:8080", ""),
        ("amqps://host/q?x=1#y", "q"),
        ("a/b", "a/b"),
        ("/q/", "q"),
        ("sb://[::1]:5671/q", "q"),
    ],
)
def test_the_path_of_an_address_is_found(address: str, path: str):
    assert path_from_address(address) == path
