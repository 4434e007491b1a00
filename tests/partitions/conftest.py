"""What the tests of partitions share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec


@pytest.fixture(scope="session")
def golden_bucket() -> ModuleType:
    """The module that makes and reads the golden hashes."""
    return _module("golden_bucket")


@pytest.fixture(scope="session")
def make_map() -> Callable[..., PartitionMap]:
    """Builds the map of a table split into so many buckets, without owners."""

    def make(buckets: int, table: str = "events", weights: Any = None) -> PartitionMap:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        spec = PartitionSpec.parse([f"bucket({buckets}, id)"], schema)
        return PartitionMap.of_columns(table, spec, spec.static_columns() or (), buckets, weights)

    return make


@pytest.fixture(scope="session")
def key_cases() -> ModuleType:
    """Key expressions of every kind, and rows that are hard for them."""
    return _module("key_cases")


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
