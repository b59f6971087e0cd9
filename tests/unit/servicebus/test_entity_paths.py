"""Names and paths of entities."""

import pytest

from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_paths import (
    check_name,
    check_path,
    covers,
    dead_letter_path,
    management_path,
    normalize_path,
    path_from_address,
    subscription_path,
    without_management_node,
)


@pytest.mark.parametrize(
    "path",
    ["q", "a/b/c", "txt/.-_123", "ns/x-servicebus-transfer/0", "Größe", "a" * 260, "a~b", "a/-b/c"],
)
def test_valid_path_is_accepted(path: str):
    check_path("queue", path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/a", "a/", "a//b", "a b", "a?b", "a#b", "a@b", "a*b", "a\\b", "$management", "a/$x"),
        *("a" * 261, "a\n", ".", "..", "a/../b", "a%2Fb"),
        *("-a", "a-", "_a", "a_", ".a", "a.", "~a", "a~", "-", "a/b-", "-a/b"),
    ],
)
def test_invalid_path_is_refused(path: str):
    with pytest.raises(ConfigurationError, match="queue"):
        check_path("queue", path)


@pytest.mark.parametrize("path", ["t/Subscriptions/s", "subscriptions", "a/SUBSCRIPTIONS"])
def test_path_with_a_segment_subscriptions_is_refused(path: str):
    with pytest.raises(ConfigurationError, match="is reserved for subscriptions"):
        check_path("topic", path)


@pytest.mark.parametrize("name", ["", "a" * 51, "a/b", "$Default", "a b", "..", "-a", "a-"])
def test_invalid_subscription_name_is_refused(name: str):
    with pytest.raises(ConfigurationError):
        check_name("subscription", name)


def test_default_rule_has_a_valid_name():
    check_name("rule", "$Default")
    check_name("rule", "$default")


def test_paths_are_equal_regardless_of_case_and_outer_slashes():
    assert normalize_path("/A/b/") == normalize_path("a/B")


@pytest.mark.parametrize(
    ("ancestor", "path", "covered"),
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
def test_path_covers_itself_and_the_paths_below_it(ancestor: str, path: str, covered: bool):
    assert covers(ancestor, path) is covered


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
def test_path_is_taken_from_an_address(address: str, path: str):
    assert path_from_address(address) == path


def test_paths_below_an_entity_have_the_names_of_the_service():
    assert subscription_path("t", "s") == "t/Subscriptions/s"
    assert dead_letter_path("q") == "q/$DeadLetterQueue"
    assert management_path("q") == "q/$management"


def test_management_node_is_removed_from_its_address_only():
    assert without_management_node("q/$management") == "q"
    assert without_management_node("q") == "q"
    assert without_management_node("$management") == "$management"
