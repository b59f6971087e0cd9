"""SQL filters and actions against a model: random predicates on random messages, and random text.

The model evaluates trees of tuples to true, false, unknown or error. It shares only the AMQP types
with the code under test.
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
from tests.unit.emulator.filters.fake_message import FakeMessage

UNKNOWN, ERROR = "unknown", "error"
Node = tuple[Any, ...]

# Messages. Names are in lower case in filters, and in any case in messages.

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
mixed_case = st.sampled_from(NAMES + [name.upper() for name in NAMES])
users = st.lists(st.tuples(mixed_case, values), unique_by=lambda pair: pair[0].lower()).map(dict)
systems = st.fixed_dictionaries({"Label": st.none() | words, "DeliveryCount": st.integers(0, 3)})

# Predicates and expressions of the model.

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


def combined(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=4)),
    )


predicates = st.recursive(tests, combined, max_leaves=6)


def text_of(node: Node) -> str:
    """Return the node as SQL, with more parentheses than needed."""
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


def value_of(node: Node, message: FakeMessage) -> Any:
    """Return a value, None, (UNKNOWN,) or (ERROR,): tuples, to differ from any string."""
    match node:
        case ("constant", value):
            return value
        case ("user", name):
            values = [value for key, value in message.user.items() if key.lower() == name]
            return values[0] if values else (UNKNOWN,)
        case ("sys", name):
            return message.system(name)
        case ("sign", sign, of):
            value = value_of(of, message)
            if value in [(UNKNOWN,), (ERROR,), None]:
                return value
            if not is_number(value):
                return (ERROR,)
            return wrap_64_bits(-value) if sign == "-" else value
        case ("compute", sign, first, second):
            left, right = value_of(first, message), value_of(second, message)
            if (ERROR,) in [left, right]:
                return (ERROR,)
            if (UNKNOWN,) in [left, right]:
                return (UNKNOWN,)
            if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
                return (ERROR,) if b"bytes" in [left, right] else to_text(left) + to_text(right)
            if left is None or right is None:
                return None
            if not is_number(left) or not is_number(right):
                return (ERROR,)
            return arithmetic(sign, left, right)
    raise AssertionError(node)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def wrap_64_bits(value: Any) -> Any:
    """Return the value as a signed 64-bit integer, with overflow."""
    if isinstance(value, float):
        return value
    return int.from_bytes((value % 2**64).to_bytes(8, "big"), "big", signed=True)


def to_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def arithmetic(sign: str, left: Any, right: Any) -> Any:
    integers = isinstance(left, int) and isinstance(right, int)
    if sign == "+":
        return wrap_64_bits(left + right)
    if sign == "-":
        return wrap_64_bits(left - right)
    if sign == "*":
        return wrap_64_bits(left * right)
    if right == 0:
        if integers:
            return (ERROR,)
        no_number = sign == "%" or left == 0 or math.isnan(left)
        signs = math.copysign(1, left) * math.copysign(1, right)
        return math.nan if no_number else math.inf * signs
    if integers:
        quotient = abs(left) // abs(right) * (1 if left * right >= 0 else -1)
        return wrap_64_bits(quotient if sign == "/" else left - quotient * right)
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


def compare(sign: str, left: Any, right: Any) -> Any:
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


def result_of(node: Node, message: FakeMessage, failed: Any = ERROR) -> Any:
    """Return True, False, UNKNOWN, or `failed` for an error. All parts are evaluated."""
    match node:
        case ("compare", sign, left, right):
            result = compare(sign, value_of(left, message), value_of(right, message))
        case ("in", value, choices):
            member = value_of(value, message)
            equal = [compare("=", member, value_of(choice, message)) for choice in choices]
            result = any_of([failed if item == ERROR else item for item in equal])
        case ("like", value, pattern):
            result = like_result(value_of(value, message), value_of(pattern, message))
        case ("null", of):
            result = value_of(of, message) in [None, (UNKNOWN,)]
        case ("exists", of):
            result = value_of(of, message) not in ([None] if of[0] == "sys" else [(UNKNOWN,)])
        case ("not", of):
            inner = result_of(of, message, failed)
            result = not inner if inner in [True, False] else inner
        case ("or", parts):
            result = any_of([result_of(part, message, failed) for part in parts])
        case ("and", parts):
            result = result_of(("not", ("or", [("not", part) for part in parts])), message, failed)
        case _:
            raise AssertionError(node)
    return failed if result == ERROR else result


def any_of(results: list[Any]) -> Any:
    for strongest in (ERROR, True, UNKNOWN):
        if strongest in results:
            return strongest
    return False


def like_result(text: Any, pattern: Any) -> Any:
    if (ERROR,) in [text, pattern]:
        return ERROR
    if (UNKNOWN,) in [text, pattern]:
        return UNKNOWN
    if text is None or pattern is None:
        return False
    return is_like(text, pattern) if kind(text) == kind(pattern) == "str" else ERROR


def is_like(text: str, pattern: str) -> bool:
    """Match recursively, by the definition of LIKE."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[start:], pattern[1:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in {text[0], "_"} and is_like(text[1:], pattern[1:])


@given(predicates, users, systems)
def test_filter_agrees_with_the_model(
    predicate: Node, user: dict[str, Any], system: dict[str, Any]
) -> None:
    text = text_of(predicate)
    assume(len(text) <= 1024)
    message = FakeMessage(user, **system)
    expected = result_of(predicate, message)
    event(str(expected))

    test = compile_filter(SqlFilter(text))

    if expected == ERROR:
        # The part with the error need not have been evaluated.
        try:
            matched = test(message)
        except EvaluationError:
            return
        assert matched is (result_of(predicate, message, failed=UNKNOWN) is True)
    else:
        assert test(message) is (expected is True)


@given(expressions, users, systems)
def test_action_agrees_with_the_model(
    expression: Node, user: dict[str, Any], system: dict[str, Any]
) -> None:
    message = FakeMessage(user, **system)
    expected = value_of(expression, message)
    action = compile_action(SqlAction(f"SET result = {text_of(expression)}"))

    if expected == (ERROR,):
        with pytest.raises(EvaluationError):
            action(message)
    else:
        computed = action(message).user_set["result"]
        assert repr(computed) == repr(None if expected == (UNKNOWN,) else expected)


@given(st.lists(st.sampled_from(["+", "-", "*"]), max_size=20), st.data())
def test_arithmetic_has_the_usual_precedence(signs: list[str], data: st.DataObject) -> None:
    numbers = data.draw(
        st.lists(st.integers(0, 3), min_size=len(signs) + 1, max_size=len(signs) + 1)
    )
    text = str(numbers[0]) + "".join(
        f" {sign} {n}" for sign, n in zip(signs, numbers[1:], strict=True)
    )

    assert compile_action(SqlAction(f"SET v = {text}"))(FakeMessage()).user_set == {"v": eval(text)}


@given(st.lists(st.sampled_from(["AND", "OR", "AND NOT", "OR NOT"]), max_size=20), st.data())
def test_logic_has_the_usual_precedence(words: list[str], data: st.DataObject) -> None:
    count = len(words) + 1
    truths = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    parts = [f"1 = {int(truth)}" for truth in truths]
    text = parts[0] + "".join(
        f" {word} {part}" for word, part in zip(words, parts[1:], strict=True)
    )

    matched = compile_filter(SqlFilter(text))(FakeMessage())

    assert matched is eval(text.lower().replace("=", "=="))


@given(st.text("ab%_", max_size=10), st.text("ab%_", max_size=6))
def test_like_agrees_with_its_definition(text: str, pattern: str) -> None:
    assert compile_like(pattern)(text) is is_like(text, pattern)


FRAGMENTS = """
    a [a b] "c" sys . user @p p( property( newid( ) ( , ; 'x' '' 'x%' 1 2.5 1e5 .5 0 + - * / %
    = <> != < <= > >= AND OR NOT IN LIKE ESCAPE IS NULL EXISTS( TRUE FALSE SET REMOVE ' [ " \n _ é
    sys.Label sys.Size sys.x
"""
random_tokens = st.lists(st.sampled_from(FRAGMENTS.split()), max_size=30).map(" ".join)


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """Return a valid text with a piece removed or inserted."""
    text = draw(texts)
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(start + 3, len(text))))
    return text[:start] + draw(st.sampled_from(["", *FRAGMENTS.split()])) + text[end:]


any_filter = st.text() | random_tokens | damaged(predicates.map(text_of))
any_action = (
    st.text()
    | random_tokens
    | damaged(expressions.map(lambda node: f"SET a = {text_of(node)}; REMOVE b"))
)


@given(any_filter, users)
def test_any_text_is_a_filter_or_a_configuration_error(text: str, user: dict[str, Any]) -> None:
    try:
        test = compile_filter(SqlFilter(text, {"@p": 1}))
    except ConfigurationError:
        return
    event("valid filter")
    try:
        assert test(FakeMessage(user)) in {True, False}
    except EvaluationError:
        event("not evaluated")


@given(any_action, users)
def test_any_text_is_an_action_or_a_configuration_error(text: str, user: dict[str, Any]) -> None:
    try:
        action = compile_action(SqlAction(text, {"@p": 1}))
    except ConfigurationError:
        return
    event("valid action")
    try:
        action(FakeMessage(user))
    except EvaluationError:
        event("not evaluated")
