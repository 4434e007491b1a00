"""Tokens of an identity provider: real keys, real signatures, a real server for the keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from ballista_py.errors import ConfigError, Unauthenticated
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.jwt_tokens import (
    FETCH_AGAIN_MS,
    KEPT_MS,
    MAX_JWKS_BYTES,
    REFRESH_MS,
    JwtSettings,
    JwtTokens,
    fetched,
    keys_of,
)


class Clock(SystemRuntime):
    """A clock that is set by hand."""

    now_ms = 1_800_000_000_000.0

    def monotonic_ms(self):
        return self.now_ms - 1_700_000_000_000

    def wall_ms(self):
        return int(self.now_ms)

    def sleep_ms(self, ms):
        self.now_ms += ms


@pytest.fixture(scope="module")
def keys():
    return {"one": rsa.generate_private_key(65537, 2048), "two": rsa.generate_private_key(65537, 2048)}


@pytest.fixture(scope="module")
def small():
    return rsa.generate_private_key(65537, 1024)


@pytest.fixture(scope="module")
def curve():
    return ec.generate_private_key(ec.SECP256R1())


def jwk_of(key, kid, **more):
    kind = (
        jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
    )
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, **more}


class Provider:
    """An HTTP server with a JWKS; `said` is what it answers, None that it does not, a text where it sends to."""

    def __init__(self):
        self.said, self.asked = b"", 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                provider.asked += 1
                said = provider.said
                if said is None or isinstance(said, str):
                    self.send_response(503 if said is None else 302)
                    if said is not None:
                        self.send_header("Location", said)
                    self.end_headers()
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"

    def has(self, *listed):
        self.said = json.dumps({"keys": list(listed)}).encode()


@pytest.fixture
def provider(keys):
    made = Provider()
    made.has(jwk_of(keys["one"], "one"))
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def world(provider):
    runtime = Clock()
    settings = JwtSettings(issuer="https://idp", audience="ballista", jwks_url=provider.url)
    return runtime, JwtTokens(settings, runtime)


def signed(runtime, key, kid="one", algorithm="RS256", headers=None, **claims):
    now = int(runtime.wall_ms() / 1e3)
    said = {"iss": "https://idp", "aud": "ballista", "sub": "anna", "exp": now + 600, "groups": ["emea", "staff"]}
    said = {name: value for name, value in {**said, **claims}.items() if value is not None}
    return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid, **(headers or {})})


def test_a_good_token_gives_name_and_groups_and_asks_once(world, keys, provider):
    runtime, tokens = world
    for _ in range(3):
        found = tokens.verify(signed(runtime, keys["one"]))
        assert found == "anna"
        assert found.groups == ("emea", "staff")
        assert found.token is not None
        assert "ey" not in repr((found, found.token))
    assert provider.asked == 1
    assert tokens.verify(signed(runtime, keys["one"], groups=None)).groups == ()


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "other"}, "another audience"), ({"aud": None}, "for whom"),
        ({"iss": "https://evil"}, "another issuer"),
        ({"iss": None}, "by whom"), ({"exp": None}, "when it ends"), ({"exp": 1}, "its time is over"),
        ({"exp": "9999999999"}, "no time"), ({"exp": True}, "no time"), ({"exp": 1e300}, "no time"),
        ({"nbf": 9_999_999_999}, "has not come"), ({"iat": 9_999_999_999}, "has not come"),
        ({"sub": None}, "no client"),
        ({"sub": 7}, "no client"), ({"sub": "user:x"}, "does not begin"), ({"sub": "cluster refresh"}, "no blank"),
        ({"sub": "a\x1b[0m"}, "printed"), ({"sub": ""}, "1 to 256"), ({"sub": "x" * 300}, "1 to 256"),
        ({"groups": "emea"}, "no list"), ({"groups": [7]}, "no name"), ({"groups": ["g"] * 300}, "no list"),
        ({"groups": ["user:root"]}, "user:"), ({"groups": ["*"]}, "'\\*'"),
    ],
)  # fmt: skip
def test_a_token_with_wrong_claims_is_refused_by_name(world, keys, claims, said):
    runtime, tokens = world
    with pytest.raises(Unauthenticated, match=said):
        tokens.verify(signed(runtime, keys["one"], **claims))


def test_clocks_may_differ_by_the_leeway_and_no_more(world, keys):
    runtime, tokens = world
    now = int(runtime.wall_ms() / 1e3)
    assert tokens.verify(signed(runtime, keys["one"], exp=now - 50, nbf=now + 50)) == "anna"
    for claims in ({"exp": now - 70}, {"nbf": now + 70}):
        with pytest.raises(Unauthenticated):
            tokens.verify(signed(runtime, keys["one"], **claims))


def b64(data):
    return (
        base64.urlsafe_b64encode(data if isinstance(data, bytes) else json.dumps(data).encode())
        .rstrip(b"=")
        .decode()
    )


def by_hand(runtime, header, sign):
    now = int(runtime.wall_ms() / 1e3)
    body = {"iss": "https://idp", "aud": "ballista", "sub": "root", "exp": now + 600}
    text = f"{b64(header)}.{b64(body)}"
    return f"{text}.{b64(sign(text.encode()))}"


def test_no_algorithm_counts_but_those_that_are_allowed(world, keys, curve, provider):
    runtime, tokens = world
    provider.has(
        jwk_of(keys["one"], "one"), jwk_of(curve, "ec"), {"kty": "oct", "k": b64(b"shared"), "kid": "oct"}
    )
    public = (
        keys["one"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    forged = [
        by_hand(runtime, {"alg": "none", "kid": "one"}, lambda _: b""),
        by_hand(runtime, {"alg": "None", "kid": "one"}, lambda _: b""),
        by_hand(runtime, {"kid": "one"}, lambda _: b""),
        by_hand(runtime, {"alg": "HS256", "kid": "one"}, lambda text: hmac.digest(public, text, hashlib.sha256)),
        by_hand(runtime, {"alg": "HS256", "kid": "oct"}, lambda text: hmac.digest(b"shared", text, hashlib.sha256)),
        by_hand(runtime, {"alg": ["RS256"], "kid": "one"}, lambda _: b"x"),
        by_hand(runtime, {"alg": "RS256", "kid": "ec"}, lambda _: b"x"),
        by_hand(runtime, {"alg": "ES256", "kid": "one"}, lambda _: b"x" * 64),
        by_hand(runtime, {"alg": "RS256", "kid": "one"}, lambda _: b""),
        by_hand(runtime, {"alg": "RS256", "kid": 7}, lambda _: b"x"),
        by_hand(runtime, {"alg": "RS256", "kid": "one", "crit": ["exp"]}, lambda _: b"x"),
        signed(runtime, keys["two"]),
        signed(runtime, keys["one"], algorithm="RS512"),
        signed(runtime, keys["one"], algorithm="PS256"),
        "", "a.b", "a.b.c", "..", "\0.\0.\0", "é.é.é", "e30.e30.e30", "x" * 20_000, signed(runtime, keys["one"]) + "x",
    ]  # fmt: skip
    for token in forged:
        with pytest.raises(Unauthenticated, match="the token is not valid"):
            tokens.verify(token)
    assert tokens.verify(signed(runtime, curve, "ec", "ES256")) == "anna"


def test_a_key_in_the_header_of_a_token_is_not_believed(world, keys):
    runtime, tokens = world
    own = jwk_of(keys["two"], "mine")
    for headers in ({"jwk": own}, {"jku": "http://127.0.0.1:1/keys"}, {"x5c": ["x"]}):
        with pytest.raises(Unauthenticated):
            tokens.verify(signed(runtime, keys["two"], "mine", headers=headers))


@pytest.mark.parametrize("part", [0, 1])
def test_a_token_that_says_something_twice_is_refused_though_its_key_signed_it(world, keys, part):
    """Of two readers one might believe the first and one the last."""
    runtime, tokens = world

    def padded(text):
        return text + "=" * (-len(text) % 4)

    parts = signed(runtime, keys["one"]).split(".")[:2]
    said = base64.urlsafe_b64decode(padded(parts[part])).decode()
    again = ('"alg":"RS256","alg":"none",', '"groups":["ops"],')[part]
    parts[part] = base64.urlsafe_b64encode(("{" + again + said[1:]).encode()).rstrip(b"=").decode()
    text = ".".join(parts)
    made = keys["one"].sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(Unauthenticated, match="it says something twice"):
        tokens.verify(f"{text}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}")


def test_keys_rotate_and_one_that_is_taken_out_counts_no_more(world, keys, provider):
    runtime, tokens = world
    assert tokens.verify(signed(runtime, keys["one"])) == "anna"
    provider.has(jwk_of(keys["one"], "one"), jwk_of(keys["two"], "two"))
    runtime.sleep_ms(FETCH_AGAIN_MS)
    assert tokens.verify(signed(runtime, keys["two"], "two")) == "anna"
    provider.has(jwk_of(keys["two"], "two"))
    runtime.sleep_ms(REFRESH_MS)
    with pytest.raises(Unauthenticated, match="no such key"):
        tokens.verify(signed(runtime, keys["one"]))
    assert tokens.verify(signed(runtime, keys["two"], "two")) == "anna"


def test_tokens_that_name_unknown_keys_do_not_have_the_provider_asked_each_time(world, keys, provider):
    runtime, tokens = world
    for number in range(50):
        with pytest.raises(Unauthenticated):
            tokens.verify(signed(runtime, keys["two"], f"made up {number}"))
    assert provider.asked == 1


def test_while_the_provider_is_away_known_keys_count_for_an_hour_and_no_longer(world, keys, provider):
    runtime, tokens = world
    assert tokens.verify(signed(runtime, keys["one"])) == "anna"
    for gone in (None, b"{}", b"no json", b" " * (MAX_JWKS_BYTES + 2), f"{provider.url}/elsewhere"):
        provider.said = gone
        runtime.sleep_ms(REFRESH_MS)
        assert tokens.verify(signed(runtime, keys["one"])) == "anna"
    runtime.sleep_ms(KEPT_MS)
    with pytest.raises(Unauthenticated, match="cannot be reached"):
        tokens.verify(signed(runtime, keys["one"]))
    provider.has(jwk_of(keys["one"], "one"))
    runtime.sleep_ms(FETCH_AGAIN_MS)
    assert tokens.verify(signed(runtime, keys["one"])) == "anna"


def test_a_provider_that_sends_elsewhere_is_not_followed(provider):
    provider.said = f"{provider.url}/elsewhere"
    with pytest.raises(OSError, match="302"):
        fetched(provider.url)
    assert provider.asked == 1


def test_keys_that_are_weak_or_for_something_else_are_none(keys, small):
    listed = [
        jwk_of(small, "small"), jwk_of(keys["one"], "enc", use="enc"), {"kty": "RSA", "kid": "broken", "n": "?"}, 7,
        {"kty": "oct", "k": "AAAA", "kid": "oct"}, jwk_of(keys["one"], 5), jwk_of(keys["two"], "good", use="sig"),
    ]  # fmt: skip
    assert list(keys_of(json.dumps({"keys": listed}).encode())) == ["good"]
    for wrong in (b"[]", b'{"keys": {}}', json.dumps({"keys": [{}] * 200}).encode(), b"\xff"):
        with pytest.raises(ConfigError):
            keys_of(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithms": ("none",)}, {"algorithms": ("HS256",)}, {"algorithms": ()}, {"jwks_url": "http://idp/keys"},
        {"jwks_url": "file:///etc/passwd"}, {"audience": ""}, {"issuer": ""}, {"leeway_s": 301}, {"leeway_s": -1},
    ],
)  # fmt: skip
def test_settings_that_would_let_in_whoever_asks_are_refused(wrong):
    with pytest.raises(ConfigError):
        JwtSettings(**{"issuer": "i", "audience": "a", "jwks_url": "https://idp/keys", **wrong})
