"""The examples run and learn: alone, as ranks of one process, and as processes."""

import ast
import os
import re
import subprocess
import sys

import pytest

from tests.attach.processes import run

from .replica_scripts import EXAMPLES, printed, printed_by_rank


def number(name: str, text: str) -> float:
    """The first number after a name in a text."""
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
    def test_it_trains_under_torchrun_with_compression(self):
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [*launch, str(EXAMPLES / "ddp.py"), "--steps", "60"]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
        assert ran.returncode == 0, ran.stderr
        *progress, last = ran.stdout.splitlines()
        assert number("loss", last) < number("loss", progress[0]) - 0.5
        assert number("compression ratio", last) > 10
        assert last.startswith("powersgd: ")

    def test_only_one_line_uses_thinwire(self):
        script = (EXAMPLES / "ddp.py").read_text()
        code = [line for line in script.split('"""')[2].splitlines() if line.strip()]
        assert [line for line in code if "thinwire." in line] == [
            "handle = thinwire.attach(model, args.method)  # the one line"
        ]
        assert len(code) <= 45


class TestClassifier:
    def test_one_replica_learns(self):
        one = printed("classifier.py", "--steps", "60")
        assert "replicas 1" in one
        assert number("accuracy", one) > 0.9  # guessing gives 0.1
        assert number("to", one) < number("loss", one) / 10

    def test_four_replicas_learn_with_the_traffic_of_an_all_reduce(self):
        four = printed("classifier.py", "--steps", "20", ranks=4)
        assert "replicas 4" in four
        assert number("accuracy", four) > 0.7
        assert number("link", four) == pytest.approx(1.5 * number("payload", four), rel=0.01)


class TestGAN:
    def test_it_finds_the_clusters_and_sends_the_gradients_of_both_models(self):
        one, two = (printed("gan.py", "--steps", "300", ranks=ranks) for ranks in (None, 2))
        for text in (one, two):
            before, after = text.splitlines()
            assert number("clusters", before) == 0
            assert number("clusters", after) >= 5
            assert number("points in one", before) < 0.1
            assert number("points in one", after) > 0.35
        generator, critic = 8 * 64 + 64 * 64 + 64 * 2 + 64 + 64 + 2, 2 * 64 + 64 * 64 + 64 + 64 + 64 + 1
        assert number("link", two) == pytest.approx(300 * 4 * (generator + critic), rel=0.01)  # 4 bytes per parameter


class TestSplitLanguageModel:
    PARAMETERS = 205_845

    def test_each_parameter_is_on_one_device_of_each_replica(self):
        text = printed("split_language_model.py", "--steps", "15", ranks=4)
        text = "\n".join(sorted(text.splitlines()))
        owners = [f"replica {replica}, device {device}" for replica in range(2) for device in range(2)]
        assert re.findall(r"^[^:]+", text, re.MULTILINE) == owners
        parts = numbers("parameters", text)
        assert max(parts) < 0.55 * self.PARAMETERS
        assert parts[0] + parts[1] == parts[2] + parts[3] == self.PARAMETERS  # no parameter is on both devices
        first, second, *other_replica = digests(text)
        assert other_replica == [first, second]
        assert min(numbers("bits per character", text)) > 4
        assert max(numbers("to", text)) < 2.5

    def test_the_tensor_parallel_split_learns_as_one_process_does(self):
        steps = "--steps", "10"
        split = "".join(run(printed_by_rank, "split_language_model.py", (*steps, "--split", "tensor")))
        full = printed("split_language_model.py", *steps)
        assert "device 0 and 1" in full
        assert number("parameters", full) == self.PARAMETERS
        assert max(numbers("parameters", split)) < 0.55 * self.PARAMETERS
        assert numbers("to", split) == pytest.approx([number("to", full)] * 2, abs=0.01)


class TestEvolution:
    def test_the_result_does_not_depend_on_the_number_of_replicas(self):
        one, four = (printed("evolution.py", "--steps", "6", ranks=ranks) for ranks in (None, 4))
        scores = [[float(score) for score in text.splitlines()[0].split(": ")[1].split()] for text in (one, four)]
        assert scores[0][0] < 0.1
        assert number("score", one) > 0.9
        assert scores[1] == pytest.approx(scores[0], abs=1e-3)
        assert number("score", four) == pytest.approx(number("score", one), abs=1e-3)
        assert number("norm", four) == pytest.approx(number("norm", one), rel=1e-6)
