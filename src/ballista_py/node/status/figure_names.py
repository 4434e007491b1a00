"""Every counter and histogram of a node: its labels, what it means and when it moves (`docs/guide-observing.md`).

Units are in the names. Labels have few values: roles, outcomes, verbs, names of tables, codes of errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

MS_BUCKETS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
COUNT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
NODE_LABELS = ("node_id", "role")


@frozen
class Figure:
    """What is counted, or with `buckets` measured. `of_node` adds the labels `NODE_LABELS`."""

    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    of_node: bool = False


def _counter(text: str, *labels: str) -> Figure:
    return Figure(text, labels)


def _of_node(text: str, *labels: str) -> Figure:
    return Figure(text, labels, of_node=True)


def _ms(text: str, *labels: str) -> Figure:
    return Figure(text, labels, MS_BUCKETS)


_BOTH: Mapping[str, Figure] = {
    "node_tasks_total": _of_node("Statements, changes, legs and writes that ended.", "status"),
    "node_task_failures": _of_node("Tasks that failed, by the code of the error.", "error_type"),
    "node_task_retries": _of_node("Statements planned again, and legs sent again to another executor."),
    "node_task_rows": _counter("Rows that tasks gave or affected.", "kind"),
    "node_fences_hit": _counter("How often this node found that it is no member any more."),
    "store_requests": _counter("Requests to the object store.", "verb", "outcome"),
    "store_request_duration_ms": _ms("How long requests to the object store took.", "verb"),
}
_SCHEDULER: Mapping[str, Figure] = {
    "scheduler_statement_duration_ms": _ms("How long statements and changes took.", "kind"),
    "scheduler_planning_duration_ms": _ms(
        "How long it took to plan; cached: by a plan or a template kept.", "cached"
    ),
    "scheduler_task_scheduling_latency_ms": _ms("From a plan to the first leg that an executor accepted."),
    "scheduler_stages_total": _counter("Stages that began: a round of legs, a broadcast, a merge.", "kind"),
    "scheduler_stage_failures": _counter("Stages that failed.", "kind"),
    "scheduler_stage_retries": _counter(
        "Rounds of stages that were begun again because a plan had to be made anew."
    ),
    "scheduler_stage_duration_ms": _ms("How long stages took.", "kind"),
    "scheduler_tasks_per_stage": Figure("Legs of each round or broadcast.", (), COUNT_BUCKETS),
    "scheduler_executor_assignments": _counter("Partitions given to an executor by a commit.", "table"),
    "scheduler_epochs_raised": _counter("Epochs raised by commits: partitions with a new owner.", "table"),
    "scheduler_result_fetch_count": _counter("Chunks of answers given to clients."),
    "scheduler_result_fetch_rows": _counter("Rows of answers given to clients."),
    "scheduler_result_fetch_bytes": _counter("Bytes of answers given to clients, in memory."),
    "scheduler_result_fetch_duration_ms": _ms("How long clients took for a chunk of an answer."),
    "scheduler_shipped_bytes": _counter("Bytes that statements moved between executors and this scheduler."),
    "scheduler_history_dropped": _counter("Tasks that the table of the history had no room for in time."),
    "dataset_acceleration_refresh_total": _counter("Refreshes that ended.", "table", "mode"),
    "dataset_acceleration_refresh_failures": _counter("Refreshes that failed.", "table", "mode"),
    "dataset_acceleration_refresh_rows": _counter("Rows that refreshes brought.", "table", "mode"),
    "dataset_acceleration_refresh_bytes": _counter("Bytes of files that refreshes wrote.", "table", "mode"),
    "dataset_acceleration_refresh_duration_ms": _ms("How long refreshes took.", "table", "mode"),
    "dataset_write_through_total": _counter(
        "Statements that were written to the source of a table, or had been before.", "table", "outcome"
    ),
    "dataset_write_through_rows": _counter("Rows that they changed.", "table"),
    "dataset_write_through_conflicts": _counter(
        "Times that one was computed anew, because rows had changed at the source.", "table"
    ),
    "dataset_write_through_duration_ms": _ms("How long they took, until the source had them.", "table"),
    "dataset_write_through_visible_duration_ms": _ms("How long they then took to be visible.", "table"),
    "scheduler_collected_objects": _counter("Tokens and kept answers of long ago that were removed."),
}
_EXECUTOR: Mapping[str, Figure] = {
    "executor_tasks_total": _of_node("Legs and writes that ended.", "status"),
    "executor_task_failures": _of_node("Legs and writes that failed, by the code of the error.", "error_type"),
    "executor_task_duration_ms": _ms("How long legs and writes took.", "kind"),
    "executor_compactions": _counter("Merges of small files.", "table"),
    "executor_compacted_files": _counter("Small files that were merged.", "table"),
    "dataset_acceleration_snapshot_bootstrap_bytes": _counter("Bytes of partitions that were loaded.", "table"),
    "dataset_acceleration_snapshot_bootstrap_duration_ms": _ms("How long loading partitions took.", "table"),
    "dataset_acceleration_snapshot_bootstrap_failures": _counter("Partitions that could not be loaded.", "table"),
    "dataset_acceleration_snapshot_write_bytes": _counter("Bytes of data files that owners wrote.", "table"),
    "dataset_acceleration_snapshot_write_duration_ms": _ms("How long writing a data file took.", "table"),
    "dataset_acceleration_snapshot_write_failures": _counter("Data files that could not be written.", "table"),
}
FIGURES: Mapping[str, Mapping[str, Figure]] = {
    "scheduler": {**_BOTH, **_SCHEDULER},
    "executor": {**_BOTH, **_EXECUTOR},
}
NOT_YET: Mapping[str, str] = {  # of the contract, and what has to be there first
    "executor_shuffle_write_bytes": "shuffles between executors",
    "executor_shuffle_write_rows": "shuffles between executors",
    "executor_shuffle_write_duration_ms": "shuffles between executors",
    "executor_shuffle_read_local_*": "shuffles between executors",
    "executor_shuffle_read_remote_*": "shuffles between executors",
}
