"""`ballista-py sim`: hands over to the testing kit, which is loaded only when it is called for."""

from __future__ import annotations

from importlib import import_module

import typer

from ballista_py.node.cli.choices import command_group

sim_app = command_group("Attack a simulated cluster with faults, from seeds.", no_args_is_help=False)


@sim_app.command(
    "sim",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def sim(context: typer.Context) -> None:
    """Attack a simulated cluster with faults, from seeds (see `sim --help`)."""
    kit = import_module("ballista_py.testing.cli")  # no import: nothing in the house builds on its own testing kit
    command = typer.main.get_command(kit.app)
    code = command.main(args=context.args, prog_name="ballista-py sim", standalone_mode=False)
    if code:
        raise typer.Exit(code)
