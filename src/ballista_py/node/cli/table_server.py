"""The command line's `table-server`: plain Parquet files, read as tables of a cluster are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ballista_py.node.cli.choices import command_group
from ballista_py.node.cli.connecting import Json, json_bytes, visible, write_out
from ballista_py.node.cli.store_options import Option
from ballista_py.node.cli.store_words import store_options

if TYPE_CHECKING:
    from ballista_py.node.table_server.server import RunningTableServer


def table_server(
    location: Annotated[
        str, typer.Argument(help="the folder: /absolute/path or s3://bucket/prefix", metavar="FOLDER")
    ],
    listen: Annotated[
        str, typer.Option(help="where to listen; port 0 takes a free one", metavar="HOST:PORT")
    ] = "127.0.0.1:50061",
    advertise: Annotated[
        str | None,
        typer.Option(
            help="where clients find it; port 0: that of --listen; default: as --listen", metavar="HOST:PORT"
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            help="another server of the same files, with the same secret; may be repeated; default: none",
            metavar="HOST:PORT",
        ),
    ] = None,
    option: Option = None,
    tls_certificate_file: Annotated[
        str | None, typer.Option(help="PEM: what it proves itself with; default: none", metavar="FILE")
    ] = None,
    tls_key_file: Annotated[
        str | None, typer.Option(help="PEM: the key of that certificate; default: none", metavar="FILE")
    ] = None,
    tokens_file: Annotated[
        str | None,
        typer.Option(
            help="clients and their tokens, one pair a line; default: everybody may read", metavar="FILE"
        ),
    ] = None,
    secret_file: Annotated[
        str | None,
        typer.Option(help="what signs tickets, 32 characters or more; default: one made now", metavar="FILE"),
    ] = None,
    memory_limit: Annotated[
        str, typer.Option(help="memory of all that it gives at once, as '4GB' or '25%'", metavar="SIZE")
    ] = "25%",
    allow_insecure_connections: Annotated[
        bool, typer.Option("--allow-insecure-connections", help="speak plain TCP, without a certificate")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR", metavar="LEVEL")] = "INFO",
    as_json: Json = False,
) -> None:
    """Serve a folder of Parquet files to readers in parallel, until it is told to stop.

    Each folder in it is a table, of all *.parquet files there and below; each *.parquet file beside them is one of
    its own. `read_job`, `scan_ballista` and Spark's format("ballista") read them as tables of a cluster.
    """
    from ballista_py.logs import configure_logging
    from ballista_py.node.table_server.server import TableServerSettings, run_table_server
    from ballista_py.spared import spare_pandas

    settings = TableServerSettings(
        location=location,
        listen=listen,
        advertise=advertise,
        also=tuple(also or ()),
        store_options=store_options(option or []),
        tls_certificate_file=tls_certificate_file,
        tls_key_file=tls_key_file,
        tokens_file=tokens_file,
        secret_file=secret_file,
        memory_limit=memory_limit,
        allow_insecure_connections=allow_insecure_connections,
    )
    configure_logging("table-server", log_level)
    spare_pandas()
    run_table_server(settings, lambda server: _say_ready(server, as_json))


def _say_ready(server: RunningTableServer, as_json: bool) -> None:
    said = {"url": server.url, "tables": list(server.tables), "refused": dict(server.refused)}
    if as_json:
        write_out(json_bytes(said, indent=False) + b"\n")
    else:
        print(f"serving {len(server.tables)} tables at {server.url}")
        for why in server.refused.values():
            print(visible(why))
    sys.stdout.flush()


table_server_app = command_group(str(table_server.__doc__), no_args_is_help=False)
table_server_app.command()(table_server)
