import pytest

from thinwire.lab import links


@pytest.fixture(scope="session")
def possible() -> None:
    """Skips where no link can be made."""
    reason = links.possible()
    if reason:
        pytest.skip(reason)
