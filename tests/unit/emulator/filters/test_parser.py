"""The parser of SQL filters and actions: syntax trees, and errors for invalid texts."""

import pytest

from pairbus.emulator.filters.parser import (
    MAX_DEPTH,
    MAX_STATEMENTS,
    MAX_TEXT,
    parse_action,
    parse_filter,
)
from pairbus.emulator.filters.syntax_tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    Assignment,
    Comparison,
    Constant,
    Exists,
    Expression,
    IsNull,
    Like,
    Member,
    NewId,
    Not,
    Parameter,
    Predicate,
    PropertyCall,
    Removal,
    Signed,
    Statement,
    SystemProperty,
    UserProperty,
)
from pairbus.emulator.filters.system_properties import READ_ONLY, SETTABLE, SYSTEM_PROPERTIES
from pairbus.errors import ConfigurationError

A, B, C = (UserProperty(name) for name in "abc")
ONE, TWO = Constant(1), Constant(2)
A1 = Comparison("=", A, ONE)
B2 = Comparison("=", B, TWO)
C1 = Comparison("=", C, ONE)

PREDICATES: list[tuple[str, Predicate]] = [
    ("a = 1", A1),
    ("a <> 1", Comparison("<>", A, ONE)),
    ("a != 1", Comparison("<>", A, ONE)),
    ("a>=1", Comparison(">=", A, ONE)),
    ("a<=1", Comparison("<=", A, ONE)),
    ("a>1", Comparison(">", A, ONE)),
    ("a<1", Comparison("<", A, ONE)),
    ("1 = a", Comparison("=", ONE, A)),
    # NOT binds tighter than AND, AND tighter than OR.
    ("NOT a = 1 AND b = 2", AllOf((Not(A1), B2))),
    ("a = 1 OR b = 2 AND c = 1", AnyOf((A1, AllOf((B2, C1))))),
    ("(a = 1 OR b = 2) AND c = 1", AllOf((AnyOf((A1, B2)), C1))),
    ("a = 1 OR b = 2 OR c = 1", AnyOf((A1, B2, C1))),
    ("not NOT a = 1", Not(Not(A1))),
    ("((a = 1))", A1),
    ("(a) = (1)", A1),
    ("a IS NULL", IsNull(A)),
    ("a is not null", Not(IsNull(A))),
    ("sys.Label IS NULL", IsNull(SystemProperty("Label"))),
    ("EXISTS(a)", Exists(A)),
    ("exists ( user.a )", Exists(A)),
    ("a IN (1)", Member(A, (ONE,))),
    ("a NOT IN (1, b + 2)", Not(Member(A, (ONE, Arithmetic("+", B, TWO))))),
    ("a LIKE 'x%'", Like(A, Constant("x%"), None)),
    ("a NOT LIKE b ESCAPE '!'", Not(Like(A, B, Constant("!")))),
    ("a = 1\n\tAND\r\n b = 2", AllOf((A1, B2))),
]

EXPRESSIONS: list[tuple[str, Expression]] = [
    ("1894", Constant(1894)),
    ("9223372036854775807", Constant(2**63 - 1)),
    ("1894.1204", Constant(1894.1204)),
    ("2.0", Constant(2.0)),
    (".5", Constant(0.5)),
    ("101.5E5", Constant(101.5e5)),
    ("0.5e-2", Constant(0.005)),
    ("1E+2", Constant(100.0)),
    ("'It''s'", Constant("It's")),
    ("''", Constant("")),
    ("'line\nbreak'", Constant("line\nbreak")),
    ("TRUE", Constant(True)),
    ("false", Constant(False)),
    ("null", Constant(None)),
    ("color", UserProperty("color")),
    ("größe_2", UserProperty("größe_2")),
    ("android", UserProperty("android")),
    ("p", UserProperty("p")),
    ("sys", UserProperty("sys")),
    ("[Property With Space]", UserProperty("Property With Space")),
    ("[HR-EmployeeID]", UserProperty("HR-EmployeeID")),
    ("[a]]b]", UserProperty("a]b")),
    ("[and]", UserProperty("and")),
    ('"Contoso & Northwind"', UserProperty("Contoso & Northwind")),
    ('"say ""hi"""', UserProperty('say "hi"')),
    ("user.a", A),
    ("USER.[a]", A),
    ("sys.label", SystemProperty("Label")),
    ("SYS.MessageID", SystemProperty("MessageId")),
    ("sys.Subject", SystemProperty("Label")),
    ("[sys].[To]", SystemProperty("To")),
    ("@p1", Parameter("@p1", 1, 1)),
    ("@Name", Parameter("@name", 1, 1)),
    ("newid()", NewId()),
    ("property('a')", A),
    ("P( 'a' )", A),
    ("p(a + 'x')", PropertyCall(Arithmetic("+", A, Constant("x")))),
    ("a + b * c", Arithmetic("+", A, Arithmetic("*", B, C))),
    ("(a + b) * c", Arithmetic("*", Arithmetic("+", A, B), C)),
    ("a - b - c", Arithmetic("-", Arithmetic("-", A, B), C)),
    ("a / b % c", Arithmetic("%", Arithmetic("/", A, B), C)),
    ("a-1", Arithmetic("-", A, ONE)),
    ("- a", Signed("-", A)),
    ("-a * b", Arithmetic("*", Signed("-", A), B)),
    ("a - -1", Arithmetic("-", A, Signed("-", ONE))),
]

ACTIONS: list[tuple[str, tuple[Statement, ...]]] = [
    ("SET a = 1", (Assignment(A, ONE),)),
    ("set a = 1;", (Assignment(A, ONE),)),
    ("REMOVE a", (Removal(A),)),
    ("SET a = 1; REMOVE b", (Assignment(A, ONE), Removal(B))),
    ("SET a = b SET b = c", (Assignment(A, B), Assignment(B, C))),
    ("SET sys.ReplyTo = 'x'", (Assignment(SystemProperty("ReplyTo"), Constant("x")),)),
    ("SET user.a = -1", (Assignment(A, Signed("-", ONE)),)),
]

INVALID_FILTERS = [
    ("color = ", "line 1, column 9: found the end, expected a property, a constant"),
    ("color", "line 1, column 6: found the end, expected a comparison"),
    ("TRUE", "line 1, column 5: found the end, expected a comparison"),
    ("color = 'red", "line 1, column 9: the string is not closed"),
    ("[color = 'red'", "line 1, column 1: the name in brackets is not closed"),
    ("'a' = \"b", "line 1, column 7: the quoted name is not closed"),
    ("a = 1\nAND AND", "line 2, column 5: found 'AND', expected a property"),
    ("a = 1\n  OR\n", "line 3, column 1: found the end"),
    ("a = 1 b = 2", "line 1, column 7: found 'b', expected an arithmetic operator, the end"),
    ("a = 1 = 2", "line 1, column 7: found '='"),
    ("a IN ()", "line 1, column 7: found ')'"),
    ("a IN (1,", "line 1, column 9: found the end"),
    ("1 IS NULL", "line 1, column 3: found 'IS'"),
    ("EXISTS(1)", "line 1, column 8: found '1', expected a property"),
    ("(a = 1", "line 1, column 7: found the end, expected ')'"),
    ("and = 1", "line 1, column 1: found 'and'"),
    ("_a = 1", "line 1, column 1: unexpected '_'"),
    ("a ! 1", "line 1, column 3: unexpected '!'"),
    ("a² = 1", "line 1, column 1: the name 'a²' has other characters"),
    ("[] = 1", "line 1, column 1: the name of the property is empty"),
    ("sys.Colour = 1", "line 1, column 5: there is no system property 'Colour'"),
    ("app.color = 1", "line 1, column 1: there is no scope 'app'. Scopes: sys, user"),
    ("upper(a) = 'A'", "line 1, column 1: there is no function upper() with 1 argument"),
    ("newid(1) = a", "line 1, column 1: there is no function newid() with 1 argument"),
    ("p(1) = a", "line 1, column 1: p() expects a name in single quotes"),
    (
        "a = 9223372036854775808",
        "line 1, column 5: 9223372036854775808 does not fit into a 64-bit integer",
    ),
    ("a = 1e999", "line 1, column 5: 1e999 does not fit into a double"),
    ("a = 1;", "line 1, column 6: found ';'"),
    ("SET a = 1", "line 1, column 1: found 'SET'"),
    ("", "The filter is empty"),
    (" \n ", "The filter is empty"),
    ("a = '" + "x" * MAX_TEXT + "'", "The filter has 1030 characters; the maximum is 1024"),
    ("NOT " * (MAX_DEPTH + 1) + "a = 1", f"nested more than {MAX_DEPTH} levels deep"),
    ("-" * 1000 + "1 = 1", f"nested more than {MAX_DEPTH} levels deep"),
    ("1" + "+1" * 200 + " = a", f"nested more than {MAX_DEPTH} levels deep"),
]

INVALID_ACTIONS = [
    ("EventType = Original", "line 1, column 1: found 'EventType', expected REMOVE or SET"),
    ("SET a", "line 1, column 6: found the end, expected '='"),
    ("SET a = 1, SET b = 2", "line 1, column 10: found ','"),
    ("SET a = b = c", "line 1, column 11: found '='"),
    ("SET a = (b = c)", "line 1, column 12: found '='"),
    ("SET 1 = 2", "line 1, column 5: found '1', expected a property"),
    ("SET a = 1;; SET b = 2", "line 1, column 11: found ';'"),
    ("SET a = 1; REMOVE sys.Label", "line 1, column 12: sys.Label cannot be removed"),
    ("", "The action is empty"),
    ("SET a=1 " * (MAX_STATEMENTS + 1), "The action has 33 statements; the maximum is 32"),
]


@pytest.mark.parametrize(("text", "tree"), PREDICATES)
def test_filter_is_parsed_to_a_predicate(text: str, tree: Predicate) -> None:
    assert parse_filter(text) == tree


@pytest.mark.parametrize(("text", "tree"), EXPRESSIONS)
def test_expression_is_parsed_in_filters_and_actions(text: str, tree: Expression) -> None:
    assert parse_filter(f"{text} = a") == Comparison("=", tree, A)
    assert parse_action(f"SET a = {text}")[0] in {
        Assignment(A, tree),
        Assignment(A, Parameter(text.lower(), 1, 9)),
    }


@pytest.mark.parametrize(("text", "tree"), ACTIONS)
def test_action_is_parsed_to_statements(text: str, tree: tuple[Statement, ...]) -> None:
    assert parse_action(text) == tree


def test_integers_and_decimals_differ_in_type() -> None:
    integer, decimal = parse_filter("1 = 1.0").left, parse_filter("1 = 1.0").right  # type: ignore[union-attr]

    assert type(integer.value) is int
    assert type(decimal.value) is float


@pytest.mark.parametrize(("text", "reason"), INVALID_FILTERS)
def test_invalid_filter_is_refused_with_reason_and_position(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_filter(text)

    assert reason in str(raised.value)


@pytest.mark.parametrize(("text", "reason"), INVALID_ACTIONS)
def test_invalid_action_is_refused_with_reason_and_position(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_action(text)

    assert reason in str(raised.value)


@pytest.mark.parametrize("name", SYSTEM_PROPERTIES)
def test_system_property_is_case_insensitive(name: str) -> None:
    expected = Comparison("=", SystemProperty(name), A)

    assert parse_filter(f"sys.{name} = a") == expected
    assert parse_filter(f"Sys.{name.upper()} = a") == expected


@pytest.mark.parametrize("name", SETTABLE)
def test_action_can_set_the_properties_that_senders_set(name: str) -> None:
    assert parse_action(f"SET sys.{name} = a") == (Assignment(SystemProperty(name), A),)


@pytest.mark.parametrize("name", READ_ONLY)
def test_action_cannot_set_properties_of_the_service(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"sys.{name} cannot be set. Settable properties: Content"
    ):
        parse_action(f"SET sys.{name} = 1")


def test_depth_of_parentheses_is_not_limited() -> None:
    assert parse_filter("(" * 500 + "a = 1" + ")" * 500) == A1


def test_long_chain_of_or_is_not_nested() -> None:
    chain = " OR ".join(["a = 1"] * 100)

    assert parse_filter(chain) == AnyOf((A1,) * 100)


def test_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="The filter is empty"):
        parse_filter(None)  # type: ignore[arg-type]
