"""Where the rows of a dataset come from, as Spark reads it, and which options may not stand in a file; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ballista_py.coordinator.app.fields import FORMATS
from ballista_py.errors import ConfigError

REFERENCE = re.compile(r"\$\{secrets:[A-Za-z0-9_.-]+\}")
_SECRET = re.compile(
    r"secret|passw|pwd|token|credential|access.?key|account.?key|api.?key|private|signature|(^|[._-])(sas|key)$",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_CONNECTOR = re.compile(r"([A-Za-z][A-Za-z0-9_.]*):")
_USER = re.compile(r"://[^/@\s]*:[^/@\s]*@")
SPARK = "spark"
FOLLOWED = {  # connectors whose tables can follow changes: their format, and the option that says where it is
    "delta_lake": ("delta", "path"),
    "iceberg": ("iceberg", "table"),
    "debezium": ("debezium", "path"),
    "postgres": ("postgres", "table"),
}


def source_of(place: str | None, params: Mapping[str, str], folder: Path) -> dict[str, Any] | None:
    """The options of Spark's reader; None for a dataset without a source. A path is relative to the file's `folder`.

    Raises `ConfigError` for a connector that there is not.

    >>> source_of("orders.csv", {"file_format": "csv", "header": "true"}, Path("/data"))
    {'format': 'csv', 'header': 'true', 'path': '/data/orders.csv'}
    >>> source_of("debezium:/srv/events", {"columns": "id bigint not null"}, Path("/"))
    {'format': 'debezium', 'columns': 'id bigint not null', 'path': '/srv/events'}
    >>> source_of("spark:jdbc", {"url": "jdbc:postgresql://db/x"}, Path("/"))
    {'format': 'jdbc', 'url': 'jdbc:postgresql://db/x'}
    """
    if place is None:
        if params:
            raise ConfigError("params are of a source: say where it is with `from`, or leave them out")
        return None
    if _USER.search(place):
        raise ConfigError("there is a password in it: give it as an option in params, as ${secrets:name}")
    if "${" in place:
        raise ConfigError("a reference to a secret belongs into params: errors name what is in `from`")
    options = {name: value for name, value in params.items() if name != "file_format"}
    for taken in ("format", "path"):
        if taken in options:
            instead = "file_format" if taken == "format" else "from"
            raise ConfigError(f"params.{taken}: say it with `{instead}`")
    found = params.get("file_format")
    if found is not None and found not in FORMATS:
        raise ConfigError(f"params.file_format: '{found[:60]}' is none of {', '.join(FORMATS)}")
    kind = {} if found is None else {"format": found}
    if _SCHEME.match(place):
        return {**kind, **options, "path": place}
    connector = _CONNECTOR.match(place)
    if connector is None or connector[1] == "file":
        rest = place if connector is None else place[connector.end() :]
        return {**kind, **options, "path": str(folder / rest)}
    if connector[1] in FOLLOWED and place[connector.end() :]:
        kind_of, option = FOLLOWED[connector[1]]
        rest = place[connector.end() :]
        if option == "path" and not _SCHEME.match(rest):
            rest = str(folder / rest)
        return {"format": kind_of, **options, option: rest}
    if connector[1] == SPARK and place[connector.end() :]:
        return {"format": place[connector.end() :], **options}
    raise ConfigError(
        f"there is no connector '{connector[1]}': take a path, file:, s3:// or another URL that Spark reads, "
        f"{', '.join(f'{name}:' for name in FOLLOWED)}, or spark:jdbc and the options of that reader in params"
    )


def unsafe_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The options that hold a secret themselves, and what to do; no value is shown.

    >>> [name for name, _ in unsafe_options({"user": "me", "password": "x", "secret": "${secrets:s3}"})]
    ['password']
    """
    for name, value in options.items():
        if REFERENCE.search(value) and not REFERENCE.sub("", value).strip():
            continue
        if _SECRET.search(name) or _USER.search(value):
            yield (
                name,
                "holds a secret: put it into the --secrets-file of the schedulers, and write ${secrets:name}",
            )
