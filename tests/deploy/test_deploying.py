"""What lies in deploy/ is read by the programs that it is for, and tells nodes what nodes understand."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ballista_py.errors import ConfigError
from ballista_py.node.config import load_config
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.certificates import CertificateFolder

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".venv" / "deploy" / "bin"
STORE = {"store": {"location": "s3://bucket/cluster"}}
VALUES = [
    {**STORE, "tokensSecret": "tokens", "serviceMonitor": {"enabled": True}, "openMetrics": True},
    {
        "store": {"location": "gs://bucket/cluster", "secret": "keys"},
        "tls": {"mode": "none"},
        "antiAffinity": "required",
        "scheduler": {"replicas": 3, "config": {"replicas": 2, "statement_timeout_ms": "5m"}},
        "executor": {"replicas": 5, "storageClass": "fast", "config": {"labels": {"zone": "a"}}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "serviceAccount": {"create": False, "name": "mine"},
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    },
]


def tool(name: str) -> str:
    if not (TOOLS / name).exists():
        reason = "what checks deploy/ is not installed: scripts/bootstrap.py dev"
        pytest.fail(reason) if os.environ.get("BALLISTA_REQUIRE_SERVERS") == "1" else pytest.skip(reason)
    return str(TOOLS / name)


def render(values):
    return subprocess.run(
        [tool("python"), str(Path(__file__).with_name("render_chart.py")), str(DEPLOY / "helm" / "ballista-py")],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )


@pytest.fixture(scope="module")
def objects():
    done = render(VALUES)
    assert done.returncode == 0, done.stderr
    return [
        {(one["kind"], one["metadata"]["name"]): one for one in group}
        for group in json.loads(done.stdout)["objects"]
    ]


def told(words: list[str], file: Path | None = None):
    """What a node makes of these words of its command line."""
    assert words[0] == "node", words
    given = {}
    for flag, value in pairs(words[1:]):
        name = flag.removeprefix("--").replace("-", "_")
        if name == "config":
            continue
        if name == "scheduler_address":
            value = [*given.get(name, []), value]
        given[name] = value
    return load_config(None if file is None else str(file), given)


def pairs(words: list[str]):
    rest = list(words)
    while rest:
        flag = rest.pop(0)
        yield flag, rest.pop(0) if rest and not rest[0].startswith("--") else True


@pytest.mark.parametrize("number", range(len(VALUES)))
@pytest.mark.parametrize("role", ["scheduler", "executor"])
def test_pods_of_the_chart_tell_nodes_what_they_understand(objects, number, role, tmp_path):
    made, values = objects[number], VALUES[number]
    name = "prod-ballista-py"
    stateful = made["StatefulSet", f"{name}-{role}"]["spec"]
    (container,) = stateful["template"]["spec"]["containers"]
    config = tmp_path / f"{role}.yaml"
    config.write_text(made["ConfigMap", name]["data"][f"{role}.yaml"])
    pod = f"{name}-{role}-0"
    words = [word.replace("$(POD_NAME)", pod) for word in container["args"]]
    assert words[words.index("--config") + 1] == f"/etc/ballista/{role}.yaml"
    node = told(words, config)
    assert (node.role, node.node_id, node.drain_timeout_ms) == (role, pod, 25_000)
    assert node.node_advertise_address == f"{pod}.{name}-{role}.data.svc"
    assert node.allow_insecure_connections == (number == 1)
    assert stateful["template"]["spec"]["terminationGracePeriodSeconds"] * 1_000 >= node.drain_timeout_ms + 12_000
    assert stateful["serviceName"] == f"{name}-{role}"
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    shown = {"scheduler": ("flight", "control"), "executor": ("data", "parts")}[role]
    assert ports == {port: getattr(node, f"{port}_port") for port in (*shown, "http", "metrics")}
    for probe, path in (("livenessProbe", "/health"), ("readinessProbe", "/ready"), ("startupProbe", "/health")):
        asked = container[probe]["httpGet"]
        assert (asked["path"], asked["scheme"]) == (path, "HTTP" if number else "HTTPS")
    held = files_of(stateful["template"]["spec"], made, container["volumeMounts"])
    files = [value for field, value in vars_of(node).items() if field.endswith("_file") and value]
    assert set(files) <= held, (files, held)
    assert len(files) == {0: 5, 1: 0}[number]
    if role == "executor":
        schedulers = values.get("scheduler", {}).get("replicas", 2)
        assert node.scheduler_address == tuple(
            f"{name}-scheduler-{one}.{name}-scheduler.data.svc:{50052}" for one in range(schedulers)
        )
    selector = made["PodDisruptionBudget", f"{name}-{role}"]["spec"]["selector"]["matchLabels"]
    assert selector.items() <= stateful["template"]["metadata"]["labels"].items()
    assert selector.items() <= stateful["selector"]["matchLabels"].items()


def files_of(pod, made, mounts) -> set[str]:
    """The files that a pod has, by what fills its volumes."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    found = set()
    for mount in mounts:
        volume = volumes.get(mount["name"], {})
        if "configMap" in volume:
            names = list(made["ConfigMap", volume["configMap"]["name"]]["data"])
        elif volume.get("csi", {}).get("driver") == "csi.cert-manager.io":
            told = volume["csi"]["volumeAttributes"]
            names = [
                told.get(f"csi.cert-manager.io/{what}-file", default)
                for what, default in (("ca", "ca.crt"), ("certificate", "tls.crt"), ("privatekey", "tls.key"))
            ]
        else:
            names = ["tokens"] if "secret" in volume else []  # the key that values.yaml asks for
        found |= {f"{mount['mountPath']}/{name}" for name in names}
    return found


def vars_of(node):
    return {name: getattr(node, name) for name in node.__slots__ if not name.startswith("__")}


def test_each_pod_has_a_certificate_that_names_its_role_first(objects):
    for role in ("scheduler", "executor"):
        pod = objects[0]["StatefulSet", f"prod-ballista-py-{role}"]["spec"]["template"]["spec"]
        (volume,) = (one for one in pod["volumes"] if "csi" in one)
        names = volume["csi"]["volumeAttributes"]["csi.cert-manager.io/dns-names"].split(",")
        assert names[0] == f"${{POD_NAME}}.{role}.ballista"
        assert f"${{POD_NAME}}.prod-ballista-py-{role}.${{POD_NAMESPACE}}.svc" in names


def test_a_chart_without_a_store_says_what_is_missing():
    done = render([{}])
    assert done.returncode != 0
    assert "store.location" in done.stderr


def test_compose_reads_its_file_and_nodes_their_commands(tmp_path):
    podman = tmp_path / "podman"  # which podman-compose asks for its version before it reads anything
    podman.write_text("#!/bin/sh\necho podman version 5.0.0\n")
    podman.chmod(0o755)
    done = subprocess.run(
        [tool("podman-compose"), "--podman-path", str(podman), "-f", str(DEPLOY / "compose.yaml"), "config"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    nodes = [name for name in services if re.fullmatch(r"(scheduler|executor)-\d", name)]
    assert len(nodes) == 5
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    scraped = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert sorted(scraped) == sorted(f"{name}:9090" for name in nodes)
    (made,) = services["certificates"]["command"]
    assert all(name in made for name in nodes)
    for name in nodes:
        (command,) = services[name]["command"]
        words = shlex.split(command.replace("$$HOSTNAME", name).replace("$HOSTNAME", name))
        assert words[:2] == ["exec", "ballista-py"]
        node = told(words[2:])
        assert (node.node_id, node.role) == (name, name.partition("-")[0])
        assert node.node_advertise_address == services[name]["hostname"]
        assert node.node_mtls_certificate_file == f"/certificates/nodes/{name}/certificate.pem"
        grace = int(services[name]["stop_grace_period"].removesuffix("s"))
        assert grace * 1_000 >= node.drain_timeout_ms + 12_000


@pytest.mark.parametrize("file", sorted((DEPLOY / "systemd").glob("*.yaml")), ids=lambda file: file.stem)
def test_configurations_for_systemd_are_understood(file):
    node = load_config(str(file), {})
    assert node.node_id == file.stem
    folder = CertificateFolder(Path("/etc/ballista-py/tls"), SystemRuntime())  # as `cluster tls` writes it there
    assert node.node_tls() == folder.tls(file.stem)
    assert node.node_mtls_removed_file == str(folder.removed_file)
    with pytest.raises(ConfigError):
        load_config(str(file), {"role": "nothing"})


def test_systemd_takes_the_unit(tmp_path):
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not on this machine")
    unit = (DEPLOY / "systemd" / "ballista-py@.service").read_text()
    copy = tmp_path / "ballista-py@.service"
    copy.write_text(unit.replace("/opt/ballista/bin/ballista-py", "/bin/true"))
    done = subprocess.run([verify, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    copy.write_text(copy.read_text().replace("KillMode=mixed", "KillMode=sometimes"))
    done = subprocess.run([verify, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert "KillMode" in done.stderr or "kill mode" in done.stderr.lower()
