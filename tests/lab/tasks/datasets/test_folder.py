import pytest

from thinwire.lab.tasks import datasets


def test_the_given_folder_takes_precedence_over_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("THINWIRE_DATA", "/nowhere")
    assert datasets.folder(tmp_path) == tmp_path


def test_the_variable_is_used_without_a_given_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("THINWIRE_DATA", str(tmp_path))
    assert datasets.folder(None) == tmp_path


def test_no_folder_is_not_an_error(monkeypatch):
    # Some tasks need no folder.
    monkeypatch.setenv("THINWIRE_DATA", "")
    assert datasets.folder(None) is None


def test_a_missing_folder_is_an_error_that_names_its_source(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"--data .*missing is not a folder"):
        datasets.folder(tmp_path / "missing")
    monkeypatch.setenv("THINWIRE_DATA", str(tmp_path / "missing"))
    with pytest.raises(ValueError, match=r"THINWIRE_DATA=.*missing is not a folder"):
        datasets.folder(None)
