"""The JSON schema of an application file, made of its fields, so that editors complete and check it; pure."""

from __future__ import annotations

from typing import Any

from ballista_py.coordinator.app.fields import APPLICATION, MAX_DATASETS, Field
from ballista_py.partitions.sql_view import MAX_VIEW_CHARS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_ITEMS = 1_000
_TEXT = {"type": "string", "minLength": 1, "maxLength": 4_096, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"}
_QUERY = {**_TEXT, "maxLength": MAX_VIEW_CHARS, "pattern": "^[^\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f]*$"}
_DURATION = "^([0-9]*[1-9][0-9]*(\\.[0-9]{1,6})?|[0-9]+\\.[0-9]*[1-9][0-9]*) ?(ms|s|m|h|d)$"


def app_schema() -> dict[str, Any]:
    """The schema. What it lets through may still be refused where datasets do not go together; nothing else is.

    >>> sorted(app_schema()["required"])
    ['name', 'revision', 'version']
    """
    return {"$schema": DIALECT, "title": "A ballista_py application", **_of(APPLICATION)}


def _of(field: Field) -> dict[str, Any]:
    schema = _kind(field)
    return {**schema, "description": field.help} if field.help else schema


def _kind(field: Field) -> dict[str, Any]:
    kind = field.kind
    if kind == "section":
        return _section(field)
    if kind == "sections":
        return {"type": "array", "maxItems": MAX_DATASETS, "items": _section(field)}
    if kind == "query":
        return dict(_QUERY)
    if kind == "count":
        return {"type": "integer", "minimum": 1, "maximum": 10**15 - 1}
    if kind == "flag":
        return {"const": True} if field.choices else {"type": "boolean"}
    if kind == "duration":
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": _DURATION}]}
    if kind == "choice":
        return {"enum": list(field.choices)}
    if kind == "names":
        return {"anyOf": [_TEXT, _list(_TEXT)]}
    if kind == "keys":
        named = {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": _TEXT}
        return _list({"anyOf": [_TEXT, named]})
    if kind == "options":
        value = {"type": ["string", "number", "boolean"]}
        return {"type": "object", "maxProperties": MAX_ITEMS, "additionalProperties": value}
    return _list(_TEXT) if kind == "texts" else dict(_TEXT)


def _section(field: Field) -> dict[str, Any]:
    taken = [one for one in field.fields if not one.refused]
    return {
        "type": "object",
        "properties": {one.name: _of(one) for one in taken},
        "required": [one.name for one in taken if one.required],
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "maxItems": MAX_ITEMS, "items": items}
