"""The command line's `node`: the fields of `NodeConfig` are its options."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Annotated, Any, get_args

import typer
from attrs import fields_dict

from ballista_py.node.cli.choices import command_group
from ballista_py.node.cli.node_words import OPTIONS, config_of, field_types, flag, value_type
from ballista_py.node.config import NodeConfig
from ballista_py.node.config_values import is_duration


def node(config: str | None, parent_pid: int | None, store_option: list[str] | None, **fields: Any) -> None:
    """Run one node until it is told to stop: SIGTERM hands over first, Ctrl-C stops at once."""
    from ballista_py.node.process import run_node

    run_node(config_of(config, store_option, fields), parent_pid=parent_pid)


def _shown_type(name: str, hint: Any) -> str:
    kinds = (hint, *get_args(hint))
    if float in kinds and is_duration(name):
        return "DURATION"
    return "INTEGER" if int in kinds else "NUMBER" if float in kinds else "TEXT"


def _parameters() -> list[Parameter]:
    hints = field_types()
    options = {name: _option(name, hints.get(name), text) for name, text in OPTIONS.items()}
    options["parent_pid"] = Annotated[int | None, typer.Option(hidden=True)]
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in options.items()
    ]


def _option(name: str, hint: Any, text: str) -> Any:
    kind = value_type(hint)
    if kind is bool:  # is named, or it would get a `--no-` too
        return Annotated[bool | None, typer.Option(flag(name), help=text)]
    shown = _default(name)
    said = f"{text}; default: {shown}" if shown else text
    return Annotated[kind | None, typer.Option(help=said, metavar=_shown_type(name, hint))]


def _default(name: str) -> str:
    """What a field is without its option, as one would type it; nothing where the text of the option says it.

    >>> _default("ttl_ms"), _default("http_port"), _default("app")
    ('30s', '8090', '')
    """
    known = fields_dict(NodeConfig).get(name)
    default = None if known is None else known.default
    if isinstance(default, bool) or not isinstance(default, str | int | float):
        return ""
    if isinstance(default, str) or not is_duration(name):
        return f"{default:g}" if isinstance(default, float) else str(default)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if default and default % size == 0:
            return f"{default / size:g}{unit}"
    return f"{default:g}ms" if default else "0"


node.__signature__ = Signature(_parameters())  # type: ignore[attr-defined]  # what typer makes the options of
node_app = command_group(str(node.__doc__), no_args_is_help=False)
node_app.command()(node)
