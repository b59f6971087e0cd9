"""The syntax tree of SQL filters and actions, from `parser` and for `compiler`."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Constant:
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """`@name`, in lower case, with its position. Its value is a parameter of the rule."""

    name: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class UserProperty:
    name: str


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """A property of `sys.`, by its exact name."""

    name: str


@dataclass(frozen=True, slots=True)
class PropertyCall:
    """`property(name)`: the user property whose name is the value of an expression."""

    name: "Expression"


@dataclass(frozen=True, slots=True)
class NewId:
    """`newid()`: a new UUID for each evaluation."""


@dataclass(frozen=True, slots=True)
class Signed:
    sign: str
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The operator is one of `=`, `<>`, `<`, `<=`, `>`, `>=`."""

    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Member:
    """`value IN (choices)`."""

    value: "Expression"
    choices: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Like:
    value: "Expression"
    pattern: "Expression"
    escape: "Expression | None"


@dataclass(frozen=True, slots=True)
class IsNull:
    property: "Property"


@dataclass(frozen=True, slots=True)
class Exists:
    property: "Property"


@dataclass(frozen=True, slots=True)
class Not:
    predicate: "Predicate"


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """`SET property = value`, where a system property is in `SETTABLE`."""

    property: "Property"
    value: "Expression"


@dataclass(frozen=True, slots=True)
class Removal:
    """`REMOVE property`."""

    property: UserProperty


Property: TypeAlias = UserProperty | SystemProperty
Expression: TypeAlias = Constant | Parameter | Property | PropertyCall | NewId | Signed | Arithmetic
Predicate: TypeAlias = Comparison | Member | Like | IsNull | Exists | Not | AllOf | AnyOf
Statement: TypeAlias = Assignment | Removal
