"""`thinwire size`: a method's bytes for a model, compared with baselines and with the method's other forms."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group

import thinwire
from thinwire import extend
from thinwire.lab.report import human
from thinwire.lab.sizing.sizes import LINKS, Size, Sizer, total
from thinwire.lab.tables import plain_table

BASELINE = "dpsgd"  # for decentralized methods, beside dense


@dataclass(frozen=True)
class Comparison:
    model: str
    ranks: int
    method: str
    kinds: dict[str, Size]
    forms: dict[str, Size]  # this method, its other forms, and the baselines

    def as_dict(self) -> dict[str, Any]:
        def fields(size: Size) -> dict[str, Any]:
            return asdict(size) | {"ratio": size.ratio, "seconds": size.seconds()}

        return {
            "model": self.model,
            "ranks": self.ranks,
            "method": self.method,
            **fields(total(self.kinds)),
            "kinds": {kind: fields(size) for kind, size in self.kinds.items()},
            "forms": {name: fields(size) for name, size in self.forms.items()},
        }

    def shown(self) -> Group:
        by_kind = plain_table(title=f"{self.method}\non {self.model}, {self.ranks} ranks, bytes per step and rank")
        for column in ("layers", "tensors", "elements", "dense fp32", "payload", "link", "ratio"):
            by_kind.add_column(column, justify="left" if column == "layers" else "right", no_wrap=True)
        for kind, size in self.kinds.items():
            by_kind.add_row(*_row(kind, size))
        by_kind.add_section()
        by_kind.add_row(*_row("all", total(self.kinds)), style="bold")

        by_form = plain_table(title="Minimum time on the wire, per step")
        by_form.add_column("", no_wrap=True)
        baselines = [name for name in ("dense", BASELINE) if name in self.forms]
        names = ["link", "less", *LINKS]
        if BASELINE in self.forms:  # several lines per heading, so that one more column fits into 80 characters
            less = [f"less\nthan\n{name}" for name in baselines]
            names = ["link", *less, *(link.replace(" ", "\n") for link in LINKS)]
        for name in names:
            by_form.add_column(name, justify="right", no_wrap=True)
        for name, size in self.forms.items():
            times = [_duration(seconds) for seconds in size.seconds().values()]
            fewer = [f"{self.forms[baseline].link / size.link:.1f}x" for baseline in baselines]
            by_form.add_row(name, human(size.link), *fewer, *times)
        return Group(by_kind, "", by_form)


def compare(method: str, model: str, ranks: int, steps: int) -> Comparison:
    """Measure a method on a model, its other forms and the baselines."""
    strategy = thinwire.strategy_of(method)
    if ranks < 2:
        raise ValueError(f"sizes are compared on 2 ranks or more, not {ranks}")
    sizer = Sizer.of_model(model, ranks, steps)
    kinds = sizer.measure(strategy)
    this = total(kinds)
    forms = {"this method": this}
    if this.worker is not None:
        forms = {"at its server": this, "at a worker": replace(this, link=this.worker)}
    for name, other in (("sharded", thinwire.sharded(strategy)), ("gathered", thinwire.gathered(strategy))):
        if other != strategy:
            forms[f"{name} instead"] = total(sizer.measure(other))
    for plain in (BASELINE, "fp16", "dense") if isinstance(strategy, extend.Decentralized) else ("fp16", "dense"):
        forms[plain] = this if thinwire.strategy_of(plain) == strategy else total(sizer.measure(plain))
    return Comparison(model, ranks, thinwire.notation_of(strategy), kinds, forms)


def _row(kind: str, size: Size) -> tuple[str, ...]:
    return (
        kind,
        str(size.tensors),
        f"{size.elements:,}",
        human(size.dense),
        human(size.payload),
        human(size.link),
        f"{size.ratio:.1f}x",
    )


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
