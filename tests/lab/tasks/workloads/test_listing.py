from rich.console import Console

from thinwire.lab.tasks.workloads import WORKLOADS, listed, shown


def test_every_task_is_described_by_one_sentence():
    for task in listed().values():
        assert task["about"].endswith(".")
        assert 20 < len(task["about"]) < 100


def test_listed_parameters_equal_those_of_the_models():
    for name in ("digits-cnn", "shakespeare-gpt"):
        assert listed()[name]["parameters"] == sum(p.numel() for p in WORKLOADS[name].model().parameters())


def test_the_table_shows_the_listed_values():
    console = Console(width=200)
    with console.capture() as capture:
        console.print(shown())
    for name, task in listed().items():
        (line,) = (line for line in capture.get().splitlines() if f"{name}," in line)
        assert f"{task['parameters']:,}" in line
        assert task["metric"].removeprefix("test_").replace("_", " ") in line
