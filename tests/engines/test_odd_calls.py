"""No call of a function that clients may use ends the process of the engine."""

import os

from ballista_py.runtime import SystemRuntime
from ballista_py.sql.bind.engine_functions import engine_functions
from ballista_py.testing.sql.odd_calls import allowed, calls, crashing


def test_no_call_of_an_allowed_function_ends_the_process():
    seed = int(os.environ.get("BALLISTA_SIM_FIRST_SEED", SystemRuntime().wall_ms()))
    assert crashing(list(calls(allowed(), seed, 800))) is None, f"seed {seed}"


def test_one_that_ends_it_is_found_behind_others_that_fail():
    harmless = ['select "abs"(c1) from odd', 'select "nosuch"() from odd', """select "="(c0, 'x')"""]
    fatal = "select \"=\"({'x': 1}, 1)"
    assert crashing([*harmless, fatal, *harmless]) == fatal
    comparisons = [one for one in engine_functions() if one.name in ("=", "<")]
    assert crashing(list(calls(comparisons, 1, 200))) is not None
