"""The page of `thinwire fit`, in the style of the report."""

from html import escape

from thinwire.lab.fit import fit_plots as plots
from thinwire.lab.fit.fit_findings import NAMES, findings
from thinwire.lab.fit.fit_study import Study
from thinwire.lab.fit.fit_table import ALL, Figures, figures, heading, skipped_text
from thinwire.lab.report.charts.svg import tag
from thinwire.lab.report.elements import card, cards, document, figure, row, table
from thinwire.lab.report.number_format import counted

KEY = "fit"


def page(study: Study) -> str:
    about = study.captured
    steps = ", ".join(f"{step:,}" for step in about.steps)
    lead = (
        f"Gradients of rank 0 at {'step' if len(about.steps) == 1 else 'steps'} {steps} of {about.length:,}, in "
        f"batches of {about.batch:,}: {counted(len(study.layers), 'layer')}, distributions fitted to each by maximum "
        f"likelihood, and code lengths for the symbols of {study.form.name}."
    )
    found = [card(one.figure, one.what, one.sentence, plots.LOOKS[NAMES[one.distribution]]) for one in findings(study)]
    layers = plots.chosen(study)
    layer_plots = [
        plot for number, layer in enumerate(layers, start=1) for plot in plots.of_entries(study, layer, number)
    ]
    return document(
        heading(study),
        tag("p", escape(lead), class_="quiet"),
        cards(found),
        _section(
            "Over the training",
            tag("div", figure(plots.shapes(study), KEY), figure(plots.bits(study), KEY), class_="plots"),
        ),
        _section(
            "Entries and fitted distributions",
            tag("p", "The first, the middle and the last layer, and the largest.", class_="quiet"),
            tag("div", *(figure(plot, KEY) for plot in layer_plots), class_="plots"),
        ),
        *(_section(one.title, _table(one)) for one in figures(study, study.layers)),
        _skipped(study),
        tag(
            "footer", "Made by <code>thinwire fit</code>; with <code>--json</code> it prints the figures of all steps."
        ),
    )


def _section(title: str, *inside: str) -> str:
    return tag("section", tag("h2", escape(title)), *inside)


def _table(table_figures: Figures) -> str:
    rows = [row(escape(name), figures) for name, figures in table_figures.rows.items()]
    rows.append(row(escape(ALL), table_figures.overall))
    head = ["layer", *(" ".join(name) for name in table_figures.columns)]
    return table(head, rows) + tag("ul", *(tag("li", escape(note)) for note in table_figures.notes), class_="notes")


def _skipped(study: Study) -> str:
    if not study.skipped:
        return ""
    items = [tag("li", escape(f"{name} {reason}")) for name, reason in study.skipped.items()]
    return _section("Skipped tensors", tag("p", escape(skipped_text(study))), tag("ul", *items, class_="notes"))
