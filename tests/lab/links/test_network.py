import sys

from thinwire.lab import links


def test_where_there_is_no_linux_the_reason_says_so(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "needs Linux" in links.possible()


def test_a_reason_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "pyroute2.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert links.possible() == "a link needs pyroute2: pip install 'thinwire[lab]'"
