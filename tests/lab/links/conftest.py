import pytest

from thinwire.lab import links


@pytest.fixture(scope="session")
def possible() -> None:
    """Skips tests if no link can be created."""
    reason = links.possible()
    if reason:
        pytest.skip(reason)
