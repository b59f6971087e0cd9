"""Paths of the administration API, and what they lead to."""

import pytest

from pairbus.emulator.admin.paths import Place, Resource, place_of

BELOW = "a/t/Subscriptions/s"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("$namespaceinfo", Place(Resource.NAMESPACE)),
        ("$Resources/queues", Place(Resource.QUEUES)),
        ("$resources/Topics", Place(Resource.TOPICS)),
        ("", Place(Resource.ENTITY)),
        ("q", Place(Resource.ENTITY, "q")),
        ("a/rules/b", Place(Resource.ENTITY, "a/rules/b")),
        ("a/t/subscriptions", Place(Resource.SUBSCRIPTIONS, "a/t")),
        ("a/t/SUBSCRIPTIONS/s", Place(Resource.SUBSCRIPTION, BELOW, "a/t", "s")),
        ("a/t/subscriptions/s/Rules", Place(Resource.RULES, BELOW)),
        ("a/t/subscriptions/s/rules/r", Place(Resource.RULE, BELOW, "a/t", "r")),
        (
            "t/subscriptions/subscriptions",
            Place(Resource.SUBSCRIPTION, "t/Subscriptions/subscriptions", "t", "subscriptions"),
        ),
        ("t/subscriptions/rules/rules", Place(Resource.RULES, "t/Subscriptions/rules")),
        # Bad names, which are to be called bad and not to be cut.
        (
            "t/subscriptions/a/b",
            Place(Resource.SUBSCRIPTION, "t/Subscriptions/a/b", "t", "a/b"),
        ),
        ("a/t/subscriptions/s/rules/x/y", Place(Resource.RULE, BELOW, "a/t", "x/y")),
    ],
)
def test_a_path_leads_to_one_thing(path: str, place: Place):
    assert place_of(path) == place


@pytest.mark.parametrize(
    "path", ["$", "$resources", "$Resources/relays", "$cbs", "$x/subscriptions"]
)
def test_a_path_of_the_service_that_is_unknown_leads_nowhere(path: str):
    assert place_of(path) is None


def test_lists_are_only_read_and_things_are_made_and_removed_too():
    changed = {kind for kind in Resource if "PUT" in Place(kind).methods}

    assert changed == {Resource.ENTITY, Resource.SUBSCRIPTION, Resource.RULE}
    assert all(Place(kind).methods[0] == "GET" for kind in Resource)
