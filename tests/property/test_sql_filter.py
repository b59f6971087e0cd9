"""SQL filters against a model: random predicates on random messages, and random text.

The model walks its own trees of tuples and knows four answers: true, false, unknown, and that there
is none ("error"). It shares nothing with the code under test but the names of AMQP types.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from pairbus.amqp.types import Byte, Float32, Int32, Symbol, UInt
from pairbus.emulator.filters.like import compile_like
from pairbus.emulator.filters.rules import SqlAction, SqlFilter, compile_action, compile_filter
from pairbus.emulator.filters.values import EvaluationError
from pairbus.errors import ConfigurationError
from tests.unit.emulator.rules_message import Seen

UNKNOWN, ERROR = "unknown", "error"
Node = tuple[Any, ...]

# Messages. The names in a filter are always lower case; a message spells them as it likes.

NAMES = ["a", "b", "c", "d"]
numbers = st.integers(-5, 5) | st.sampled_from([2**63 - 1, -(2**63), 0.5, -2.0, 1e300])
words = st.text("ab%_", max_size=4)
values = (
    numbers
    | words
    | st.booleans()
    | st.none()
    | st.integers(-5, 5).flatmap(lambda n: st.sampled_from([Int32(n), Byte(n), UInt(abs(n))]))
    | st.sampled_from([Float32(0.5), Symbol("a"), b"bytes"])
)
spellings = st.sampled_from(NAMES + [name.upper() for name in NAMES])
users = st.lists(st.tuples(spellings, values), unique_by=lambda pair: pair[0].lower()).map(dict)
systems = st.fixed_dictionaries({"Label": st.none() | words, "DeliveryCount": st.integers(0, 3)})

# Predicates and expressions, as the model sees them.

constants = st.tuples(
    st.just("constant"),
    st.integers(0, 5) | st.sampled_from([0.5, 2.0]) | words | st.booleans() | st.none(),
)
properties = st.one_of(
    st.tuples(st.just("user"), st.sampled_from(NAMES)),
    st.tuples(st.just("sys"), st.sampled_from(["Label", "DeliveryCount"])),
)


def computed(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.tuples(st.just("compute"), st.sampled_from("+-*/%"), inner, inner),
        st.tuples(st.just("sign"), st.sampled_from("+-"), inner),
    )


expressions = st.recursive(constants | properties | properties, computed, max_leaves=4)
tests = st.one_of(
    st.tuples(
        st.just("compare"),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        expressions,
        expressions,
    ),
    st.tuples(st.just("in"), expressions, st.lists(expressions, min_size=1, max_size=4)),
    st.tuples(st.just("like"), expressions, st.tuples(st.just("constant"), words)),
    st.tuples(st.just("like"), properties, properties),
    st.tuples(st.just("null"), properties),
    st.tuples(st.just("exists"), properties),
)


def joined(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=4)),
    )


predicates = st.recursive(tests, joined, max_leaves=6)


def text_of(node: Node) -> str:
    """The node as SQL, with more parentheses than needed."""
    match node:
        case ("constant", None):
            return "NULL"
        case ("constant", bool() as value):
            return str(value)
        case ("constant", str() as value):
            return f"'{value}'"
        case ("constant", value):
            return str(value)
        case ("user", name):
            return f"user.{name}"
        case ("sys", name):
            return f"sys.{name}"
        case ("compute", sign, left, right):
            return f"({text_of(left)} {sign} {text_of(right)})"
        case ("sign", sign, of):
            return f"{sign} ({text_of(of)})"
        case ("compare", sign, left, right):
            return f"{text_of(left)} {sign} {text_of(right)}"
        case ("in", value, choices):
            return f"{text_of(value)} IN ({', '.join(map(text_of, choices))})"
        case ("like", value, pattern):
            return f"{text_of(value)} LIKE {text_of(pattern)}"
        case ("null", of):
            return f"{text_of(of)} IS NULL"
        case ("exists", of):
            return f"EXISTS({text_of(of)})"
        case ("not", of):
            return f"NOT ({text_of(of)})"
        case (("and" | "or") as word, parts):
            return f"({f' {word.upper()} '.join(map(text_of, parts))})"
    raise AssertionError(node)


def value_of(node: Node, message: Seen) -> Any:
    """What an expression gives: a value, None, UNKNOWN or ERROR (tagged, so that no text is it)."""
    match node:
        case ("constant", value):
            return value
        case ("user", name):
            found = [value for key, value in message.user.items() if key.lower() == name]
            return found[0] if found else (UNKNOWN,)
        case ("sys", name):
            return message.system(name)
        case ("sign", sign, of):
            value = value_of(of, message)
            if value in [(UNKNOWN,), (ERROR,), None]:
                return value
            if not is_number(value):
                return (ERROR,)
            return wrapped(-value) if sign == "-" else value
        case ("compute", sign, one, two):
            left, right = value_of(one, message), value_of(two, message)
            if (ERROR,) in [left, right]:
                return (ERROR,)
            if (UNKNOWN,) in [left, right]:
                return (UNKNOWN,)
            if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
                return (ERROR,) if b"bytes" in [left, right] else shown(left) + shown(right)
            if left is None or right is None:
                return None
            if not is_number(left) or not is_number(right):
                return (ERROR,)
            return arithmetic(sign, left, right)
    raise AssertionError(node)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def wrapped(value: Any) -> Any:
    """A 64-bit integer as the processor would have it."""
    if isinstance(value, float):
        return value
    return int.from_bytes((value % 2**64).to_bytes(8, "big"), "big", signed=True)


def shown(value: Any) -> str:
    if value is None:
        return ""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def arithmetic(sign: str, left: Any, right: Any) -> Any:
    whole = isinstance(left, int) and isinstance(right, int)
    if sign == "+":
        return wrapped(left + right)
    if sign == "-":
        return wrapped(left - right)
    if sign == "*":
        return wrapped(left * right)
    if right == 0:
        if whole:
            return (ERROR,)
        no_number = sign == "%" or left == 0 or math.isnan(left)
        signs = math.copysign(1, left) * math.copysign(1, right)
        return math.nan if no_number else math.inf * signs
    if whole:
        quotient = abs(left) // abs(right) * (1 if left * right >= 0 else -1)
        return wrapped(quotient if sign == "/" else left - quotient * right)
    if sign == "/":
        return left / right
    return math.nan if math.isinf(left) else math.fmod(left, right)


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if is_number(value) else type(value).__name__.replace("Symbol", "str")


ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def compared(sign: str, left: Any, right: Any) -> Any:
    if (ERROR,) in [left, right]:
        return ERROR
    if (UNKNOWN,) in [left, right]:
        return UNKNOWN
    if left is None or right is None:
        return {"=": left is right, "<>": left is not right}.get(sign, False)
    if kind(left) != kind(right) or kind(left) == "bytes":
        return ERROR
    if kind(left) == "boolean" and sign not in {"=", "<>"}:
        return ERROR
    return ORDER[sign](left, right)


def answer(node: Node, message: Seen, failed: Any = ERROR) -> Any:
    """True, False, UNKNOWN, or `failed` where it cannot be said; every part is looked at."""
    match node:
        case ("compare", sign, left, right):
            found = compared(sign, value_of(left, message), value_of(right, message))
        case ("in", value, choices):
            one = value_of(value, message)
            equal = [compared("=", one, value_of(choice, message)) for choice in choices]
            found = any_of([failed if same == ERROR else same for same in equal])
        case ("like", value, pattern):
            found = liked(value_of(value, message), value_of(pattern, message))
        case ("null", of):
            found = value_of(of, message) in [None, (UNKNOWN,)]
        case ("exists", of):
            found = value_of(of, message) not in ([None] if of[0] == "sys" else [(UNKNOWN,)])
        case ("not", of):
            inner = answer(of, message, failed)
            found = not inner if inner in [True, False] else inner
        case ("or", parts):
            found = any_of([answer(part, message, failed) for part in parts])
        case ("and", parts):
            found = answer(("not", ("or", [("not", part) for part in parts])), message, failed)
        case _:
            raise AssertionError(node)
    return failed if found == ERROR else found


def any_of(answers: list[Any]) -> Any:
    for strongest in (ERROR, True, UNKNOWN):
        if strongest in answers:
            return strongest
    return False


def liked(text: Any, pattern: Any) -> Any:
    if (ERROR,) in [text, pattern]:
        return ERROR
    if (UNKNOWN,) in [text, pattern]:
        return UNKNOWN
    if text is None or pattern is None:
        return False
    return is_like(text, pattern) if kind(text) == kind(pattern) == "str" else ERROR


def is_like(text: str, pattern: str) -> bool:
    """By definition: a character, any character, or any part of the rest."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[start:], pattern[1:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in {text[0], "_"} and is_like(text[1:], pattern[1:])


@given(predicates, users, systems)
def test_a_filter_says_what_the_model_says(
    predicate: Node, user: dict[str, Any], system: dict[str, Any]
) -> None:
    text = text_of(predicate)
    assume(len(text) <= 1024)
    message = Seen(user, **system)
    expected = answer(predicate, message)
    event(str(expected))

    test = compile_filter(SqlFilter(text))

    if expected == ERROR:
        # It may be that the part which cannot be said did not have to be looked at.
        try:
            passed = test(message)
        except EvaluationError:
            return
        assert passed is (answer(predicate, message, failed=UNKNOWN) is True)
    else:
        assert test(message) is (expected is True)


@given(expressions, users, systems)
def test_an_action_computes_what_the_model_computes(
    expression: Node, user: dict[str, Any], system: dict[str, Any]
) -> None:
    message = Seen(user, **system)
    expected = value_of(expression, message)
    act = compile_action(SqlAction(f"SET result = {text_of(expression)}"))

    if expected == (ERROR,):
        with pytest.raises(EvaluationError):
            act(message)
    else:
        found = act(message).user_set["result"]
        assert repr(found) == repr(None if expected == (UNKNOWN,) else expected)


@given(st.lists(st.sampled_from(["+", "-", "*"]), max_size=20), st.data())
def test_arithmetic_binds_as_in_any_language(signs: list[str], data: st.DataObject) -> None:
    numbers = data.draw(
        st.lists(st.integers(0, 3), min_size=len(signs) + 1, max_size=len(signs) + 1)
    )
    text = str(numbers[0]) + "".join(
        f" {sign} {n}" for sign, n in zip(signs, numbers[1:], strict=True)
    )

    assert compile_action(SqlAction(f"SET v = {text}"))(Seen()).user_set == {"v": eval(text)}


@given(st.lists(st.sampled_from(["AND", "OR", "AND NOT", "OR NOT"]), max_size=20), st.data())
def test_logic_binds_as_in_any_language(words: list[str], data: st.DataObject) -> None:
    count = len(words) + 1
    facts = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    parts = [f"1 = {int(fact)}" for fact in facts]
    text = parts[0] + "".join(
        f" {word} {part}" for word, part in zip(words, parts[1:], strict=True)
    )

    found = compile_filter(SqlFilter(text))(Seen())

    assert found is eval(text.lower().replace("=", "=="))


@given(st.text("ab%_", max_size=10), st.text("ab%_", max_size=6))
def test_like_is_what_it_is_by_definition(text: str, pattern: str) -> None:
    assert compile_like(pattern)(text) is is_like(text, pattern)


FRAGMENTS = """
    a [a b] "c" sys . user @p p( property( newid( ) ( , ; 'x' '' 'x%' 1 2.5 1e5 .5 0 + - * / %
    = <> != < <= > >= AND OR NOT IN LIKE ESCAPE IS NULL EXISTS( TRUE FALSE SET REMOVE ' [ " \n _ é
    sys.Label sys.Size sys.x
"""
soup = st.lists(st.sampled_from(FRAGMENTS.split()), max_size=30).map(" ".join)


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """A good text with a piece cut out of it, or put into it."""
    text = draw(texts)
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(start + 3, len(text))))
    return text[:start] + draw(st.sampled_from(["", *FRAGMENTS.split()])) + text[end:]


any_filter = st.text() | soup | damaged(predicates.map(text_of))
any_action = (
    st.text() | soup | damaged(expressions.map(lambda node: f"SET a = {text_of(node)}; REMOVE b"))
)


@given(any_filter, users)
def test_any_text_is_a_filter_or_a_configuration_error(text: str, user: dict[str, Any]) -> None:
    try:
        test = compile_filter(SqlFilter(text, {"@p": 1}))
    except ConfigurationError:
        return
    event("a filter")
    try:
        assert test(Seen(user)) in {True, False}
    except EvaluationError:
        event("not evaluated")


@given(any_action, users)
def test_any_text_is_an_action_or_a_configuration_error(text: str, user: dict[str, Any]) -> None:
    try:
        act = compile_action(SqlAction(text, {"@p": 1}))
    except ConfigurationError:
        return
    event("an action")
    try:
        act(Seen(user))
    except EvaluationError:
        event("not evaluated")
