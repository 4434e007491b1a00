"""Options of a store's client as an option of a command."""

from __future__ import annotations

from typing import Annotated

import typer

Option = Annotated[
    list[str] | None,
    typer.Option(
        help="of the store's client, as endpoint_url=http://…; '@NAME' reads a variable; may be repeated; "
        "default: what the variables of the store's own tools say",
        metavar="NAME=VALUE",
    ),
]
