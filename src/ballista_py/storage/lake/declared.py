"""What a user declares of a table of a lake, checked; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import Factory, field, frozen

from ballista_py.errors import ConfigError
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.secret import Secret
from ballista_py.storage.lake.paths import true_path

FORMATS = ("iceberg", "delta", "parquet")
_KEYS = {
    "iceberg": {"format", "catalog", "table", "path", "options", "locations"},
    "delta": {"format", "path", "options", "locations"},
    "parquet": {"format", "path", "options"},
}
_USER = re.compile(r"://[^/]*@")
_MAX_TEXT, _MAX_ITEMS = 4_096, 100


@frozen(kw_only=True)
class DeclaredLake:
    """A declaration that is right as far as can be told without asking anybody."""

    format: str
    path: str | None = None
    table: str | None = None
    catalog: str | None = None
    properties: Mapping[str, str] = field(factory=dict, repr=False)
    options: Mapping[str, str] = field(factory=dict, repr=False)
    locations: tuple[str, ...] = Factory(tuple)

    @property
    def there(self) -> str:
        """What errors call the table."""
        words = {"iceberg": "Iceberg table", "delta": "Delta table", "parquet": "Parquet files"}[self.format]
        return f"the {words} {self.table}" if self.table else f"the {words} at {self.path}"

    def credentials(self) -> StorageCredentials | None:
        """What the declaration itself says of opening the files, if it does."""
        if not self.options or self.path is None:
            return None
        return credentials_of(self.path, self.options, self.locations)


def credentials_of(path: str, options: Mapping[str, str], locations: Sequence[str] = ()) -> StorageCredentials:
    """Options as credentials for a path, or for its bucket where other locations are named."""
    true = true_path(path)
    wild = min((true.find(one) for one in "*?[" if one in true), default=len(true))
    place = true[:wild]
    if locations and true.startswith("s3://"):
        place = "s3://" + true.removeprefix("s3://").partition("/")[0]
    return StorageCredentials(location=place, values={name: Secret(value) for name, value in options.items()})


def declared_lake(scan: Mapping[str, Any]) -> DeclaredLake:
    """The declaration, checked. Raises `ConfigError` that names the key.

    >>> declared_lake({"format": "delta", "path": "/srv/t"}).there
    'the Delta table at /srv/t'
    """
    form = scan.get("format")
    if form not in FORMATS:
        raise ConfigError(f"scan: the format is one of {', '.join(FORMATS)}, and not {str(form)[:60]!r}")
    unknown = next((key for key in scan if key not in _KEYS[form]), None)
    if unknown is not None:
        raise ConfigError(
            f"scan: '{str(unknown)[:60]}' is no key of the format {form}: it has {', '.join(sorted(_KEYS[form]))}"
        )
    path, table = _text(scan, "path"), _text(scan, "table")
    if path is not None:
        if _USER.search(path):
            raise ConfigError("scan: the path has a password in it: say it by 'options'")
        true_path(path)
    catalog, properties = _catalog(scan.get("catalog"))
    by_catalog = "catalog" in scan or table is not None
    if by_catalog == (path is not None) or (by_catalog and ("catalog" not in scan or table is None)):
        either = "either 'path', or 'catalog' and 'table'" if form == "iceberg" else "'path'"
        raise ConfigError(f"scan: the format {form} needs {either}")
    return DeclaredLake(
        format=form,
        path=path,
        table=table,
        catalog=catalog,
        properties=properties,
        options=_texts(scan.get("options", {}), "options"),
        locations=_locations(scan.get("locations", ())),
    )


def _text(scan: Mapping[str, Any], key: str) -> str | None:
    if key not in scan:
        return None
    found = scan[key]
    if not isinstance(found, str) or not found or len(found) > _MAX_TEXT:
        raise ConfigError(f"scan: '{key}' is no text, or a very long one")
    return found


def _catalog(found: Any) -> tuple[str | None, Mapping[str, str]]:
    if isinstance(found, Mapping):
        properties = _texts(found, "catalog")
        return properties.pop("name", "lake"), properties  # a catalog in SQL knows its tables by its own name
    if found is not None and (not isinstance(found, str) or not found):
        raise ConfigError("scan: 'catalog' is a name, or properties of pyiceberg")
    return found, {}


def _texts(found: Any, key: str) -> dict[str, str]:
    if not isinstance(found, Mapping) or len(found) > _MAX_ITEMS:
        raise ConfigError(f"scan: '{key}' is no mapping of names to texts, or a very long one")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise ConfigError(f"scan: '{str(name)[:60]}' of '{key}' is no text, or a very long one")
    return dict(found)


def _locations(found: Any) -> tuple[str, ...]:
    if isinstance(found, str) or not isinstance(found, Sequence) or len(found) > _MAX_ITEMS:
        raise ConfigError("scan: 'locations' is no list of paths, or a very long one")
    for one in found:
        if not isinstance(one, str):
            raise ConfigError("scan: 'locations' is no list of paths")
        true_path(one)
    return tuple(found)
