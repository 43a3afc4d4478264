"""The examples do what they say: alone, as ranks of one process, and as processes."""

import ast
import os
import re
import subprocess
import sys

import pytest

from tests.attach.processes import run

from .replica_scripts import EXAMPLES, printed, printed_by_rank


def number(name: str, text: str) -> float:
    """The number after a name."""
    return numbers(name, text)[0]


def numbers(name: str, text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(rf"{name} ([\d.,]*\d)", text)]


def digests(text: str) -> list[str]:
    return re.findall(r"digest (\w{12})", text)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_no_example_imports_the_lab(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert "thinwire" in imported
    assert [name for name in imported if f"{name}.".startswith("thinwire.lab.")] == []


class TestDDP:
    def test_torchrun_trains_it_and_one_line_compresses(self):
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [*launch, str(EXAMPLES / "ddp.py"), "--steps", "60"]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
        assert ran.returncode == 0, ran.stderr
        *progress, last = ran.stdout.splitlines()
        assert number("loss", last) < number("loss", progress[0]) - 0.5
        assert number("compression ratio", last) > 10
        assert last.startswith("powersgd: ")

    def test_it_is_a_plain_script_with_one_line_added(self):
        script = (EXAMPLES / "ddp.py").read_text()
        code = [line for line in script.split('"""')[2].splitlines() if line.strip()]
        assert [line for line in code if "thinwire." in line] == [
            "handle = thinwire.attach(model, args.method)  # the one line"
        ]
        assert len(code) <= 45


class TestClassifier:
    def test_it_learns_to_read(self):
        one = printed("classifier.py", "--steps", "60")
        assert "replicas 1" in one
        assert number("accuracy", one) > 0.9  # a guess is right in a tenth of the cases
        assert number("to", one) < number("loss", one) / 10

    def test_four_replicas_learn_together_by_an_all_reduce(self):
        four = printed("classifier.py", "--steps", "20", ranks=4)
        assert "replicas 4" in four
        assert number("accuracy", four) > 0.7
        assert number("link", four) == pytest.approx(1.5 * number("payload", four), rel=0.01)


class TestGAN:
    def test_it_finds_the_clusters_and_says_what_two_models_have_to(self):
        one, two = (printed("gan.py", "--steps", "300", ranks=ranks) for ranks in (None, 2))
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
        text = printed("split_language_model.py", "--steps", "15", ranks=4)
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
        steps = "--steps", "10"
        split = "".join(run(printed_by_rank, "split_language_model.py", (*steps, "--split", "tensor")))
        whole = printed("split_language_model.py", *steps)
        assert "device 0 and 1" in whole
        assert number("parameters", whole) == self.WHOLE
        assert max(numbers("parameters", split)) < 0.55 * self.WHOLE
        assert numbers("to", split) == pytest.approx([number("to", whole)] * 2, abs=0.01)


class TestEvolution:
    def test_it_finds_the_same_on_any_number_of_replicas(self):
        one, four = (printed("evolution.py", "--steps", "6", ranks=ranks) for ranks in (None, 4))
        scores = [[float(score) for score in text.splitlines()[0].split(": ")[1].split()] for text in (one, four)]
        assert scores[0][0] < 0.1
        assert number("score", one) > 0.9
        assert scores[1] == pytest.approx(scores[0], abs=1e-3)
        assert number("score", four) == pytest.approx(number("score", one), abs=1e-3)
        assert number("norm", four) == pytest.approx(number("norm", one), rel=1e-6)
