"""TPC-H for the demo and the benches: data made by `tpchgen-cli`, and the tables as the cluster keeps them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ballista_py.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from ballista_py.node.local.cluster import LocalCluster

Progress = Callable[[int, int], None]

# How each table is spread, in the order in which they can be made: a table after the one it is co-located with.
TABLES: Mapping[str, Mapping[str, Any]] = {
    "region": {"distribution": "replicated"},
    "nation": {"distribution": "replicated"},
    "supplier": {"partition_by": ["bucket(4, s_suppkey)"]},
    "customer": {"partition_by": ["bucket(8, c_custkey)"]},
    "part": {"partition_by": ["bucket(8, p_partkey)"]},
    "partsupp": {"partition_by": ["bucket(8, ps_partkey)"], "colocate_with": "part"},
    "orders": {"partition_by": ["bucket(16, o_orderkey)"]},
    "lineitem": {"partition_by": ["bucket(16, l_orderkey)"], "colocate_with": "orders"},
}

_SCALE_FILE = "SCALE"
_TABLE_STEPS = 100
_LOOK_EVERY_S = 0.1


def _silent(_done: int, _total: int) -> None:
    return


def generate_tpch(folder: Path, scale: float, progress: Progress = _silent) -> Path:
    """`folder` with `{table}.parquet` for all of `TABLES` at `scale` (1 is 1 GB of text); made unless it is there.

    The folder is complete or not there at all: it is filled under another name and renamed.
    `progress(done, total)` counts tables. Raises `MissingExtra` without tpchgen-cli, and `ConfigError` when it
    fails or `folder` holds something else.
    """
    marker = folder / _SCALE_FILE
    if not (marker.is_file() and marker.read_text() == f"{scale:g}"):
        if folder.exists() and not marker.is_file() and any(folder.iterdir()):
            raise ConfigError(f"folder '{folder}' holds something else than TPC-H data: name another one")
        _fill(folder, scale, progress)
    progress(len(TABLES), len(TABLES))
    return folder


def create_tpch_tables(cluster: LocalCluster, data: Path, progress: Progress = _silent) -> None:
    """Make all of `TABLES` in `cluster` from the files in `data`; returns when every partition is served."""
    total = _TABLE_STEPS * len(TABLES)
    for place, (table, options) in enumerate(TABLES.items()):

        def step(done: int, of: int, before: int = place * _TABLE_STEPS) -> None:
            progress(before + done * _TABLE_STEPS // max(of, 1), total)

        cluster.create_table(table, str(data / f"{table}.parquet"), progress=step, wait=False, **options)
    cluster.wait_until_loaded(*TABLES)
    progress(total, total)


def _fill(folder: Path, scale: float, progress: Progress) -> None:
    program = _program()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
        made = Path(place) / "made"
        made.mkdir()
        _generate(program, scale, made, progress)
        (made / _SCALE_FILE).write_text(f"{scale:g}")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def _program() -> str:
    beside = Path(sys.executable).parent / "tpchgen-cli"
    found = str(beside) if beside.is_file() else shutil.which("tpchgen-cli")
    if found is None:
        raise MissingExtra.of("tpchgen-cli", "demo")
    return found


def _generate(program: str, scale: float, folder: Path, progress: Progress) -> None:
    """All tables in one run: half of the time of a run is spent before its first row."""
    command = [program, "parquet", f"--scale-factor={scale:g}", f"--output-dir={folder}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        while True:
            begun = sum(1 for _ in folder.glob("*.parquet"))
            progress(max(0, begun - 1), len(TABLES))
            try:
                _, told = running.communicate(timeout=_LOOK_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                continue
    if running.returncode != 0:
        lines = [line for line in told.splitlines() if line.strip()]
        reason = lines[0].removeprefix("error: ") if lines else f"exit code {running.returncode}"
        raise ConfigError(f"tpchgen-cli could not make TPC-H at scale {scale:g}: {reason}")
