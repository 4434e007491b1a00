"""Several who apply one file from outside at once: each is told that it is applied, and it is applied once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ballista_py.node.app_file import read_app_file
from ballista_py.node.app_outside import applier_of, apply_app

FILE = """\
version: v1
name: shop
revision: {revision}
datasets:
"""
DATASET = """\
  - name: t{number}
    columns: [{{name: id, type: bigint}}{more}]
    acceleration: {{partition_by: ["bucket(2, id)"]}}
"""


def apply(path, state):
    file = read_app_file(path)
    with applier_of(file, state, {}, None) as applier:
        return apply_app(file, applier), applier.tables.cluster()


def test_two_with_one_file_take_over_from_one_another_and_both_end_well(tmp_path):
    state = (tmp_path / "state").as_uri()
    for revision, more in ((1, ""), (2, ", {name: more, type: varchar}")):
        path = tmp_path / f"app{revision}.yaml"
        datasets = "".join(DATASET.format(number=number, more=more) for number in range(5))
        path.write_text(FILE.format(revision=revision) + datasets)
        with ThreadPoolExecutor(3) as threads:
            found = list(threads.map(apply, [path] * 3, [state] * 3))
        assert [applied.standing for applied, _ in found] == ["applied"] * 3, [a.problems for a, _ in found]
        made = [change.dataset for applied, _ in found for change in applied.changes]
        assert sorted(made) == sorted(f"t{number}" for number in range(5)), "each change is made by one of them"
    _, cluster = found[0]
    assert cluster.app.complete
    assert {len(table.schema) for table in cluster.tables.values()} == {2}
