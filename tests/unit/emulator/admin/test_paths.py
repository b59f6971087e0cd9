"""Parsing of paths of the administration API."""

import pytest

from pairbus.emulator.admin.paths import AdminPath, Resource, parse_path

SUBSCRIPTION = "a/t/Subscriptions/s"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$namespaceinfo", AdminPath(Resource.NAMESPACE)),
        ("$Resources/queues", AdminPath(Resource.QUEUES)),
        ("$resources/Topics", AdminPath(Resource.TOPICS)),
        ("", AdminPath(Resource.ENTITY)),
        ("q", AdminPath(Resource.ENTITY, "q")),
        ("a/rules/b", AdminPath(Resource.ENTITY, "a/rules/b")),
        ("a/t/subscriptions", AdminPath(Resource.SUBSCRIPTIONS, "a/t")),
        ("a/t/SUBSCRIPTIONS/s", AdminPath(Resource.SUBSCRIPTION, SUBSCRIPTION, "a/t", "s")),
        ("a/t/subscriptions/s/Rules", AdminPath(Resource.RULES, SUBSCRIPTION)),
        ("a/t/subscriptions/s/rules/r", AdminPath(Resource.RULE, SUBSCRIPTION, "a/t", "r")),
        (
            "t/subscriptions/subscriptions",
            AdminPath(Resource.SUBSCRIPTION, "t/Subscriptions/subscriptions", "t", "subscriptions"),
        ),
        ("t/subscriptions/rules/rules", AdminPath(Resource.RULES, "t/Subscriptions/rules")),
        # Invalid names are kept complete, so that they are reported as invalid.
        (
            "t/subscriptions/a/b",
            AdminPath(Resource.SUBSCRIPTION, "t/Subscriptions/a/b", "t", "a/b"),
        ),
        ("a/t/subscriptions/s/rules/x/y", AdminPath(Resource.RULE, SUBSCRIPTION, "a/t", "x/y")),
    ],
)
def test_path_names_one_resource(path: str, expected: AdminPath):
    assert parse_path(path) == expected


@pytest.mark.parametrize(
    "path", ["$", "$resources", "$Resources/relays", "$cbs", "$x/subscriptions"]
)
def test_unknown_reserved_path_names_no_resource(path: str):
    assert parse_path(path) is None


def test_only_single_resources_can_be_put_and_deleted():
    writable = {resource for resource in Resource if "PUT" in AdminPath(resource).methods}

    assert writable == {Resource.ENTITY, Resource.SUBSCRIPTION, Resource.RULE}
    assert all(AdminPath(resource).methods[0] == "GET" for resource in Resource)
