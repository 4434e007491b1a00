"""The protobuf messages of Flight SQL, in a descriptor pool of their own.

Other packages in a process may bring generated classes of the same names; protobuf refuses two of a name in one
pool. So nothing is generated here: the descriptors are made from `message_forms` at the first use. Enumerations are
int32 fields, which have the same bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ballista_py.errors import InvalidData, MissingExtra, TransportError
from ballista_py.protobuf_sizes import require_unpackable
from ballista_py.transport.flight.shape_checks import MAX_NAME_CHARS
from ballista_py.transport.flight_sql.message_forms import FLIGHT, FLIGHT_SQL

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.protobuf.message import DecodeError, Message
except ImportError as error:
    raise MissingExtra.of("protobuf", "node") from error

FLIGHT_PACKAGE = "arrow.flight.protocol"
SQL_PACKAGE = "arrow.flight.protocol.sql"
MAX_PACKED_BYTES = 16 << 20
MAX_FILTER_BYTES = 1 << 20
_LONG = frozenset(["query", "uri"])  # statements are measured by themselves
_TYPE_URL = "type.googleapis.com/"
_FIELD = descriptor_pb2.FieldDescriptorProto


def message(name: str, **fields: Any) -> Any:
    """A new message of the specification.

    >>> message("CommandStatementQuery", query="select 1").SerializeToString()
    b'\\n\\x08select 1'
    """
    return _classes()[name](**fields)


def read(name: str, data: bytes) -> Any:
    """The message `name` in these bytes. Raises `TransportError` for anything else, and `InvalidData` for one with a
    name that is longer than names are, or with more values than are read."""
    require_unpackable(data, _classes()[name].DESCRIPTOR)
    try:
        found = _classes()[name].FromString(data)
    except DecodeError:
        raise TransportError(f"the bytes are no {name} of Arrow Flight SQL") from None
    _check_texts(found)
    return found


def _check_texts(found: Message) -> None:
    """Whatever a client calls something is a name; texts that may be longer are in `_LONG`."""
    for field, value in found.ListFields():
        if field.message_type is not None:
            entry = field.message_type.GetOptions().map_entry
            for name in value if entry else ():
                _check_text(field.name, name)
            held = value.values() if entry else value if field.is_repeated else [value]
            for one in held:
                if isinstance(one, Message):
                    _check_texts(one)
                elif isinstance(one, str):
                    _check_text(field.name, one)
        elif field.type == _FIELD.TYPE_STRING and field.name not in _LONG:
            for one in value if field.is_repeated else [value]:
                _check_text(field.name, one)


def _check_text(field: str, text: str) -> None:
    if len(text) > MAX_NAME_CHARS:
        raise InvalidData(
            f"the command is malformed: '{field}' must be a text of at most {MAX_NAME_CHARS:,} characters"
        )


def pack(command: Message) -> bytes:
    """The message with its type, as commands, tickets and results of actions travel."""
    wrapped = AnyMessage(type_url=_TYPE_URL + command.DESCRIPTOR.full_name, value=command.SerializeToString())
    return bytes(wrapped.SerializeToString())


def unpack(data: bytes) -> Any:
    """The message that `pack` wrote. Raises `TransportError` for what is no known command of Flight SQL.

    >>> unpack(pack(message("CommandGetCatalogs"))).DESCRIPTOR.name
    'CommandGetCatalogs'
    """
    if len(data) > MAX_PACKED_BYTES:
        raise TransportError(f"a command has more than {MAX_PACKED_BYTES >> 20} MiB")
    try:
        wrapped = AnyMessage.FromString(data)
    except DecodeError:
        raise TransportError("the bytes are no command of Arrow Flight SQL") from None
    package, _, name = wrapped.type_url.removeprefix(_TYPE_URL).rpartition(".")
    if package != SQL_PACKAGE or name not in _classes() or not wrapped.type_url.startswith(_TYPE_URL):
        raise TransportError("the bytes are no command of Arrow Flight SQL that this port knows")
    if name.startswith("CommandGet") and len(wrapped.value) > MAX_FILTER_BYTES:
        raise TransportError(f"{name} has more than {MAX_FILTER_BYTES >> 20} MiB")
    return read(name, wrapped.value)


@cache
def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    found: dict[str, Any] = {}
    for package, forms in ((FLIGHT_PACKAGE, FLIGHT), (SQL_PACKAGE, FLIGHT_SQL)):
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for line in forms.strip().splitlines():
            name, *fields = line.split()
            form = file.message_type.add(name=name)
            for field in fields:
                _add_field(form, package, field)
            for optional in (f for f in form.field if f.proto3_optional):  # protobuf wants these after the others
                optional.oneof_index = len(form.oneof_decl)
                form.oneof_decl.add(name=f"_{optional.name}")
        pool.Add(file)
        for form in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{package}.{form.name}")
            found[form.name] = message_factory.GetMessageClass(descriptor)
    return found


def _add_field(form: Any, package: str, text: str) -> None:
    in_choice = "|" in text
    name, _, rest = text.partition(":")
    kind, _, number = rest.partition("|" if in_choice else "=")
    field = form.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if kind.startswith("<"):
        entry = form.nested_type.add(name="".join(word.title() for word in name.split("_")) + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
        value = entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL)
        _set_kind(value, package, kind.strip("<>"))
        field.label, field.type = _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE
        field.type_name = f".{package}.{form.name}.{entry.name}"
        return
    if kind.endswith("*"):
        field.label = _FIELD.LABEL_REPEATED
    _set_kind(field, package, kind.rstrip("?*"))
    if kind.endswith("?"):
        field.proto3_optional = True
    if in_choice:
        if not form.oneof_decl:
            form.oneof_decl.add(name="option_value")
        field.oneof_index = 0


def _set_kind(field: Any, package: str, kind: str) -> None:
    if kind[0].isupper():
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"
    else:
        field.type = getattr(_FIELD, f"TYPE_{kind.upper()}")
