"""`ballista-py cluster tls`: the certificates that nodes and clients of one cluster trust."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from attrs import asdict

from ballista_py.node.cli.choices import choice, command_group
from ballista_py.node.cli.connecting import Json, print_json, print_table
from ballista_py.node.config import NODE_ID, NodeRole
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.certificates import CA_DAYS, NODE_DAYS, CertificateFolder
from ballista_py.transport.security.credentials import Role

cluster_app = command_group("What a whole cluster needs.")
tls_app = command_group("The certificates of a cluster: an authority and one for each node.")
cluster_app.add_typer(tls_app, name="tls")
Folder = Annotated[
    Path, typer.Option("--folder", help="where authority and certificates are kept", metavar="FOLDER")
]
NodeId = Annotated[str, typer.Argument(help="the id of the node", metavar="NODE_ID")]
DEFAULT_FOLDER = Path("ballista-tls")


@tls_app.command()
def init(
    folder: Folder = DEFAULT_FOLDER,
    days: Annotated[int, typer.Option(help="how long the authority is valid", min=1)] = CA_DAYS,
    as_json: Json = False,
) -> None:
    """Make the authority of a cluster."""
    made = _authority(folder)
    made.init(days)
    if as_json:
        print_json({"ca_file": made.ca_file})
        return
    print(f"authority: {made.ca_file}; keep {folder / 'ca.key'} off the nodes")


@tls_app.command()
def add(
    node_id: NodeId,
    role: Annotated[
        str,
        typer.Option(
            help="what the node may be in the cluster",
            parser=choice(*get_args(NodeRole)),
            metavar=f"[{'|'.join(get_args(NodeRole))}]",
        ),
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(help="name or address of its machine; may be repeated; default: localhost", metavar="HOST"),
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    days: Annotated[int, typer.Option(help="how long the certificate is valid", min=1)] = NODE_DAYS,
    as_json: Json = False,
) -> None:
    """Make the certificate of a node, or renew it.

    Running nodes pick a renewed one up by themselves. With role both there are two, of the two nodes of that process.
    """
    made = _authority(folder)
    nodes = {f"{node_id}-{one}": one for one in get_args(Role)} if role == "both" else {node_id: cast(Role, role)}
    added = [made.add(name, one, host or [], days) for name, one in nodes.items()]
    tls = made.tls(node_id if role != "both" else NODE_ID)
    if as_json:
        files = {"ca_file": tls.ca_file, "certificate_file": tls.certificate_file, "key_file": tls.key_file}
        said = [{**asdict(found), **files, "removed_file": made.removed_file} for found in added]
        print_json(said if role == "both" else said[0])
        return
    for found in added:
        print(f"certificate of the {found.role} '{found.node_id}' at {', '.join(found.names[1:])}")
    print(f"valid until {added[0].not_after}; start the node with")
    print(f"  --node-mtls-ca-certificate-file {tls.ca_file}")
    print(f"  --node-mtls-certificate-file {tls.certificate_file}")
    print(f"  --node-mtls-key-file {tls.key_file}")
    print(f"  --node-mtls-removed-file {made.removed_file}")


@tls_app.command()
def remove(
    node_id: NodeId,
    folder: Folder = DEFAULT_FOLDER,
    as_json: Json = False,
) -> None:
    """Let a node in no more.

    Its certificate is refused wherever the list of removed nodes is.
    """
    made = _authority(folder)
    made.remove(node_id)
    if as_json:
        print_json({"node_id": node_id, "removed_file": made.removed_file})
        return
    print(f"removed; bring {made.removed_file} to every node that does not read it there")


@tls_app.command()
def show(folder: Folder = DEFAULT_FOLDER, as_json: Json = False) -> None:
    """List the certificates and how long they are valid."""
    known = _authority(folder).show()
    if as_json:
        print_json([asdict(found) for found in known])
        return
    print_table(
        ("node", "role", "names", "valid from", "valid until", "serial"),
        (
            (
                *(found.node_id, found.role or "", ", ".join(found.names[1:]), found.not_before),
                *("removed" if found.removed else found.not_after, found.serial[:16]),
            )
            for found in known
        ),
        wide=True,
    )


def _authority(folder: Path) -> CertificateFolder:
    return CertificateFolder(folder, SystemRuntime())
