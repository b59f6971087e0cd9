"""The rules of a subscription together: how many copies of a message it gets, and how changed."""

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
from tests.unit.emulator.rules_message import Seen

RED = Seen({"color": "red", "quantity": 4})


def test_true_lets_all_through_and_false_nothing() -> None:
    assert compile_filter(TrueFilter())(RED)
    assert not compile_filter(FalseFilter())(RED)


def test_a_subscription_without_rules_gets_nothing() -> None:
    assert compile_rules([])(RED).copies == ()


def test_a_rule_lets_all_through_unless_it_has_another_filter() -> None:
    assert compile_rules([Rule(name="$Default")])(RED).copies == (MessageChanges(),)


def test_rules_without_actions_make_one_copy_and_each_with_an_action_one_more() -> None:
    select = compile_rules(
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

    assert select(RED).copies == (
        MessageChanges(),
        MessageChanges(user_set={"a": 1, "RuleName": "one"}),
        MessageChanges(
            user_set={"quantity": 2, "RuleName": "half"}, user_removed=frozenset({"color"})
        ),
    )
    assert select(RED).failures == ()


def test_a_rule_that_cannot_be_evaluated_does_not_hide_the_others() -> None:
    select = compile_rules(
        [
            Rule(name="wrong", filter=SqlFilter("color > 5")),
            Rule(name="worse", action=SqlAction("SET a = quantity / 0")),
            Rule(name="right", filter=SqlFilter("color = 'red'")),
        ]
    )

    selected = select(RED)

    assert selected.copies == (MessageChanges(),)
    assert [str(failure) for failure in selected.failures] == [
        "rule wrong: > cannot compare a string with a number",
        "rule worse: division of an integer by zero",
    ]
