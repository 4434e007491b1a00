"""Where a node sends metrics and traces: what may be configured, checked before anything of it is imported."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from ballista_py.errors import ConfigError

SCHEMES = ("http", "https")


def check_endpoint(endpoint: str) -> str:
    """The endpoint, if it is one of gRPC. Raises `ConfigError` otherwise.

    >>> check_endpoint("http://127.0.0.1:4317")
    'http://127.0.0.1:4317'
    """
    if not _is_usable(endpoint):
        raise ConfigError(
            "otlp_endpoint: write http://host:4317, or https:// where the collector has a certificate; it is one of "
            "OTLP over gRPC, and what it wants to know goes into OTEL_EXPORTER_OTLP_HEADERS"
        )
    return endpoint


def _is_usable(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in SCHEMES and bool(parts.hostname and parts.port) and not _has_more(parts)
    except ValueError:  # a port that is none
        return False


def _has_more(parts: SplitResult) -> bool:
    """Whether it names more than a host and a port: that would be sent nowhere, or shown in logs."""
    return bool(parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password)
