import pytest

from thinwire.lab.tasks import datasets


def test_the_given_folder_goes_before_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("THINWIRE_DATA", "/nowhere")
    assert datasets.folder(tmp_path) == tmp_path


def test_the_variable_is_used_when_nothing_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("THINWIRE_DATA", str(tmp_path))
    assert datasets.folder(None) == tmp_path


def test_no_folder_is_not_an_error_yet(monkeypatch):
    # Some tasks bring their own data.
    monkeypatch.setenv("THINWIRE_DATA", "")
    assert datasets.folder(None) is None


def test_a_folder_that_is_not_there_is_told_as_it_was_given(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"--data .*lost is not a folder"):
        datasets.folder(tmp_path / "lost")
    monkeypatch.setenv("THINWIRE_DATA", str(tmp_path / "lost"))
    with pytest.raises(ValueError, match=r"THINWIRE_DATA=.*lost is not a folder"):
        datasets.folder(None)
