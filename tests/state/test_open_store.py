"""Opening stores by URL: what is refused, and what a name of a memory store means."""

import pytest

from ballista_py.errors import ConfigError, ObjectMissing
from ballista_py.state.stores.local import LocalStore, with_nonce
from ballista_py.state.stores.store import open_store


@pytest.mark.parametrize("tail", [b"", b"\n", b"\n" + b" " * 128, b"\x00\xff", b" " * 200])
def test_a_file_that_looks_as_if_it_had_a_nonce_comes_back_exactly(tmp_path, tail):
    store = LocalStore(str(tmp_path))
    for number, data in enumerate([tail, with_nonce(tail, "7" * 32), b"x" * 300 + tail]):
        version = store.create(f"object{number}", data)
        assert store.get(f"object{number}").data == data
        assert store.get(f"object{number}").version == version
        store.replace(f"object{number}", data, version)
        assert store.get(f"object{number}").data == data


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("/plain/path", "take file:///"),
        ("ftp://host/x", "take file:///"),
        ("file://relative/x", "absolute folder"),
        ("file:///proc/cannot/be", "cannot be written"),
    ],
)
def test_an_unusable_location_is_a_configuration_error(url, reason):
    with pytest.raises(ConfigError, match=reason):
        open_store(url)


def test_an_unknown_option_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="takes no option 'colour'"):
        open_store(f"file://{tmp_path}", colour="red")


def test_a_memory_store_of_one_name_is_one_store():
    open_store("memory://shared").create("a", b"1")
    assert open_store("memory://shared").get("a").data == b"1"
    with pytest.raises(ObjectMissing):
        open_store("memory://other").get("a")
