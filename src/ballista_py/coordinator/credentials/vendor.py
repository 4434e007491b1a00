"""`CredentialVendor`: who gives the credentials with which the files of a table are read, for one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from attrs import field, frozen

from ballista_py.errors import ConfigError
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.secret import Secret

MAX_SECRETS = 64
MAX_SECRET_CHARS = 16_384


class CredentialVendor(Protocol):
    """Gives credentials for what lies below a location. Safe to share between threads."""

    def vend(self, principal: str, location: str) -> StorageCredentials:
        """Credentials with which `principal` reads what lies below `location`, and nothing else if that can be had.

        `principal` is a `Principal` where a verifier proved who it is. Their `valid_ms` counts from the moment at
        which this returns. Raises `SourceUnavailable` where the same may succeed later,
        `SourceUnfit` where this client is refused or the location is none that can be vended for; neither shows a
        secret.
        """
        ...


@frozen(kw_only=True)
class StaticCredentials:
    """A `CredentialVendor` that gives everybody the same, which do not expire.

    Hazard: they reach as far as they reach, whatever the location: who may read which table is up to the policies of
    the cluster alone.

    >>> StaticCredentials(values={"s3.access-key-id": Secret("AKIA")}).vend("anna", "s3://b/t").location
    's3://b/t/'
    """

    values: Mapping[str, Secret] = field(converter=dict)

    def __attrs_post_init__(self) -> None:
        for name, value in self.values.items():
            if not isinstance(value, Secret):
                raise ConfigError(f"the credential '{name}' is to be given as a Secret")

    def vend(self, principal: str, location: str) -> StorageCredentials:
        """See `CredentialVendor`."""
        return StorageCredentials(location=below(location), values=self.values)


def below(location: str) -> str:
    """The location as a prefix of what lies below it: `s3://b/t` is none of `s3://b/trips`.

    Raises `ConfigError` for one that is no URL, or that leads elsewhere.

    >>> below("s3://b/t"), below("s3://b/t/")
    ('s3://b/t/', 's3://b/t/')
    """
    parts = urlsplit(location)
    steps = parts.path.split("/")
    if not parts.scheme or not parts.netloc or parts.query or parts.fragment or ".." in steps or "." in steps:
        raise ConfigError(
            f"'{location}' is no location that credentials can be given for: name it like s3://bucket/path/"
        )
    return location if location.endswith("/") else f"{location}/"


def checked_values(values: Mapping[Any, Any], of: str) -> dict[str, Secret]:
    """What a vendor of somebody else has sent, as secrets. Raises `ConfigError`, which repeats none of it."""
    if len(values) > MAX_SECRETS:
        raise ConfigError(f"{of} gave more than {MAX_SECRETS} values")
    found: dict[str, Secret] = {}
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str) or "\x00" in name + value:
            raise ConfigError(f"{of} gave what is no text")
        if len(name) > MAX_SECRET_CHARS or len(value) > MAX_SECRET_CHARS:
            raise ConfigError(f"{of} gave a value of more than {MAX_SECRET_CHARS:,} characters")
        found[name] = Secret(value)
    return found
