"""Commands that are imported when they are run: who asks for help or types SQL does not wait for the others."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar

import typer
from attrs import frozen
from typer.core import TyperCommand, TyperGroup

from ballista_py.errors import MissingExtra


@frozen
class Later:
    """A command, or a group of them, by the module and the name of its Typer application, and its line of help."""

    module: str
    name: str
    help: str

    def load(self, called: str) -> Any:
        """The command itself. Raises `MissingExtra` where something that it needs is not installed."""
        try:
            found = typer.main.get_command(getattr(import_module(self.module), self.name))
        except ModuleNotFoundError as error:
            raise MissingExtra.of(str(error.name), "node") from None
        found.name = called
        return found


class LazyGroup(TyperGroup):
    """A group that knows some of its commands by name and line of help alone until one of them is run."""

    later: ClassVar[Mapping[str, Later]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, those of `later` among them."""
        return [*super().list_commands(ctx), *self.later]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command as it is listed; `resolve_command` gives what is run."""
        known = self.later.get(cmd_name)
        if known is None:
            return super().get_command(ctx, cmd_name)
        return TyperCommand(cmd_name, help=known.help, rich_help_panel=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that these words begin with, imported. An unknown one is told with the nearest there is."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            ctx.fail(f"there is no command '{args[0]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        name, command, rest = super().resolve_command(ctx, args)
        known = self.later.get(name or "")
        return (name, command, rest) if known is None else (name, known.load(name or ""), rest)
