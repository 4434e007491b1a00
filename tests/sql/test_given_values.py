"""Which value is meant by which parameter: by exact names, or in order, and never one for the other."""

from __future__ import annotations

from itertools import permutations

import pytest

from ballista_py.errors import SqlError
from ballista_py.sql.parse.given_values import columns_of, marked


@pytest.mark.parametrize("mark", [str, marked])
def test_names_may_come_in_any_order_with_and_without_their_sign(mark):
    for given in permutations(["a", "b", "c"]):
        found = columns_of(["a", "b", "c"], [mark(name) for name in given])
        assert [given[place] for place in found] == ["a", "b", "c"]


@pytest.mark.parametrize("given", [["0", "1"], ["1", "2"], ["2", "1"], ["", ""], ["id", "id"], ["x", "y"]])
def test_what_drivers_call_columns_is_nothing_to_a_statement_without_names(given):
    assert columns_of(["1", "2"], given) == (0, 1)


@pytest.mark.parametrize(
    ("names", "given", "said"),
    [
        (["name"], ["$nmae"], "$name has no value; the statement has no parameter $nmae: did you mean '$name'?"),
        (["name"], ["nmae"], "the statement has no parameter $nmae: did you mean '$name'?"),
        (["Name"], ["$name"], "did you mean '$Name'?"),
        (["a", "b"], ["$a"], "$b has no value"),
        (["a", "b", "c"], ["$a"], "$b, $c have no value"),
        (["a"], ["$a", "$zzz"], "the statement has no parameter $zzz"),
        (["a"], ["$a", "a"], "$a was given twice"),
        (["a", "b"], ["$a", "$a", "$b", "$b"], "$a, $b were given twice"),
        (["a"], ["0"], "have names: give values by name, for $a, not a list"),
        (["a", "b"], ["1", "2"], "for $a, $b, not a list"),
        (["a"], [""], "not a list"),
        (["1"], ["$1"], "have no names, so values for them are given in a list, in order: 1 of them"),
        (["1"], ["$id"], "have no names"),
        (["1", "2"], ["0"], "the statement has 2 parameter(s), 1 values were bound"),
        (["a"], ["$\x1b[31mred"], "the statement has no parameter $red"),
        (["a"], [f"$x{i}" for i in range(9)], "$x0, $x1, $x2, $x3, $x4 and 4 more"),
    ],
)
def test_values_that_are_not_those_of_the_parameters_are_told(names, given, said):
    with pytest.raises(SqlError) as caught:
        columns_of(names, given)
    assert said in str(caught.value)


def test_what_is_told_is_short_whatever_was_sent():
    with pytest.raises(SqlError) as caught:
        columns_of(["a"], ["$" + "x" * 1_000_000] * 2 + [f"$y{i}" for i in range(50_000)])
    assert len(str(caught.value)) < 1_000
