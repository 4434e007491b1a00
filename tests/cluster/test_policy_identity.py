"""Clients of an identity provider at a cluster with TLS: who they are, in which groups, and until when."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ballista_py import LocalCluster, connect
from ballista_py.errors import BallistaError, SqlError, Unauthenticated

pytestmark = pytest.mark.cluster
ROOT = "root-token-0123456789abcdef"
APP = """
version: v1
name: shop
revision: 1
datasets:
  - name: orders
    columns: [{name: id, type: bigint}, {name: region, type: varchar}]
    acceleration: {partition_by: ["bucket(4, id)"]}
policies:
  operators: [ops]
  grants: [{to: [staff], may: [select], tables: [orders]}]
  rows: [{tables: [orders], where: "list_contains(current_groups(), region)"}]
"""


@pytest.fixture(scope="module")
def key():
    return rsa.generate_private_key(65537, 2048)


@pytest.fixture(scope="module")
def provider(key):
    said = {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": "one"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": [said]}).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/keys"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def cluster(provider, tmp_path_factory):
    folder = tmp_path_factory.mktemp("identity")
    (folder / "tokens").write_text(f"root {ROOT} groups=ops\n")
    (folder / "jwt.yaml").write_text(
        f"issuer: https://idp\naudience: ballista\njwks_url: {provider}\nleeway_s: 0\n"
    )
    (folder / "app.yaml").write_text(APP)
    options = {"flight-tokens-file": str(folder / "tokens"), "flight-jwt-file": str(folder / "jwt.yaml")}
    with LocalCluster(
        schedulers=1, executors=1, app=folder / "app.yaml", token=ROOT, node_options=options, tls=True
    ) as cluster:
        cluster.sql("insert into orders values (1, 'emea'), (2, 'apac'), (3, 'emea')")
        yield cluster


def signed(key, groups=(), lasts=600, **claims):
    said = {
        "iss": "https://idp",
        "aud": "ballista",
        "sub": "anna",
        "exp": int(time.time()) + lasts,
        "groups": list(groups),
    }
    return jwt.encode({**said, **claims}, key, "RS256", headers={"kid": "one"})


def asked(cluster, token, sql="select id from orders order by id"):
    with connect(f"grpc+tls://{cluster.addresses()[0]}", token=token, tls=cluster.tls) as client:
        return client.sql(sql)["id"].to_pylist()


def test_groups_of_a_token_decide_over_tls_as_well(cluster, key):
    assert asked(cluster, ROOT) == [1, 2, 3]
    assert asked(cluster, signed(key, ["staff", "emea"])) == [1, 3]
    assert asked(cluster, signed(key, ["staff"])) == []
    with pytest.raises(SqlError, match="do not let client 'anna'"):
        asked(cluster, signed(key, ["emea"]))
    assert asked(cluster, signed(key, ["ops"])) == [1, 2, 3]


def test_tokens_of_others_or_of_yesterday_are_refused_at_the_door(cluster, key):
    other = rsa.generate_private_key(65537, 2048)
    for token in (signed(other, ["ops"]), signed(key, ["ops"], lasts=-1), signed(key, ["ops"], aud="other")):
        with pytest.raises(Unauthenticated, match="not valid"):
            asked(cluster, token)


def test_a_token_that_ends_opens_nothing_from_then_on(cluster, key):
    token = signed(key, ["staff", "emea"], lasts=4)
    with connect(f"grpc+tls://{cluster.addresses()[0]}", token=token, tls=cluster.tls) as client:
        assert client.sql("select count(*) as n from orders")["n"].to_pylist() == [2]
        time.sleep(5)
        with pytest.raises(BallistaError, match="its time is over"):
            client.sql("select count(*) as n from orders")
