"""Marks of a test describe its namespace, or say what is wrong with them."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.emulator.filters.rules import SqlFilter
from pairbus.emulator.pytest_marks import MarkError, parse_marks

pytestmark = pytest.mark.rule("N5")


def mark(name: str, *args: Any, **kwargs: Any) -> Any:
    return SimpleNamespace(name=f"servicebus_{name}", args=args, kwargs=kwargs)


def test_test_without_marks_has_an_empty_namespace() -> None:
    marks = parse_marks([mark("other")])
    assert marks.config.name == "local"
    assert (marks.config.queues, marks.config.topics) == ((), ())
    assert not marks.on_disk


def test_closest_mark_of_a_name_applies_and_the_outermost_comes_first() -> None:
    marks = parse_marks(
        [
            mark("namespace", "inner", trust_bearer_tokens=True),
            mark("queue", "a", max_delivery_count=1),
            mark("queue", "A", max_delivery_count=2),
            mark("queue", "b"),
            mark("namespace", "outer"),
        ]
    )
    assert marks.config.name == "inner"
    assert marks.options == {"trust_bearer_tokens": True}
    assert [queue.name for queue in marks.config.queues] == ["b", "a"]
    assert marks.config.queues[1].max_delivery_count == 1


def test_subscriptions_have_settings_and_filters() -> None:
    marks = parse_marks(
        [
            mark(
                "topic",
                "t",
                enable_partitioning=True,
                subscriptions={"a": {"requires_session": True}, "b": {"sql_filter": "x = 1"}},
            )
        ]
    )
    [topic] = marks.config.topics
    assert topic.description.enable_partitioning
    first, second = topic.subscriptions
    assert first.description.path == "t/Subscriptions/a"
    assert first.description.requires_session
    assert [rule.filter for rule in second.rules] == [SqlFilter("x = 1")]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ([mark("queue")], "servicebus_queue takes one name, not no argument. For example: @pytest"),
        ([mark("queue", "a", "b")], "takes one name, not 'a', 'b'"),
        ([mark("queue", ["a"])], r"takes one name, not \['a'\]"),
        ([mark("topic", "a", "b")], "servicebus_topic takes one name"),
        ([mark("queue", "a", lock=1)], "queue 'a' has no setting 'lock'. Its settings are: auth"),
        ([mark("queue", "a", lock_duration=5)], "wrong type .* A span of time is a timedelta"),
        ([mark("queue", "a", lock_duration=timedelta(hours=1))], "must be from PT0.001S to PT5M"),
        ([mark("queue", "a b!")], "'a b!'"),
        ([mark("topic", "t", subscriptions="s")], "are a list of names, or a dictionary"),
        ([mark("topic", "t", subscriptions=[1])], "1: {} is not a subscription of topic 't'"),
        ([mark("topic", "t", subscriptions={"s": {"lock": 1}})], "subscription 's' has no setting"),
        ([mark("queue", "x"), mark("topic", "X")], "'x' is the name of a queue and of a topic"),
        ([mark("namespace", folder="x")], "has no option 'folder'. Its options are: allow_plain"),
        ([mark("namespace", 1)], "servicebus_namespace takes one name, not 1"),
    ],
)
def test_wrong_mark_is_explained(wrong: list[Any], reason: str) -> None:
    with pytest.raises(MarkError, match=reason):
        parse_marks(wrong)
