"""A seed is a whole hour: the same one gives the same history byte for byte, in any process."""

import os
import subprocess
import sys

from ballista_py.testing.simulation.simulation import Simulation

_DIGEST = """
from ballista_py.testing.simulation.simulation import Simulation
print(Simulation(7, hours=0.05).run().history.digest())
"""


def _digest_in_another_process(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    run = subprocess.run(
        [sys.executable, "-c", _DIGEST], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return run.stdout.strip()


def test_the_same_seed_replays_byte_for_byte():
    first, second = (list(Simulation(5, hours=0.05).run().history.lines()) for _ in range(2))
    assert first == second
    assert len(first) > 1_000


def test_a_seed_replays_in_another_process_under_another_hash_seed():
    assert _digest_in_another_process("1") == _digest_in_another_process("2")


def test_another_seed_is_another_history():
    assert Simulation(1, hours=0.02).run().history.digest() != Simulation(2, hours=0.02).run().history.digest()
