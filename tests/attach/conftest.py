from collections.abc import Iterator

import pytest

from . import processes


@pytest.fixture(scope="session", autouse=True)
def _pool() -> Iterator[None]:
    yield
    assert processes.close() == {}, "a process that had trained with thinwire did not end well"
