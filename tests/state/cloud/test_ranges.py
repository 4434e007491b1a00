"""Parts of one version of an object on S3: of that version, or an error."""

from __future__ import annotations

import pytest

from ballista_py.errors import ConfigError, ObjectMissing, StoreUnavailable, VersionConflict
from ballista_py.runtime import SystemRuntime
from ballista_py.storage.plain.folders import BucketFolder

S3 = pytest.mark.parametrize("endpoint", ["s3"], indirect=True)


@S3
def test_a_part_is_of_the_version_that_was_asked_for(endpoint, prefix):
    store = endpoint.open(prefix)
    version = store.create("a", bytes(range(100)))
    assert store.get_range("a", version, 10, 5) == bytes(range(10, 15))
    assert store.get_range("a", version, 0, 100) == bytes(range(100))
    other = store.replace("a", b"x" * 100, version)
    with pytest.raises(VersionConflict):
        store.get_range("a", version, 10, 5)
    assert store.get_range("a", other, 99, 1) == b"x"
    store.delete("a")
    with pytest.raises(ObjectMissing):
        store.get_range("a", other, 0, 1)


@S3
def test_what_is_not_there_or_is_no_key_is_an_error(endpoint, prefix):
    store = endpoint.open(prefix)
    version = store.create("a", b"0123456789")
    with pytest.raises(StoreUnavailable):
        store.get_range("a", version, 5, 10)  # fewer bytes come
    with pytest.raises(ConfigError):
        store.get_range("../a", version, 0, 1)


@S3
def test_objects_whose_names_are_no_keys_are_listed_by_whoever_asks_for_all(endpoint, prefix):
    import boto3

    store = endpoint.open(prefix)
    store.create("t/a.parquet", b"1")
    client = boto3.client(
        "s3",
        endpoint_url=endpoint.url(),
        aws_access_key_id=endpoint.keys["key"],
        aws_secret_access_key=endpoint.keys["secret"],
        region_name="us-east-1",
    )
    for key in ("t/b\\c.parquet", "t/", "u//v.parquet"):
        client.put_object(Bucket="bucket", Key=f"{prefix}/{key}", Body=b"x")
    assert [entry.key for entry in store.list("")] == ["t/a.parquet"]
    found = {file.path: file.odd for file in BucketFolder(store).files()}
    assert found == {
        "t/a.parquet": "",
        "t/b\\c.parquet": "a name that cannot be used",
        "u//v.parquet": "a name that cannot be used",
    }
    assert SystemRuntime().wall_ms()
