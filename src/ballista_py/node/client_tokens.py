"""Who may be a client of a node, as its configuration says: by a file of tokens, by those of a provider, or both."""

from __future__ import annotations

from typing import Any

from attrs import fields

from ballista_py.errors import ConfigError
from ballista_py.node.config import NodeConfig
from ballista_py.node.config_file import GivenValue, read_config_file
from ballista_py.node.config_values import value_of
from ballista_py.runtime import Runtime
from ballista_py.transport.security.jwt_tokens import JwtSettings, JwtTokens
from ballista_py.transport.security.tokens import AnyOf, StaticTokens, TokenVerifier


def client_verifier(config: NodeConfig, runtime: Runtime) -> TokenVerifier | None:
    """What knows the clients; None: everybody is one. Raises `ConfigError` naming what cannot be used, and where."""
    found: list[TokenVerifier] = []
    if config.flight_tokens_file is not None:
        found.append(StaticTokens(config.flight_tokens_file, runtime))
    if config.flight_jwt_file is not None:
        found.append(JwtTokens(read_jwt_settings(config.flight_jwt_file), runtime))
    return None if not found else found[0] if len(found) == 1 else AnyOf(found)


def read_jwt_settings(path: str) -> JwtSettings:
    """The fields of `JwtSettings` from a YAML file. Raises `ConfigError` naming file and field."""
    given = read_config_file(path)
    known = {one.name for one in fields(JwtSettings)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ConfigError(f"{path}: unknown field '{unknown[0]}'; there are {', '.join(sorted(known))}")
    missing = sorted({"issuer", "audience", "jwks_url"} - given.keys())
    if missing:
        raise ConfigError(f"{path}: the field '{missing[0]}' is missing")
    values = {name: _value(name, one) for name, one in given.items()}
    try:
        return JwtSettings(**values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None


def _value(name: str, given: GivenValue) -> Any:
    if name == "algorithms":
        if not isinstance(given.value, tuple):
            raise given.error(name, "takes a list, as [RS256, ES256]")
        return tuple(str(one.value) for one in given.value)
    return value_of(name, float if name == "leeway_s" else str, given)
