"""Plans: all settings of a training run, so that it can be repeated from a file."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

from thinwire.lab.runner.straggler import Straggler

TRANSPORTS = ("processes", "simulated")
BUDGETS = ("small", "plateau", "full")


class PlanError(ValueError):
    """A plan that cannot be run; the message gives the reason."""


@dataclass(frozen=True)
class Plan:
    """One training run."""

    workload: str  # a name that `thinwire workloads` lists, or path/to/file.py:Name
    method: str  # a short name or a notation
    ranks: int = 4
    transport: str = "processes"
    link: str | None = None  # such as 100mbit, or 50mbit/10mbit for down/up; None: the machine's own
    modeled: bool = False  # compute the time on the link from the bytes, instead of making the link
    budget: str = "small"
    steps: int | None = None  # batches of all ranks, instead of the budget's
    epochs: float | None = None  # instead of the budget's
    batch: int | None = None  # examples per step over all ranks, instead of the workload's
    batch_per_rank: int | None = None  # examples per step and rank, instead of a share of the workload's batch
    accumulate: int = 1  # batches whose gradients are averaged before the exchange: fewer optimizer steps
    alone: bool = False  # the baseline without communication: one rank with its own batch, for as many steps
    lr_scale: float = 1.0  # multiplies the workload's learning rate
    warmup: float | None = None  # fraction of the steps over which the rate rises linearly, instead of the budget's
    shards: str = "iid"  # how the examples are divided among the ranks; also dirichlet:ALPHA
    seed: int = 1
    threads: int = 1  # per rank
    evaluations: int | None = (
        None  # over the run, evenly spaced, instead of the budget's; the last one is after the last step
    )
    data: str | None = None  # the folder with the data sets
    capture: int | None = None  # at how many steps rank 0 saves its gradients
    straggler: str | None = None  # RANK:FACTOR, a rank that computes FACTOR times slower

    def __post_init__(self) -> None:
        for name in ("ranks", "threads", "accumulate"):
            _positive(name, getattr(self, name), integer=True)
        for name in ("steps", "batch", "batch_per_rank", "evaluations", "capture"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name), integer=True)
        for name in ("epochs", "lr_scale"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name), integer=False)
        if self.warmup is not None and not _is_fraction(self.warmup):
            raise PlanError(f"warmup is a fraction of the steps, from 0 to below 1, not {self.warmup!r}")
        if self.batch is not None and self.batch_per_rank is not None:
            raise PlanError(
                f"a run takes a batch over all ranks or one per rank, not both ({self.batch} and {self.batch_per_rank})"
            )
        real_link = self.link is not None and not self.modeled
        if self.alone and (self.method != "dense" or real_link or self.straggler is not None):
            raise PlanError("a rank that trains alone exchanges nothing: it takes dense, no real link and no straggler")
        if self.capture is not None and self.accumulate > 1:
            raise PlanError("accumulated gradients arrive in parts, which cannot be captured")
        if self.steps is not None and self.epochs is not None:
            raise PlanError(f"a run takes steps or epochs, not both ({self.steps} steps and {self.epochs} epochs)")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**15:
            raise PlanError(f"a seed is a number from 0 to {2**15 - 1}, not {self.seed!r}")
        for name, choices in (("transport", TRANSPORTS), ("budget", BUDGETS)):
            if getattr(self, name) not in choices:
                raise PlanError(f"the {name} is one of {', '.join(choices)}, not {getattr(self, name)!r}")
        if self.modeled and self.link is None:
            raise PlanError("a modeled time needs a link to model, such as --link 100mbit")
        if self.straggler is not None:
            try:
                Straggler.parse(self.straggler, self.ranks)
            except ValueError as error:
                raise PlanError(str(error)) from None

    @property
    def size(self) -> int:
        """The number of ranks that take part: one for a baseline that trains alone, else all."""
        return 1 if self.alone else self.ranks

    @property
    def variant(self) -> str:
        """The baseline that this run is, if it is one: `alone`, or `accumulate:N`."""
        if self.alone:
            return "alone"
        return f"accumulate:{self.accumulate}" if self.accumulate > 1 else ""

    @property
    def label(self) -> str:
        """The name of the method in tables."""
        if self.variant and self.method == "dense":
            return self.variant
        return f"{self.method}, {self.variant}" if self.variant else self.method

    def to_toml(self) -> str:
        """The plan as a run file."""
        # JSON's strings, numbers and booleans are TOML's too.
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in self.as_dict().items())

    def as_dict(self) -> dict[str, Any]:
        """The settings by name, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def command(self) -> str:
        """The command that repeats the run in a new folder."""
        words = ["thinwire train --out runs/again"]
        for field in fields(self):
            value = getattr(self, field.name)
            flag = f"--{field.name.replace('_', '-')}"
            if value is True:
                words.append(flag)
            elif value != field.default:
                words.append(f"{flag} {_quoted(str(value))}")
        return " ".join(words)


def plan_of(settings: Mapping[str, Any]) -> Plan:
    """The plan with these settings, by field name, as flags or a run file give them."""
    known = get_type_hints(Plan)
    for name, value in settings.items():
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise PlanError(f"a run has no setting {name!r}{hint}; it has {', '.join(known)}")
        if str in (known[name], *get_args(known[name])) and not isinstance(value, str):
            raise PlanError(f"{name} takes a text, not {value!r}")
        if known[name] is bool and not isinstance(value, bool):
            raise PlanError(f"{name} is true or false, not {value!r}")
    for name in ("workload", "method"):
        if name not in settings:
            raise PlanError(f"a run needs a {name}: --{name}, or {name} = ... in a run file")
    if settings.get("link") and (settings.get("transport") == "simulated" or settings.get("alone")):
        settings = {**settings, "modeled": True}  # simulated ranks have no link, and a rank alone sends nothing
    return Plan(**settings)


def read_file(path: Path) -> dict[str, Any]:
    """The settings in a run file."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise PlanError(f"the run file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"the run file {path} is not TOML: {error}") from None


def _is_fraction(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _positive(name: str, value: Any, integer: bool) -> None:
    fits = isinstance(value, int) if integer else isinstance(value, int | float)
    if isinstance(value, bool) or not fits or not value > 0:
        raise PlanError(f"{name} takes {'an integer' if integer else 'a number'} above 0, not {value!r}")


def _quoted(text: str) -> str:
    plain = text and all(letter.isalnum() or letter in "-_./:" for letter in text)
    return text if plain else "'" + text.replace("'", "'\\''") + "'"
