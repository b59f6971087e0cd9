"""Composite types: AMQP lists with named fields, declared as dataclasses.

A declaration says everything once: the order of the fields, their AMQP types, which may be left out
and what they then mean. A field without a default is mandatory. On reading, a field that is null
or left out at the end is its default; on writing, a field that equals its default is null, and
nulls at the end are left out.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pairbus.amqp.encode import compound, encode
from pairbus.amqp.types import Array, Described, Symbol, UByte, UInt, ULong, UShort
from pairbus.errors import DecodeError, EncodeError
from pairbus.servicebus import conditions

U8 = Annotated[int, UByte]
U16 = Annotated[int, UShort]
U32 = Annotated[int, UInt]
U64 = Annotated[int, ULong]
Sym = Annotated[str, Symbol]
Map = dict[Any, Any]
Symbols = tuple[Symbol, ...]
"""A `multiple` symbol field: null, one symbol or an array of them on the wire."""

Described_ = TypeVar("Described_", bound=type)

_BY_DESCRIPTOR: dict[Any, type] = {}
_LAYOUTS: dict[type, "Layout"] = {}


class Layout:
    """How one composite type is read and written."""

    def __init__(self, cls: Any, code: int, keep_nulls: bool) -> None:
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = dataclasses.fields(cls)
        self.cls = cls
        self.keep_nulls = keep_nulls
        self.names = tuple(field.name for field in fields)
        self.defaults = [
            None if field.default is dataclasses.MISSING else field.default for field in fields
        ]
        self.kinds = [_Kind(hints[name]) for name in self.names]
        self.mandatory = [
            field.default is dataclasses.MISSING and not kind.optional
            for field, kind in zip(fields, self.kinds, strict=True)
        ]
        self.head = b"\x00\x53" + bytes((code,))

    def read(self, fields: Any) -> Any:
        """An instance from the list of a described value. Raises DecodeError for a wrong field."""
        if not isinstance(fields, list):
            raise DecodeError(
                f"{self.cls.__name__} is not a list", condition=conditions.INVALID_FIELD
            )
        if len(fields) > len(self.names):
            raise DecodeError(
                f"{self.cls.__name__} has {len(fields)} fields, at most {len(self.names)} exist",
                condition=conditions.INVALID_FIELD,
            )
        values = self.defaults.copy()
        for index, value in enumerate(fields):
            if value is not None:
                values[index] = self._checked(index, value)
        for index, value in enumerate(values):
            if value is None and self.mandatory[index]:
                raise DecodeError(
                    f"{self.cls.__name__}.{self.names[index]} is missing",
                    condition=conditions.INVALID_FIELD,
                )
        return self.cls(*values)

    def _checked(self, index: int, value: Any) -> Any:
        try:
            return self.kinds[index].read(value)
        except (TypeError, ValueError):
            name = f"{self.cls.__name__}.{self.names[index]}"
            raise DecodeError(
                f"{name} cannot be a {type(value).__name__}", condition=conditions.INVALID_FIELD
            ) from None

    def write(self, instance: Any) -> bytes:
        parts = []
        for name, default, kind in zip(self.names, self.defaults, self.kinds, strict=True):
            value = getattr(instance, name)
            parts.append(b"\x40" if value is None or value == default else kind.write(value))
        if not self.keep_nulls:
            while parts and parts[-1] == b"\x40":
                parts.pop()
        if not parts:
            return self.head + b"\x45"
        return self.head + compound(0xC0, len(parts), b"".join(parts))


class _Kind:
    """The type of one field, from its annotation."""

    def __init__(self, hint: Any) -> None:
        if get_origin(hint) in (Union, types.UnionType):
            self.optional = type(None) in get_args(hint)
            hint = next(arg for arg in get_args(hint) if arg is not type(None))
        else:
            self.optional = hint is Any
        self.convert: Callable[[Any], Any] = _same
        if hint is Any:
            self.accepts: tuple[type, ...] = (object,)
        elif hint == Symbols:
            self.accepts, self.convert = (Symbol, Array), _symbols
        elif hint == Map:
            self.accepts = (dict,)  # keys are symbols, so a dict holds every map that is legal
        elif get_origin(hint) is Annotated:
            self.accepts = (hint.__metadata__[0],)
            self.convert = hint.__metadata__[0]
        else:
            self.accepts = (hint,)
        self.hint = hint

    def read(self, value: Any) -> Any:
        if isinstance(value, Described):
            value = from_described(value)
        if not isinstance(value, self.accepts):
            raise TypeError
        # A symbol and a char are str in Python, and a decimal is bytes, but not in AMQP.
        if (self.hint is str or self.hint is bytes) and type(value) is not self.hint:
            raise TypeError
        return _symbols(value) if self.hint == Symbols else value

    def write(self, value: Any) -> bytes:
        if self.hint == Symbols:
            return encode(Array(Symbol, tuple(Symbol(item) for item in value)))
        if type(value) in _LAYOUTS:
            return _LAYOUTS[type(value)].write(value)
        return encode(self.convert(value))


def _same(value: Any) -> Any:
    return value


def _symbols(value: Any) -> tuple[Symbol, ...]:
    if isinstance(value, Symbol):
        return (value,)
    if value.descriptor is not None or (value.items and value.kind is not Symbol):
        raise TypeError  # an empty array may come without a kind
    items: tuple[Symbol, ...] = value.items
    return items


def composite(
    code: int, name: str, *, keep_nulls: bool = False
) -> Callable[[Described_], Described_]:
    """Declare a dataclass as the composite type with this descriptor, numeric and symbolic."""

    def declare(cls: Described_) -> Described_:
        layout = Layout(cls, code, keep_nulls)
        _LAYOUTS[cls] = layout
        _BY_DESCRIPTOR[ULong(code)] = cls
        _BY_DESCRIPTOR[Symbol(name)] = cls
        return cls

    return declare


def from_described(value: Described) -> Any:
    """The composite that a described value is, or the value itself where the type is not ours."""
    try:
        cls = _BY_DESCRIPTOR.get(value.descriptor)
    except TypeError:  # a list or map as descriptor
        cls = None
    return value if cls is None else _LAYOUTS[cls].read(value.value)


def write(instance: Any) -> bytes:
    """The bytes of a composite. Raises EncodeError where a field cannot be written."""
    try:
        return _LAYOUTS[type(instance)].write(instance)
    except (TypeError, ValueError) as exc:
        if isinstance(exc, EncodeError):
            raise
        raise EncodeError(f"{type(instance).__name__} cannot be written: {exc}") from exc
