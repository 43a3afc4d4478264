"""docs/workloads.md agrees with the tasks."""

import re
from pathlib import Path

import torch

from thinwire.lab.tasks.workloads import listed, named

PAGE = (Path(__file__).parents[4] / "docs" / "workloads.md").read_text()


def test_the_table_has_every_task():
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` (\|.*)$", PAGE.partition("\n## ")[0], re.M))
    tasks = listed()
    assert list(rows) == list(tasks)
    for name, task in tasks.items():
        small, full = task["budgets"]["small"], task["budgets"]["full"]
        small_text = f"{small['epochs']:g} epoch" + ("s" if small["epochs"] != 1 else "")
        if small["training"]:
            small_text += f" of {small['training']:,} images"
        assert f"| {task['parameters']:,} |" in rows[name]
        assert f"| {task['batch']} |" in rows[name]
        plateau = task["budgets"].get("plateau")
        plateau_text = f"{plateau['epochs']} epochs" if plateau else "-"
        assert f"| {small_text} | {plateau_text} | {full['epochs']} epochs |" in rows[name]
        assert rows[name].endswith(
            f"| {task['metric'].removeprefix('test_').replace('_', ' ').replace('iou', 'IoU')} |"
        )


def test_the_example_of_a_task_works(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "spirals.py").write_text(example)
    task = named(f"{tmp_path / 'spirals.py'}:Spirals")
    training, test = task.load(None)
    torch.manual_seed(0)
    model = task.model()
    optimizer = task.optimizer(model)
    schedule = task.schedule(optimizer, 600)
    generator = torch.Generator().manual_seed(0)
    for _ in range(600):
        inputs, targets = training.batch(torch.randint(len(training), (task.batch,), generator=generator), generator)
        optimizer.zero_grad()
        task.loss(model, inputs, targets).backward()
        task.adjust(model)
        optimizer.step()
        schedule.step()
    assert task.evaluate(model.eval(), test, len(test))[task.metric] > 0.9


def test_links_lead_to_existing_files():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert links
    assert all((Path(__file__).parents[4] / "docs" / link).exists() for link in links)
