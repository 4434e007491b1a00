"""The table that leads from a spicepod to an application file says what the reader does, field by field."""

from __future__ import annotations

import re
from pathlib import Path

from ballista_py.coordinator.app.fields import walk

PAGE = Path(__file__).parents[2] / "docs" / "from-spice.md"
FIELDS = dict(walk())
# What a spicepod says below the sections that this page goes through, as its reference names them.
ACCELERATION = {
    "enabled", "engine", "engine_secret", "indexes", "metrics", "mode", "on_conflict", "on_zero_results", "params",
    "partition_by", "primary_key", "ready_state", "refresh_append_overlap", "refresh_check_interval", "refresh_cron",
    "refresh_data_window", "refresh_jitter_enabled", "refresh_jitter_max", "refresh_mode", "refresh_on_startup",
    "refresh_retry_enabled", "refresh_retry_max_attempts", "refresh_sql", "retention_check_enabled",
    "retention_check_interval", "retention_period", "retention_sql", "snapshots", "snapshots_compaction",
    "snapshots_trigger", "snapshots_trigger_threshold", "write_mode",
}  # fmt: skip


def rows(title: str | None = None) -> dict[str, str]:
    text = PAGE.read_text()
    parts = text.split("\n## ")
    part = parts[0] if title is None else next(one for one in parts if one.startswith(title))
    return dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", part, re.MULTILINE))


def test_each_field_that_the_reader_knows_is_in_the_table_that_it_belongs_to():
    assert {path for path, field in FIELDS.items() if not field.ours} <= rows().keys()
    assert {path for path, field in FIELDS.items() if field.ours} == rows("What a spicepod does not have").keys()


def test_what_the_table_takes_the_reader_takes_and_what_it_refuses_is_refused_in_the_same_words():
    for path, said in rows().items():
        if said.startswith("the same"):
            assert path in FIELDS
            assert not FIELDS[path].refused, path
            assert FIELDS[path].help in said
            continue
        assert said.startswith("none: "), path
        assert said.removeprefix("none: ") == FIELDS[path].refused, path


def test_every_field_of_accelerations_is_there_for_datasets_and_for_views():
    for above in ("datasets[].acceleration.", "views[].acceleration."):
        assert {path.removeprefix(above) for path in rows() if path.startswith(above)} == ACCELERATION
