import time

from thinwire.lab.runner.clocks import Clock


def test_a_paused_clock_does_not_count_time():
    start, clock = time.perf_counter(), Clock()
    time.sleep(0.02)
    clock.pause()
    time.sleep(0.05)
    clock.resume()
    read, all_seconds = clock.read(), time.perf_counter() - start
    assert 0.02 <= read <= all_seconds - 0.05


def test_computed_seconds_are_the_cpu_time_of_the_thread():
    start, clock = time.thread_time(), Clock()
    time.sleep(0.05)
    clock.pause()
    while time.thread_time() - start < 0.03:  # work that does not count
        pass
    clock.resume()
    assert clock.computed() < 0.02
    while time.thread_time() - start < 0.06:
        pass
    assert 0.02 <= clock.computed() < 0.05
