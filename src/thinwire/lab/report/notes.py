"""The notes below the table of the page: what its columns mean."""

from html import escape

from thinwire.lab.report.best_step import is_validated
from thinwire.lab.report.number_format import metric_name
from thinwire.lab.report.summary import Section
from thinwire.lab.report.table import accumulated_text, seeds_text, target_text, validated_text


def notes(section: Section) -> list[str]:
    """The notes that apply to a section, in HTML."""
    run = section.first
    name = escape(metric_name(run.metric))
    spread = ""
    if len(section.seeds) > 1:
        spread = f" Mean over the seeds ± their sample standard deviation ({seeds_text(section)})."
    validated = any(map(is_validated, section.runs))
    which = escape(validated_text(section)) if validated else "of the model at the end of training"
    found = [
        f"<b>{name}</b>: {which}; {run.better} is better.{spread}",
        *(["<b>best step</b>: that step; of several seeds, the earliest and the latest."] if validated else []),
        *(["<b>lr</b>: the learning rate, as a factor of the workload's own."] if section.is_tuned else []),
        *_replicas(section),
        "<b>payload</b>: the bytes of one rank's messages in a step, each once. <b>link</b>: the bytes that its "
        "network card carried in the busier direction, on the rank that carried most; a message to several ranks "
        "counts once for each.",
    ]
    if any(run.server for run in section.runs):
        found.append(
            "<b>worker</b>: with a parameter server, <b>link</b> is that of the server, and <b>worker</b> that of the "
            "busiest other rank."
        )
    if any("wire" in run.bytes for run in section.runs):
        found.append(
            "<b>wire</b>: read from the network interface's own counters, in the busier direction; it includes the "
            "headers of all protocols."
        )
    found.append("<b>ratio</b>: the compression ratio, the gradients' bytes in full precision over the payload's.")
    if any(run.learned for run in section.runs):
        found.append(
            "<b>coded ratio</b>: the compression ratio as papers on learned codes count it, only of the layers that "
            "are coded and only in the steps that use the codes; the mean over the ranks. <b>ratio</b> includes all "
            "layers and all steps."
        )
    found.append(
        "<b>training</b> and <b>time / step</b>: without evaluations. <b>vs dense</b>: the speedup over dense, so "
        "above 1 is faster; dense is thinwire's own all-reduce of uncompressed gradients."
    )
    found += accumulated_text(section)
    if section.target is not None:
        found.append(_target(section))
    if section.modeled:
        found.append(
            "<b>modeled</b>: the time on the link was computed from the bytes and the link's rate, not measured."
        )
    elif run.transport == "simulated" and run.link is None:
        found.append(
            "<b>simulated</b>: all ranks in one process. Times are those of one rank's compute, encode and decode; "
            "nothing was exchanged, so no time is counted for it."
        )
    return found


def _replicas(section: Section) -> list[str]:
    """The notes on methods whose replicas differ."""
    if not section.replicas_differ:
        return []
    name = escape(metric_name(section.first.metric))
    return [
        f"Where replicas differ, <b>{name}</b> is that of their mean, at all steps; other methods' replicas are equal.",
        f"<b>worst</b>: the {name} of the worst replica at the end.",
        "<b>consensus distance</b>: the replicas' distance to their mean at the end, root mean square over the ranks, "
        "relative to that mean's norm.",
    ]


def _target(section: Section) -> str:
    return (
        f"<b>to target</b>: when the {escape(target_text(section))} was first reached, with linear interpolation "
        "between evaluations; the mean over the seeds that reached it, and their number if not all did. Compared with "
        "dense only where all seeds of both reached it. If the first evaluation is at the target already, its time."
    )
