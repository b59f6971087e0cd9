"""The rules of a subscription together: the copies of a message and the failures."""

from pairbus.emulator.filters.actions import MessageChanges
from pairbus.emulator.filters.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    compile_filter,
    compile_rules,
)
from tests.unit.emulator.filters.fake_message import FakeMessage

RED = FakeMessage({"color": "red", "quantity": 4})


def test_true_filter_matches_all_messages_and_false_filter_none() -> None:
    assert compile_filter(TrueFilter())(RED)
    assert not compile_filter(FalseFilter())(RED)


def test_subscription_without_rules_gets_no_messages() -> None:
    assert compile_rules([])(RED).copies == ()


def test_rule_matches_all_messages_by_default() -> None:
    assert compile_rules([Rule(name="$Default")])(RED).copies == (MessageChanges(),)


def test_rules_without_actions_yield_one_copy_and_each_action_another() -> None:
    apply_rules = compile_rules(
        [
            Rule(name="one", action=SqlAction("SET a = 1")),
            Rule(name="red", filter=SqlFilter("color = 'red'")),
            Rule(name="blue", filter=SqlFilter("color = 'blue'")),
            Rule(name="many", filter=SqlFilter("quantity > 3")),
            Rule(name="none", filter=FalseFilter(), action=SqlAction("SET a = 2")),
            Rule(
                name="half",
                filter=CorrelationFilter(properties={"color": "red"}),
                action=SqlAction("SET quantity = quantity / 2; REMOVE color"),
            ),
        ]
    )

    assert apply_rules(RED).copies == (
        MessageChanges(),
        MessageChanges(user_set={"a": 1, "RuleName": "one"}),
        MessageChanges(
            user_set={"quantity": 2, "RuleName": "half"}, user_removed=frozenset({"color"})
        ),
    )
    assert apply_rules(RED).failures == ()


def test_failing_rule_does_not_affect_the_others() -> None:
    apply_rules = compile_rules(
        [
            Rule(name="wrong", filter=SqlFilter("color > 5")),
            Rule(name="worse", action=SqlAction("SET a = quantity / 0")),
            Rule(name="right", filter=SqlFilter("color = 'red'")),
        ]
    )

    result = apply_rules(RED)

    assert result.copies == (MessageChanges(),)
    assert [str(failure) for failure in result.failures] == [
        "rule wrong: > cannot compare a string with a number",
        "rule worse: division of an integer by zero",
    ]
