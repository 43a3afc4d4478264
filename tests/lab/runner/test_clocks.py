import time

from thinwire.lab.runner.clocks import Clock


def test_a_clock_stands_still_when_it_is_stopped():
    start, clock = time.perf_counter(), Clock()
    time.sleep(0.02)
    clock.stop()
    time.sleep(0.05)
    clock.go_on()
    read, all_seconds = clock.read(), time.perf_counter() - start
    assert 0.02 <= read <= all_seconds - 0.05


def test_a_clock_tells_how_long_its_thread_was_at_work():
    start, clock = time.thread_time(), Clock()
    time.sleep(0.05)
    clock.stop()
    while time.thread_time() - start < 0.03:  # work that does not count
        pass
    clock.go_on()
    assert clock.computed() < 0.02
    while time.thread_time() - start < 0.06:
        pass
    assert 0.02 <= clock.computed() < 0.05
