import sys

from thinwire.lab import links


def test_links_are_impossible_without_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "needs Linux" in links.possible()


def test_the_reason_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "pyroute2.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert links.possible() == "a link needs pyroute2: pip install 'thinwire[lab]'"
