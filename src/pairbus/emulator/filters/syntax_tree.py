"""The syntax tree of subscription rules: what `sql` makes of a text, and `sql_eval` evaluates."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Constant:
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """`@name`, in lower case, and where it stands: its value is given beside the text."""

    name: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class UserProperty:
    name: str


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """A property of `sys.`, by its own spelling."""

    name: str


@dataclass(frozen=True, slots=True)
class PropertyCall:
    """`property(name)`: the user property whose name an expression gives."""

    name: "Expression"


@dataclass(frozen=True, slots=True)
class NewId:
    """`newid()`: another UUID each time."""


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
    """`IN`."""

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
    """`SET`. A system property is one that may be set."""

    property: "Property"
    value: "Expression"


@dataclass(frozen=True, slots=True)
class Removal:
    property: UserProperty


Property: TypeAlias = UserProperty | SystemProperty
Expression: TypeAlias = Constant | Parameter | Property | PropertyCall | NewId | Signed | Arithmetic
Predicate: TypeAlias = Comparison | Member | Like | IsNull | Exists | Not | AllOf | AnyOf
Statement: TypeAlias = Assignment | Removal
