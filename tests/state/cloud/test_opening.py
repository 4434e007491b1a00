"""Opening stores behind a network: options, missing clients, wrong credentials; secrets stay where they are."""

from __future__ import annotations

import builtins
import traceback

import pytest
from obstore.store import LocalStore as ObstoreLocal
from obstore.store import MemoryStore as ObstoreMemory
from obstore.store import S3Store as ObstoreS3

from ballista_py.errors import BallistaError, ConfigError, MissingExtra, StoreUnavailable, UnsafeStore
from ballista_py.state.stores.check import check_store
from ballista_py.state.stores.obstore import ObstoreStore
from ballista_py.state.stores.store import open_store

SECRET = "c2VjcmV0LW9mLW5vYm9keQ=="


@pytest.mark.parametrize(
    ("scheme", "package", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs"), ("abfs", "adlfs", "azure")]
)
def test_a_client_that_is_not_installed_is_named_with_the_line_that_installs_it(
    monkeypatch, scheme, package, extra
):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        MissingExtra, match=rf"{package} is not installed. Run: pip install 'ballista_py\[{extra}\]'"
    ):
        open_store(f"{scheme}://bucket/prefix")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket", {"secret": SECRET, "colour": "red"}),
        ("s3://bucket", {"secret": SECRET, "password": "twice"}),
        ("gs://bucket", {"token": {"nonsense": SECRET}}),
        ("abfs://bucket", {"connection_string": f"AccountKey={SECRET}"}),
    ],
)
def test_options_that_a_client_does_not_take_are_a_configuration_error_without_their_values(url, options):
    with pytest.raises(ConfigError, match=sorted(options)[-1]) as caught:
        open_store(url, **options)
    assert SECRET not in _everything(caught.value)


@pytest.mark.parametrize("url", ["s3://", "gs:///prefix", "abfs://c@account/x", "s3://bucket/../up"])
def test_a_location_without_a_bucket_or_with_a_crooked_prefix_is_a_configuration_error(url):
    with pytest.raises(ConfigError, match="is not usable"):
        open_store(url, key="k", secret="s", anon=False)


@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure", "obstore"], indirect=True)
def test_two_prefixes_of_one_bucket_are_two_stores(endpoint, prefix):
    one, other = endpoint.open(f"{prefix}/one"), endpoint.open(f"{prefix}/two")
    one.create("a", b"1")
    assert list(other.list("")) == []
    assert [entry.key for entry in endpoint.open(prefix).list("one/")] == ["one/a"]


def test_a_bucket_that_is_missing_is_said_and_not_taken_for_a_missing_object(s3_server, gcs_server, azure_server):
    region = {"client_kwargs": {"region_name": "us-east-1"}}
    stores = [
        open_store("s3://nosuch", endpoint_url=s3_server.url(), key="k", secret="s", **region),
        open_store("gs://nosuch", endpoint_url=gcs_server.url(), token="anon"),
        open_store("abfs://nosuch", connection_string=azure_server.connection()),
    ]
    for store in stores:
        with pytest.raises(StoreUnavailable, match="refused"):
            store.get("a")
        with pytest.raises(StoreUnavailable, match="'a' was not written"):
            store.create("a", b"1")


def test_secrets_are_in_no_repr_and_no_error(s3_server, azure_server, careless_s3_server):
    wrong = azure_server.connection().replace("Eby8vdM0", "c2VjcmV0")
    region = {"client_kwargs": {"region_name": "us-east-1"}}
    stores = {
        "c2VjcmV0": open_store("abfs://bucket/p", connection_string=wrong),
        SECRET: open_store(
            "s3://bucket/p", endpoint_url=careless_s3_server.url(), key="nobody", secret=SECRET, **region
        ),
    }
    for secret, store in stores.items():
        assert secret not in repr(store)
        with pytest.raises(StoreUnavailable, match="refused") as caught:
            store.create("a", b"1")
        assert secret not in _everything(caught.value)


def test_an_obstore_store_that_repeats_writes_is_refused():
    with pytest.raises(ConfigError, match="max_retries"):
        ObstoreStore(ObstoreS3("bucket", region="eu-west-1"))


def test_an_obstore_store_that_cannot_write_on_a_condition_is_unsafe(tmp_path):
    store = ObstoreStore(ObstoreLocal(tmp_path))
    version = store.create("a", b"1")
    with pytest.raises(UnsafeStore, match="cannot write on a condition"):
        store.replace("a", b"2", version)
    assert not check_store(store, quick=True).safe
    assert check_store(ObstoreStore(ObstoreMemory()), quick=True).safe


@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure"], indirect=True)
def test_a_listing_of_more_than_one_page_is_whole_and_in_order(endpoint, prefix, monkeypatch):
    store = endpoint.open(prefix)
    keys = [f"k{number:02d}" for number in range(12)]
    for key in keys:
        store.create(key, b"1")
    _make_pages_small(store, monkeypatch)
    assert [entry.key for entry in store.list("")] == keys


def _make_pages_small(store, monkeypatch) -> None:
    """Ask the servers for pages of five, so that a dozen objects are three pages."""
    if hasattr(store, "_bucket") and hasattr(store, "_objects"):
        call = store._call
        monkeypatch.setattr(
            store, "_call", lambda *a, **k: call(*a, **({**k, "maxResults": "5"} if "prefix" in k else k))
        )
    elif hasattr(store, "_bucket"):
        store._fs.s3_additional_kwargs["MaxKeys"] = 5
    else:
        listing = store._container.list_blobs
        monkeypatch.setattr(store._container, "list_blobs", lambda **k: listing(results_per_page=5, **k))


def _everything(error: BallistaError) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error.details)
