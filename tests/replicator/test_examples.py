"""The examples do what they say, run as a user would: alone, simulated, and as processes."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "examples"
CORES = 2  # so many are run at once
THINWIRE = (sys.executable, "-m", "thinwire", "run")
SIMULATED = ("--transport", "simulated")

Command = Sequence[str | Path]


def alone(script: str, *arguments: str) -> Command:
    return (sys.executable, FOLDER / script, *arguments)


def launched(script: str, *settings: str, ranks: int = 4, arguments: Sequence[str] = ()) -> Command:
    return (*THINWIRE, FOLDER / script, "--ranks", str(ranks), *settings, "--", *arguments)


def printed(*commands: Command) -> list[str]:
    """What each command prints; warnings are errors, and bits do not depend on threads."""
    kept = {name: value for name, value in os.environ.items() if name != "THINWIRE_METHOD"}
    environment = kept | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}

    def one(command: Command) -> str:
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    with ThreadPoolExecutor(CORES) as pool:
        return list(pool.map(one, commands))


def number(name: str, text: str) -> float:
    """The number after a name."""
    return numbers(name, text)[0]


def numbers(name: str, text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(rf"{name} ([\d.,]*\d)", text)]


def digests(text: str) -> list[str]:
    return re.findall(r"digest (\w{12})", text)


@pytest.fixture(scope="module")
def classifiers() -> list[str]:
    """Of one replica, and of four in processes and in one: run side by side."""
    steps = ("--steps", "20")
    return printed(
        launched("classifier.py", arguments=steps),
        alone("classifier.py", "--steps", "60"),
        alone("classifier.py", "--replicas", "4", *steps),
    )


class TestClassifier:
    def test_it_learns_to_read(self, classifiers):
        _, one, *_ = classifiers
        assert "replicas 1" in one
        assert number("accuracy", one) > 0.9  # a guess is right in a tenth of the cases
        assert number("to", one) < number("loss", one) / 10

    def test_four_replicas_are_the_same_to_the_bit_however_they_are_run(self, classifiers):
        processes, _, in_one = classifiers
        assert processes == in_one  # the digest, the accuracy and the bytes
        assert "replicas 4" in processes
        assert number("accuracy", processes) > 0.7
        assert number("link", processes) == pytest.approx(1.5 * number("payload", processes), rel=0.01)  # an all-reduce


class TestGAN:
    def test_it_finds_the_clusters_and_says_what_two_models_have_to(self):
        steps = ("--steps", "300")
        one, two = printed(alone("gan.py", *steps), launched("gan.py", *SIMULATED, ranks=2, arguments=steps))
        for text in (one, two):
            before, after = text.splitlines()
            assert number("clusters", before) == 0
            assert number("clusters", after) >= 5
            assert number("points in one", before) < 0.1
            assert number("points in one", after) > 0.35
        generator, critic = 8 * 64 + 64 * 64 + 64 * 2 + 64 + 64 + 2, 2 * 64 + 64 * 64 + 64 + 64 + 64 + 1
        assert number("link", two) == pytest.approx(300 * 4 * (generator + critic), rel=0.01)  # four bytes a number


class TestSplitLanguageModel:
    WHOLE = 205_845  # parameters

    def test_no_rank_has_all_of_it(self):
        (text,) = printed(launched("split_language_model.py", *SIMULATED, arguments=("--steps", "15")))
        text = "\n".join(sorted(text.splitlines()))
        places = [f"replica {replica}, device {device}" for replica in range(2) for device in range(2)]
        assert re.findall(r"^[^:]+", text, re.MULTILINE) == places
        parts = numbers("parameters", text)
        assert max(parts) < 0.55 * self.WHOLE
        assert parts[0] + parts[1] == parts[2] + parts[3] == self.WHOLE  # each parameter is on one device of a replica
        first, second, *other_replica = digests(text)
        assert other_replica == [first, second]
        assert min(numbers("bits per character", text)) > 4
        assert max(numbers("to", text)) < 2.5

    def test_split_by_tensors_it_learns_what_it_does_in_one_piece(self):
        steps = ("--steps", "10")
        split, whole = printed(
            launched("split_language_model.py", ranks=2, arguments=(*steps, "--split", "tensor")),
            alone("split_language_model.py", *steps),
        )
        assert "device 0 and 1" in whole
        assert number("parameters", whole) == self.WHOLE
        assert max(numbers("parameters", split)) < 0.55 * self.WHOLE
        assert numbers("to", split) == pytest.approx([number("to", whole)] * 2, abs=0.01)


class TestEvolution:
    def test_it_finds_the_same_on_any_number_of_replicas(self):
        one, four = printed(
            alone("evolution.py", "--steps", "6"), launched("evolution.py", *SIMULATED, arguments=("--steps", "6"))
        )
        scores = [[float(score) for score in text.splitlines()[0].split(": ")[1].split()] for text in (one, four)]
        assert scores[0][0] < 0.1
        assert number("score", one) > 0.9
        assert scores[1] == pytest.approx(scores[0], abs=1e-3)
        assert number("score", four) == pytest.approx(number("score", one), abs=1e-3)
        assert number("norm", four) == pytest.approx(number("norm", one), rel=1e-6)
