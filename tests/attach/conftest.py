from collections.abc import Iterator

import pytest

from . import processes


@pytest.fixture(scope="session", autouse=True)
def process_pool() -> Iterator[None]:
    yield
    assert processes.close() == {}, "a process of the pool exited with an error"
