"""`thinwire scale`: the bytes that a node carries and the time of a step, against the number of ranks."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

import thinwire
from thinwire import extend, inspect
from thinwire.lab.links import Link
from thinwire.lab.report import check_drawing, human
from thinwire.lab.report.number_format import duration, link_text
from thinwire.lab.sizing.extrapolation import Load, RankTraffic
from thinwire.lab.sizing.sizes import STEPS, Sizer
from thinwire.lab.tables import plain_table

MOST_RANKS = 2**16
GIVEN, SHARDED, GATHERED, HALF, DENSE = "this method", "sharded instead", "gathered instead", "fp16", "dense"
COLORS = {GIVEN: "#0072b2", SHARDED: "#009e73", GATHERED: "#d55e00", HALF: "#56b4e9", DENSE: "#1b1f24"}
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Scaled:
    """The loads, by form of the method and by number of ranks."""

    model: str
    method: str
    link: Link
    latency: float  # seconds per exchange, in addition to those for its bytes
    compute: float  # seconds of a step without its exchanges
    forms: dict[str, dict[int, Load]]
    crossings: tuple[str, ...]  # sentences
    varies: bool  # whether sizes depend on the values

    @property
    def ranks(self) -> list[int]:
        return list(self.forms[DENSE])

    def seconds(self, form: str, ranks: int) -> float:
        """Seconds of a step whose exchanges follow the computation, without overlap."""
        load = self.forms[form][ranks]
        wire = load.link * 8 / min(self.link.up, self.link.down)
        return self.compute + wire + load.exchanges * self.latency

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "method": self.method,
            "link": str(self.link),
            "latency_seconds": self.latency,
            "compute_seconds": self.compute,
            "forms": {
                form: [{"ranks": n} | load._asdict() | {"seconds": self.seconds(form, n)} for n, load in loads.items()]
                for form, loads in self.forms.items()
            },
            "crossings": list(self.crossings),
        }

    def shown(self) -> Group:
        title = Text(f"{self.method}\non {self.model}, {link_text(str(self.link))}", style="bold")
        nbytes = self._table(lambda form, n: human(self.forms[form][n].link), "Link: what a node carries per step")
        nbytes.add_section()
        nbytes.add_row("growth", *(Text(bars) for bars in self._bars()))
        seconds = self._table(lambda form, n: duration(self.seconds(form, n)), self._time_name())
        remarks = [*self.crossings]
        if self.varies:
            remarks.append("Sizes depend on the values here, and were measured on a sample.")
        return Group(title, "", nbytes, "", seconds, *map(Text, remarks))

    def draw(self, path: Path) -> None:
        """Save a picture: bytes and time against ranks."""
        check_drawing()
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
        from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

        figure, (nbytes, seconds) = pyplot.subplots(1, 2, figsize=(10, 4.4), dpi=200, layout="constrained")
        for form, loads in self.forms.items():
            line: dict[str, Any] = {"color": COLORS[form], "marker": "o", "markersize": 3.5, "label": form}
            line |= {"linewidth": 2.4 if form in (GIVEN, DENSE) else 1.6}
            nbytes.plot(self.ranks, [load.link for load in loads.values()], **line)
            seconds.plot(self.ranks, [self.seconds(form, n) for n in self.ranks], **line)
        for panel, shown in ((nbytes, human), (seconds, duration)):
            panel.set(xscale="log", yscale="log", xlabel="ranks")
            panel.set_xticks(self.ranks, [str(n) for n in self.ranks], fontsize=8)
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _, shown=shown: shown(value)))
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.grid(alpha=0.25, linewidth=0.5)
            panel.spines[["top", "right"]].set_visible(False)
        nbytes.set_title("What a node carries per step", fontsize=10)
        seconds.set_title(f"{self._time_name()}, {link_text(str(self.link))}", fontsize=10)
        figure.suptitle(f"{self.method} on {self.model}".replace("$", r"\$"), fontsize=11)
        figure.legend(*nbytes.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
        figure.savefig(path)
        pyplot.close(figure)

    def _time_name(self) -> str:
        return "Time per step, computation first" if self.compute else "Minimum time on the wire, per step"

    def _table(self, shown: Callable[[str, int], str], title: str) -> Table:
        table = plain_table(title=title, title_justify="left")
        table.add_column("ranks", justify="right")
        for form in self.forms:
            table.add_column(form, justify="right", no_wrap=True)
        for n in self.ranks:
            table.add_row(f"{n:,}", *(shown(form, n) for form in self.forms))
        return table

    def _bars(self) -> Iterator[str]:
        """Each form's bytes over the ranks as a row of bars, on one logarithmic scale."""
        links = {form: [max(1.0, load.link) for load in loads.values()] for form, loads in self.forms.items()}
        low, high = (log(pick(map(pick, links.values()))) for pick in (min, max))
        for row in links.values():
            yield "".join(BLOCKS[round((log(link) - low) / (high - low or 1) * (len(BLOCKS) - 1))] for link in row)


def scale(
    method: str, model: str, ranks: str = "2..1024", link: str = "1gbit", latency_ms: float = 0, compute_ms: float = 0
) -> Scaled:
    """The bytes and times of a method for several numbers of ranks, with its other forms and the baselines."""
    sizes, wire = parse_ranks(ranks), Link.parse(link)
    if wire.star:
        raise ValueError(f"{link!r} is a star, but here every rank has its own link: use {replace(wire, star=False)}")
    for name, value in (("latency", latency_ms), ("computation", compute_ms)):
        if not value >= 0:
            raise ValueError(f"a {name} takes 0 ms or more, not {value}")
    given = thinwire.strategy_of(method)
    for part in inspect.parts_of(given):
        if isinstance(part, extend.Reducer) and part.answer_varies:
            raise ValueError(f"the server's reply in {part!r} depends on how ranks differ: `thinwire size` measures it")
    strategies = {GIVEN: given, SHARDED: thinwire.sharded(given), GATHERED: thinwire.gathered(given)}
    strategies = {form: other for form, other in strategies.items() if form == GIVEN or other != given}
    strategies |= {HALF: thinwire.strategy_of("fp16"), DENSE: thinwire.strategy_of("dense")}
    measured = Sizer.of_model(model, 1, STEPS)
    forms = {form: _Form(thinwire.settled(strategy), measured) for form, strategy in strategies.items()}
    return Scaled(
        model=model,
        method=thinwire.notation_of(given),
        link=wire,
        latency=latency_ms / 1e3,
        compute=compute_ms / 1e3,
        forms={name: {n: form.load(n) for n in sizes} for name, form in forms.items()},
        crossings=tuple(_crossings(forms, sizes)),
        varies=any(form.varies for form in forms.values()),
    )


def parse_ranks(text: str) -> list[int]:
    """The powers of two in a range such as 2..1024, or the numbers of a list such as 2,6,10."""
    spread = re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", text)
    if spread:
        low, high = map(int, spread.groups())
        found = [2**power for power in range(1, high.bit_length()) if low <= 2**power <= high]
    elif re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", text):
        found = sorted({int(number) for number in text.split(",")})
    else:
        raise ValueError(f"{text!r} is not a number of ranks: write it such as 2..1024, or 2,6,10")
    if not found or found[0] < 2 or found[-1] > MOST_RANKS:
        raise ValueError(f"ranks must be from 2 to {MOST_RANKS}, and a range must contain a power of two; not {text!r}")
    return found


class _Form:
    """One form of the method, measured for each number of ranks if its sizes depend on it."""

    def __init__(self, strategy: Any, measured: Sizer) -> None:
        if strategy.gradient_averaging is None:
            raise ValueError(
                f"{strategy!r} exchanges with neighbors only, so the bytes of a node depend on their number, not on "
                "the world size: `thinwire size` measures them, and `thinwire topology` describes the graph"
            )
        self.strategy, self.measured = strategy, measured
        self._exchanges = self._measure(ranks=2)
        self._loads: dict[int, Load] = {}

    @property
    def varies(self) -> bool:
        return self._exchanges.varies

    def load(self, ranks: int) -> Load:
        if ranks not in self._loads:
            # Sharded messages have another size for every world size; other messages only have other routes.
            exchanges = self._measure(ranks) if self._exchanges.in_shards else self._exchanges
            self._loads[ranks] = exchanges.load(ranks)
        return self._loads[ranks]

    def _measure(self, ranks: int) -> RankTraffic:
        return RankTraffic(self.strategy, self.measured.replica, self.measured.gradients(), ranks, STEPS)


def _crossings(forms: dict[str, _Form], sizes: list[int]) -> Iterator[str]:
    """Sentences: from which number of ranks each form carries as many bytes as dense."""
    dense = forms[DENSE]
    for name, form in forms.items():
        if name in (HALF, DENSE):
            continue
        more = [n for n in sizes if form.load(n).link >= dense.load(n).link]
        subject = name[0].upper() + name[1:]
        if not more:
            yield f"{subject}: carries less than dense up to {sizes[-1]:,} ranks."
        elif more[0] == sizes[0]:
            yield f"{subject}: carries as much as dense or more from {sizes[0]:,} ranks on."
        else:
            before = max(n for n in sizes if n < more[0])
            between = range(before + 1, more[0])
            first = before + 1 + bisect_left(between, True, key=lambda n: form.load(n).link >= dense.load(n).link)
            yield f"{subject}: carries as much as dense or more from {first:,} ranks on."
