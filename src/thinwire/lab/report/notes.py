"""What the words in the table mean."""

from html import escape

from thinwire.lab.report.number_format import metric_name
from thinwire.lab.report.summary import Section
from thinwire.lab.report.table import accumulated_text, seeds_text, target_text, validated_text
from thinwire.lab.report.validation import is_validated


def notes(section: Section) -> list[str]:
    """Sentences in HTML, those that this section needs."""
    run = section.first
    name = escape(metric_name(run.metric))
    spread = ""
    if len(section.seeds) > 1:
        spread = f" Mean over the seeds ± their sample standard deviation ({seeds_text(section)})."
    validated = any(map(is_validated, section.runs))
    which = escape(validated_text(section)) if validated else "of the model at the end of training"
    told = [
        f"<b>{name}</b>: {which}; {run.better} is better.{spread}",
        *(["<b>best step</b>: that step; of several seeds, the earliest and the latest."] if validated else []),
        *(["<b>lr</b>: the learning rate, times the workload's own."] if section.is_tuned else []),
        *_replicas(section),
        "<b>payload</b>: what one rank had to say in a step. <b>link</b>: what its network card carried for it in the "
        "busier direction, for the rank that carried most; an exchange with every other rank counts once for each.",
    ]
    if any(run.server for run in section.runs):
        told.append(
            "<b>worker</b>: where one rank serves, <b>link</b> is what that one's card carried, and this what the "
            "busiest other one's did."
        )
    if any("wire" in run.bytes for run in section.runs):
        told.append(
            "<b>wire</b>: read from the network interface's own counters, in the busier direction; it includes the "
            "headers of all protocols."
        )
    told.append("<b>smaller</b>: the gradients' bytes in full precision over the payload's.")
    if any(run.learned for run in section.runs):
        told.append(
            "<b>coded smaller</b>: as papers on learned codes count it, of the layers that go through them and in the "
            "steps that use them only; the mean over the ranks. <b>smaller</b> has all layers and all steps."
        )
    told.append(
        "<b>training</b> and <b>time / step</b>: without evaluations. <b>vs dense</b>: how many times less time than "
        "dense took, over 1 is faster; dense is thinwire's own all-reduce of the gradients as they are."
    )
    told += accumulated_text(section)
    if section.target is not None:
        told.append(_target(section))
    if section.modeled:
        told.append(
            "<b>modeled</b>: the time on the link was computed from the bytes and the link's speed, not measured."
        )
    elif run.transport == "simulated" and run.link is None:
        told.append(
            "<b>simulated</b>: all ranks in one process. Times are what one rank computes, encodes and decodes; "
            "nothing was exchanged, so no time is counted for it."
        )
    return told


def _replicas(section: Section) -> list[str]:
    """What is told of replicas that differ."""
    if not section.differs:
        return []
    name = escape(metric_name(section.first.metric))
    return [
        f"Where replicas differ, <b>{name}</b> is that of their mean, all along; other methods' replicas are alike.",
        f"<b>worst</b>: the {name} of the worst replica at the end, by itself.",
        "<b>apart</b>: how far replicas are from their mean at the end, root mean square over the ranks, as a share of "
        "that mean's norm.",
    ]


def _target(section: Section) -> str:
    return (
        f"<b>to target</b>: when the {escape(target_text(section))} was first reached, on straight lines between "
        f"evaluations; the mean over the seeds that got there, with their number if not all did. Compared with dense "
        "only where all seeds of both did. Where the first evaluation is there already, its time."
    )
