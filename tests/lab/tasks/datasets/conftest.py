from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tests neither read nor write the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("THINWIRE_CACHE", str(folder))
    monkeypatch.delenv("THINWIRE_DATA", raising=False)
    return folder
