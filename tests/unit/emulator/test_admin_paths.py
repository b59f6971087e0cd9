"""Paths of the administration API, and what they lead to."""

import pytest

from pairbus.emulator.admin.paths import AdminPath, Resource, parse_path

BELOW = "a/t/Subscriptions/s"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("$namespaceinfo", AdminPath(Resource.NAMESPACE)),
        ("$Resources/queues", AdminPath(Resource.QUEUES)),
        ("$resources/Topics", AdminPath(Resource.TOPICS)),
        ("", AdminPath(Resource.ENTITY)),
        ("q", AdminPath(Resource.ENTITY, "q")),
        ("a/rules/b", AdminPath(Resource.ENTITY, "a/rules/b")),
        ("a/t/subscriptions", AdminPath(Resource.SUBSCRIPTIONS, "a/t")),
        ("a/t/SUBSCRIPTIONS/s", AdminPath(Resource.SUBSCRIPTION, BELOW, "a/t", "s")),
        ("a/t/subscriptions/s/Rules", AdminPath(Resource.RULES, BELOW)),
        ("a/t/subscriptions/s/rules/r", AdminPath(Resource.RULE, BELOW, "a/t", "r")),
        (
            "t/subscriptions/subscriptions",
            AdminPath(Resource.SUBSCRIPTION, "t/Subscriptions/subscriptions", "t", "subscriptions"),
        ),
        ("t/subscriptions/rules/rules", AdminPath(Resource.RULES, "t/Subscriptions/rules")),
        # Bad names, which are to be called bad and not to be cut.
        (
            "t/subscriptions/a/b",
            AdminPath(Resource.SUBSCRIPTION, "t/Subscriptions/a/b", "t", "a/b"),
        ),
        ("a/t/subscriptions/s/rules/x/y", AdminPath(Resource.RULE, BELOW, "a/t", "x/y")),
    ],
)
def test_a_path_leads_to_one_thing(path: str, place: AdminPath):
    assert parse_path(path) == place


@pytest.mark.parametrize(
    "path", ["$", "$resources", "$Resources/relays", "$cbs", "$x/subscriptions"]
)
def test_a_path_of_the_service_that_is_unknown_leads_nowhere(path: str):
    assert parse_path(path) is None


def test_lists_are_only_read_and_things_are_made_and_removed_too():
    changed = {kind for kind in Resource if "PUT" in AdminPath(kind).methods}

    assert changed == {Resource.ENTITY, Resource.SUBSCRIPTION, Resource.RULE}
    assert all(AdminPath(kind).methods[0] == "GET" for kind in Resource)
