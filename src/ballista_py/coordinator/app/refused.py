"""What a spicepod may say and an application file may not, with what to do instead: words only."""

from __future__ import annotations

_REFRESH = (
    "say how often with refresh_check_interval: what failed is tried again at once, then less and less often"
)
_RETENTION = "say it in SQL: retention_sql: DELETE FROM t WHERE created_at < now() - INTERVAL 30 DAY"
_SNAPSHOTS = "the files of every table lie on the object store already: there is nothing to take a snapshot of"
_ENGINE = "every table has the engine of its executors: start those with --engine duckdb or --engine polars"
_READY = "a dataset is ready once its partitions are loaded: see ballista-py tables"
_SEMANTIC = "nothing reads it here: leave it out"
_SEARCH = "there is no search and there are no models here: leave it out"
_FEDERATED = "no query is sent on to a source here: leave it out"
_TYPES = (
    "a column of a type that cannot be kept is an error: leave it out, and cast or drop the column in the source"
)
_TIME = "a time column is a date, a timestamp or an integer of the source: leave it out"
_TLS = (
    "it is each node's own: give it to the node, as --node-mtls-certificate-file or --flight-tls-certificate-file"
)
_MEMORY = "it is each node's own: give it to the node, as --memory-limit, --data-dir and --threads"

TOP = {
    "kind": "this is no spicepod: leave it out",
    "management": "nothing manages a cluster from outside: leave it out",
    "snapshots": _SNAPSHOTS,
    "extensions": "there are no extensions: leave it out",
    "secrets": "secrets are in the schedulers' own --secrets-file: leave it out, and refer to them as ${secrets:name}",
    "metadata": _SEMANTIC,
    "catalogs": "a catalog cannot be mounted: name its tables as datasets",
    "models": _SEARCH,
    "embeddings": _SEARCH,
    "rerankers": _SEARCH,
    "search_engines": _SEARCH,
    "tools": _SEARCH,
    "workers": _SEARCH,
    "functions": "functions cannot be declared: leave it out",
    "dependencies": "a file stands for itself: write its datasets here",
}
_ACCESS = (
    "a table without a source can be written to, one with a source if acceleration.write_mode is write_through: "
    "leave it out"
)
VIEW = {
    "ref": "a file stands for itself: write the view here",
    "metadata": _SEMANTIC,
    "sql_ref": "a file stands for itself: write the query here, as sql",
    "dependsOn": "views are made after the tables and views that they read: leave it out",
    "ready_state": "a view is ready once the tables that it reads are: leave it out",
    "columns": "its columns are those of its query: leave it out",
    "vectors": _SEARCH,
}
DATASET = {
    "ref": "a file stands for itself: write the dataset here",
    "access": _ACCESS,
    "mode": _ACCESS,
    "metadata": _SEMANTIC,
    "has_metadata_table": _SEMANTIC,
    "replication": "all tables have as many copies: say how many in runtime.params.replicas",
    "time_format": _TIME,
    "time_partition_column": _TIME,
    "time_partition_format": _TIME,
    "embeddings": _SEARCH,
    "vectors": _SEARCH,
    "dependsOn": "datasets are made in the order that colocate_with asks for: leave it out",
    "invalid_type_action": _TYPES,
    "unsupported_type_action": _TYPES,
    "ready_state": _READY,
    "metrics": "every table has the same metrics: leave it out",
    "check_availability": _FEDERATED,
}
RUNTIME = {
    "auth": "tokens are in a file of each scheduler: give it --flight-tokens-file",
    "caching": "answers are not cached: leave it out",
    "results_cache": "answers are not cached: leave it out",
    "dataset_load_parallelism": "datasets are made one after the other: leave it out",
    "tls": _TLS,
    "tracing": "it is each node's own: give it to the node, as --otlp-endpoint and --trace-sample-ratio",
    "telemetry": "nothing is sent to anybody but to --otlp-endpoint of a node: leave it out",
    "task_history": "the last statements are in runtime.task_history: keep all of them by --task-history-table",
    "cors": "pages of other origins may not ask: leave it out",
    "cpu": _MEMORY,
    "query": _MEMORY,
    "memory_limit": _MEMORY,
    "temp_directory": _MEMORY,
    "flight": "the limits of messages are fixed: leave it out",
    "mcp": _SEARCH,
    "shutdown_timeout": "it is each node's own: give it to the node, as --drain-timeout-ms, which is 25s without it",
    "ready_state": "a node is ready when its lease is valid: leave it out",
    "output_level": "it is each node's own: give it to the node, as --log-level",
    "metrics": "all metrics are at /metrics of each node: leave it out",
    "functions": "functions cannot be declared: leave it out",
    "source_rate_control": "sources are read by Spark, at its pace: leave it out",
}


def columns() -> dict[str, str]:
    """Of a column."""
    return {"embeddings": _SEARCH, "full_text_search": _SEARCH, "metadata": _SEMANTIC}


def accelerated(what: str) -> dict[str, str]:
    """Of the acceleration of something."""
    refreshes = (
        "refresh_cron", "refresh_on_startup", "refresh_retry_enabled",
        "refresh_retry_max_attempts", "refresh_jitter_enabled", "refresh_jitter_max",
    )  # fmt: skip
    part = f"{what} has all rows of its source: leave it out, and point `from` at files that have been filtered"
    snapshots = ("snapshots", "snapshots_trigger", "snapshots_trigger_threshold", "snapshots_compaction")
    return {
        "engine": _ENGINE,
        "engine_secret": _ENGINE,
        "params": _ENGINE,
        "mode": "executors load what fits into memory and spill the rest below --data-dir: leave it out",
        **dict.fromkeys(refreshes, _REFRESH),
        "refresh_sql": part,
        "refresh_data_window": part,
        "retention_period": _RETENTION,
        **dict.fromkeys(snapshots, _SNAPSHOTS),
        "on_zero_results": _FEDERATED,
        "ready_state": _READY,
        "indexes": "there are no indexes: a query is pruned by partition_by, primary_key and what files say of columns",
        "on_conflict": "say it with each statement: Client.upsert, MERGE or INSERT OR REPLACE",
        "metrics": "every table has the same metrics: leave it out",
    }


def accelerated_view() -> dict[str, str]:
    """Of the acceleration of a view."""
    of_query = "it has the rows of its query, and nothing else changes them: leave it out"
    own = (
        "refresh_append_overlap", "retention_sql", "retention_check_interval", "retention_check_enabled",
        "retention_period", "write_mode", "primary_key", "on_conflict",
    )  # fmt: skip
    filtered = "put the condition into its query: leave it out"
    return {
        **accelerated("a view"),
        **dict.fromkeys(own, of_query),
        "refresh_sql": filtered,
        "refresh_data_window": filtered,
    }
