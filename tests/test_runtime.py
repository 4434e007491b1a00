"""The real machine behind the `Runtime` protocol."""

import threading

from ballista_py.runtime import SystemRuntime


def test_ids_are_fresh_and_32_hexadecimal_digits():
    ids = {SystemRuntime().new_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(len(id_) == 32 and int(id_, 16) >= 0 for id_ in ids)


def test_sleep_lasts_at_least_as_long_as_asked():
    runtime = SystemRuntime()
    before_ms = runtime.monotonic_ms()
    runtime.sleep_ms(20)
    assert runtime.monotonic_ms() - before_ms >= 20


def test_random_numbers_are_below_one():
    assert all(0 <= SystemRuntime().random() < 1 for _ in range(100))


def test_a_condition_wakes_its_waiter_and_times_out_without_a_notification():
    runtime = SystemRuntime()
    condition = runtime.condition()
    seen = []

    def waiter():
        with condition:
            seen.append(condition.wait(5_000))

    thread = threading.Thread(target=waiter)
    with condition:
        thread.start()
        assert condition.wait(1) is False
    while thread.is_alive():
        with condition:
            condition.notify_all()
        thread.join(0.01)
    assert seen == [True]


def test_a_lock_is_exclusive():
    lock = SystemRuntime().lock()
    with lock:
        assert not lock.acquire(blocking=False)
