"""A cluster over two networks, whose link goes down and comes up again, where the machine allows networks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster
SCRIPT = Path(__file__).with_name("two_networks.py")
BACK_WITHIN_S = 15


def why_not() -> str | None:
    """What keeps this machine from having networks of its own."""
    for tool, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        if shutil.which(tool) is None:
            return f"'{tool}' is not installed: apt-get install {package}"
    tried = subprocess.run(
        ["unshare", "-rn", "unshare", "-n", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"it may not be: {tried.stderr.strip()}"


@pytest.mark.long
def test_a_link_between_two_networks_goes_down_and_comes_up_and_nothing_is_wrong_or_lost(tmp_path):
    reason = why_not()
    if reason is not None:
        warnings.warn(f"no cluster over two networks was tried: {reason}", stacklevel=1)
        pytest.skip(reason)
    ran = subprocess.run(
        ["unshare", "-rn", sys.executable, str(SCRIPT), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2_000:]
    found = json.loads(ran.stdout)
    assert set(found) == {"near end down", "far end down", "one way lost"}
    for name, fault in found.items():
        assert fault["wrong"] == 0, name
        assert fault["right"] > 0, name
        assert fault["rows"] > 0, name
        assert fault["complete"], name
        assert not fault["hangs"], name
        assert fault["back_s"] < BACK_WITHIN_S, (name, fault)
