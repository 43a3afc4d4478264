"""Fits distributions to captured gradients, and measures code lengths under them: `thinwire fit`."""

from pathlib import Path

from thinwire.lab.fit.fit_page import page
from thinwire.lab.fit.fit_study import Study, study
from thinwire.lab.fit.fit_table import shown
from thinwire.lab.fit.quantizers import FORMS, form
from thinwire.lab.report.embedded_pages import PAGE

__all__ = ["FORMS", "PAGE", "Study", "form", "shown", "study", "write"]


def write(study: Study, folder: Path) -> Path:
    """Save the page into a folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(page(study), "utf-8")
    return folder / PAGE
