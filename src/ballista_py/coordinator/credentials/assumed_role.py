"""`AssumeRoleCredentials`: credentials of AWS STS for one client and one table, for a while."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import orjson
from attrs import define, field

from ballista_py.coordinator.credentials.vendor import below, checked_values
from ballista_py.errors import ConfigError, MissingExtra, SourceUnavailable, SourceUnfit
from ballista_py.one_line import one_line
from ballista_py.runtime import Runtime
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.secret import Secret

DURATION_S = range(900, 43_201)  # what STS takes
MAX_POLICY_CHARS = 2_048
MAX_SESSION_CHARS = 64
ASKING_S = 10.0
_SCHEMES = ("s3", "s3a")
_NO_SESSION_SIGN = re.compile(r"[^A-Za-z0-9_+=,.@-]")
_TOLD = re.compile(r"-[0-9a-f]{16}\Z")
_BUSY = frozenset(
    {"Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable", "InternalFailure"}
)


@define(kw_only=True, eq=False)
class AssumeRoleCredentials:
    """A `CredentialVendor` that lets each client take on the role `role_arn`, cut down to reading one table.

    The name of the session is that of the client, so that the logs of AWS say who has read; the session's policy
    allows reading and listing below the location alone, whatever else the role may. `duration_s` is how long they are
    good, 900 to 43,200 seconds (and no longer than the role allows; an hour where a role takes on another).
    `access_key_id` and `secret_access_key` are those of whoever takes on the role; without them botocore looks where
    it always does.

    Raises `ConfigError` for settings that STS would not take, `MissingExtra` where botocore is not installed.
    """

    role_arn: str
    runtime: Runtime
    duration_s: int = 3_600
    region: str = "us-east-1"
    endpoint: str | None = None
    external_id: Secret | None = None
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    partition: str = "aws"
    _client: Any = field(default=None, init=False, repr=False)
    _lock: Any = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()
        if self.duration_s not in DURATION_S:
            raise ConfigError(
                f"credentials of a role are good for {DURATION_S[0]} to {DURATION_S[-1]} seconds, not {self.duration_s}"
            )
        if not self.role_arn.startswith(f"arn:{self.partition}:iam::"):
            raise ConfigError(
                f"'{self.role_arn}' is no role of IAM: it is named like arn:aws:iam::123456789012:role/reader"
            )

    def vend(self, principal: str, location: str) -> StorageCredentials:
        """See `CredentialVendor`."""
        place = below(location)
        asked = {
            "RoleArn": self.role_arn,
            "RoleSessionName": session_name(principal),
            "Policy": session_policy(place, self.partition),
            "DurationSeconds": self.duration_s,
        }
        if self.external_id is not None:
            asked["ExternalId"] = self.external_id.reveal()
        began_ms = self.runtime.monotonic_ms()
        found, expires_at_ms = self._assumed(asked, str(principal))
        made = StorageCredentials(
            location=place,
            values=checked_values(found, f"the role {self.role_arn}"),
            expires_at_ms=expires_at_ms,
            valid_ms=self.duration_s * 1e3,
        )
        return made.after(self.runtime.monotonic_ms() - began_ms)

    def _assumed(self, asked: dict[str, Any], client: str) -> tuple[dict[str, str], int]:
        """What STS gave, and when it expires. Nothing of its answer is in an error: it may hold secrets."""
        try:
            from botocore.exceptions import ClientError
        except ImportError:
            raise MissingExtra.of("botocore", "s3") from None
        try:
            given = self._sts().assume_role(**asked)["Credentials"]
            found = {
                "s3.access-key-id": given["AccessKeyId"],
                "s3.secret-access-key": given["SecretAccessKey"],
                "s3.session-token": given["SessionToken"],
                "s3.region": self.region,
            }
            return found, int(given["Expiration"].timestamp() * 1e3)
        except ClientError as error:
            code = one_line(str(error.response.get("Error", {}).get("Code", "unknown")), 64)
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if code in _BUSY or status >= 500:
                raise SourceUnavailable(f"STS gives no credentials of {self.role_arn} now ({code})") from None
            raise SourceUnfit(
                f"STS gives client '{client}' no credentials of {self.role_arn} ({code}): see the trust policy of the "
                "role, and whether it allows so many seconds"
            ) from None
        except Exception as error:  # of the network, of what reads answers, of answers that lack something
            kind = type(error).__name__
            raise SourceUnavailable(f"STS cannot be asked for credentials of {self.role_arn} ({kind})") from None

    def _sts(self) -> Any:
        from botocore.config import Config
        from botocore.session import get_session

        with self._lock:
            if self._client is None:
                own = {
                    name: None if value is None else value.reveal()
                    for name, value in (
                        ("aws_access_key_id", self.access_key_id),
                        ("aws_secret_access_key", self.secret_access_key),
                    )
                }
                retries = {"max_attempts": 1}  # the tracker tries again
                config = Config(connect_timeout=ASKING_S, read_timeout=ASKING_S, retries=retries)
                self._client = get_session().create_client(
                    "sts", region_name=self.region, endpoint_url=self.endpoint, config=config, **own
                )
            return self._client


def session_name(principal: str) -> str:
    """The name of a client as STS takes it, which no other client has.

    >>> session_name("anna@example.org")
    'anna@example.org'
    >>> session_name("größe"), session_name("x" * 300) == session_name("x" * 301)
    ('gr--e-d353a2671b67afff', False)
    """
    name = str(principal)
    plain = _NO_SESSION_SIGN.sub("-", name)
    if plain == name and 2 <= len(plain) <= MAX_SESSION_CHARS - 17 and not _TOLD.search(plain):
        return plain
    told = sha256(name.encode()).hexdigest()[:16]
    return f"{plain[: MAX_SESSION_CHARS - 17]}-{told}"


def session_policy(location: str, partition: str = "aws") -> str:
    """What a session may: read and list below the location, and nothing else.

    Raises `ConfigError` for a location that is none of S3, or is too long for a policy.
    """
    parts = urlsplit(location)
    if parts.scheme not in _SCHEMES:
        raise ConfigError(f"'{location}' is no location of S3, so no role of AWS opens it")
    bucket, prefix = f"arn:{partition}:s3:::{_literal(parts.netloc)}", _literal(parts.path.lstrip("/"))
    listing: dict[str, Any] = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [bucket]}
    if prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": [f"{prefix}*"]}}
    allowed = [{"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [f"{bucket}/{prefix}*"]}, listing]
    policy = orjson.dumps({"Version": "2012-10-17", "Statement": allowed}).decode()
    if len(policy) > MAX_POLICY_CHARS:
        raise ConfigError(f"location '{location[:64]}…' is too long for the policy of a session")
    return policy


def _literal(text: str) -> str:
    """Signs that stand for others in a policy, as ones that stand for themselves."""
    return re.sub(r"[*?$]", lambda found: f"${{{found[0]}}}", text)
