"""Composite types: AMQP lists with named fields (part 1, 1.4), declared as dataclasses.

The declaration of a dataclass defines the order of the fields, their AMQP types, which of them are
optional, and their defaults. A field without a default is mandatory. When a composite is decoded, a
field that is null or omitted at the end of the list takes its default. When it is encoded, a field
that equals its default becomes null, and trailing nulls are omitted.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, Union, dataclass_transform, get_args, get_origin

from pairbus.amqp.encode import encode, encode_compound
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
"""A `multiple` symbol field: encoded as null, one symbol or an array of symbols."""

CompositeClass = TypeVar("CompositeClass", bound=type)

_BY_DESCRIPTOR: dict[Any, type] = {}
_LAYOUTS: dict[type, "CompositeLayout"] = {}


class CompositeLayout:
    """Decodes and encodes one composite type."""

    def __init__(self, cls: Any, code: int, keep_trailing_nulls: bool) -> None:
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = dataclasses.fields(cls)
        self.cls = cls
        self.keep_trailing_nulls = keep_trailing_nulls
        self.names = tuple(field.name for field in fields)
        self.defaults = [
            None if field.default is dataclasses.MISSING else field.default for field in fields
        ]
        self.field_types = [_FieldType(hints[name]) for name in self.names]
        self.mandatory = [
            field.default is dataclasses.MISSING and not field_type.optional
            for field, field_type in zip(fields, self.field_types, strict=True)
        ]
        self.descriptor = b"\x00\x53" + bytes((code,))

    def decode(self, fields: Any) -> Any:
        """Return an instance for the list of a described value.

        Raises DecodeError for a field that is missing or has the wrong type.
        """
        if not isinstance(fields, list):
            raise DecodeError(
                f"{self.cls.__name__} is not a list", condition=conditions.INVALID_FIELD
            )
        if len(fields) > len(self.names):
            raise DecodeError(
                f"{self.cls.__name__} has {len(fields)} fields, but at most {len(self.names)} "
                "are defined",
                condition=conditions.INVALID_FIELD,
            )
        values = self.defaults.copy()
        for index, value in enumerate(fields):
            if value is not None:
                values[index] = self._decode_field(index, value)
        for index, value in enumerate(values):
            if value is None and self.mandatory[index]:
                raise DecodeError(
                    f"{self.cls.__name__}.{self.names[index]} is missing",
                    condition=conditions.INVALID_FIELD,
                )
        return self.cls(*values)

    def _decode_field(self, index: int, value: Any) -> Any:
        try:
            return self.field_types[index].decode(value)
        except (TypeError, ValueError):
            name = f"{self.cls.__name__}.{self.names[index]}"
            raise DecodeError(
                f"{name} cannot be a {type(value).__name__}", condition=conditions.INVALID_FIELD
            ) from None

    def encode(self, instance: Any) -> bytes:
        parts = []
        for name, default, field_type in zip(
            self.names, self.defaults, self.field_types, strict=True
        ):
            value = getattr(instance, name)
            parts.append(b"\x40" if value is None or value == default else field_type.encode(value))
        if not self.keep_trailing_nulls:
            while parts and parts[-1] == b"\x40":
                parts.pop()
        if not parts:
            return self.descriptor + b"\x45"
        return self.descriptor + encode_compound(0xC0, len(parts), b"".join(parts))


class _FieldType:
    """The AMQP type of one field, derived from its annotation."""

    def __init__(self, hint: Any) -> None:
        if get_origin(hint) in (Union, types.UnionType):
            self.optional = type(None) in get_args(hint)
            hint = next(arg for arg in get_args(hint) if arg is not type(None))
        else:
            self.optional = hint is Any
        self.convert: Callable[[Any], Any] = _identity
        if hint is Any:
            self.accepts: tuple[type, ...] = (object,)
        elif hint == Symbols:
            self.accepts = (Symbol, Array)
        elif hint == Map:
            self.accepts = (dict,)  # Keys are symbols, so a dict can hold every valid map.
        elif get_origin(hint) is Annotated:
            self.accepts = (hint.__metadata__[0],)
            self.convert = hint.__metadata__[0]
        else:
            self.accepts = (hint,)
        self.hint = hint

    def decode(self, value: Any) -> Any:
        if isinstance(value, Described):
            value = decode_composite(value)
        if not isinstance(value, self.accepts):
            raise TypeError
        # In Python a symbol and a char are str, and a decimal is bytes. In AMQP they are not.
        if (self.hint is str or self.hint is bytes) and type(value) is not self.hint:
            raise TypeError
        return _symbols(value) if self.hint == Symbols else value

    def encode(self, value: Any) -> bytes:
        if self.hint == Symbols:
            return encode(Array(Symbol, tuple(Symbol(item) for item in value)))
        if type(value) in _LAYOUTS:
            return _LAYOUTS[type(value)].encode(value)
        return encode(self.convert(value))


def _identity(value: Any) -> Any:
    return value


def _symbols(value: Any) -> tuple[Symbol, ...]:
    if isinstance(value, Symbol):
        return (value,)
    if value.descriptor is not None or (value.elements and value.element_type is not Symbol):
        raise TypeError  # The element type of an empty array does not matter.
    elements: tuple[Symbol, ...] = value.elements
    return elements


@dataclass_transform(frozen_default=True)
def composite(
    code: int, name: str, *, keep_trailing_nulls: bool = False
) -> Callable[[CompositeClass], CompositeClass]:
    """Declare the frozen dataclass of the composite type with this numeric and symbolic
    descriptor."""

    def declare(cls: CompositeClass) -> CompositeClass:
        make_dataclass: Any = dataclasses.dataclass(frozen=True, slots=True)
        result: CompositeClass = make_dataclass(cls)
        _LAYOUTS[result] = CompositeLayout(result, code, keep_trailing_nulls)
        _BY_DESCRIPTOR[ULong(code)] = _BY_DESCRIPTOR[Symbol(name)] = result
        return result

    return declare


def decode_composite(value: Described) -> Any:
    """Return the composite for a described value, or the value itself if its type is unknown."""
    try:
        cls = _BY_DESCRIPTOR.get(value.descriptor)
    except TypeError:  # The descriptor is a list or a map, which is not hashable.
        cls = None
    return value if cls is None else _LAYOUTS[cls].decode(value.value)


def encode_composite(instance: Any) -> bytes:
    """Return the encoding of a composite. Raises EncodeError for a field that has none."""
    try:
        return _LAYOUTS[type(instance)].encode(instance)
    except (TypeError, ValueError) as exc:
        if isinstance(exc, EncodeError):
            raise
        raise EncodeError(f"{type(instance).__name__} cannot be encoded: {exc}") from exc
