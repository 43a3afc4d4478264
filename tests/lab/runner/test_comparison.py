from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.sample_tasks import HERE, called
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner import processes, simulation
from thinwire.lab.runner.comparison import LOG, PLAN, Failed, Job, run_all
from thinwire.lab.runner.plan import Plan, PlanError


def job(folder, method="topk", name="Tiny", **settings):
    settings = {"ranks": 2, "transport": "simulated", "steps": 3, "evaluations": 1} | settings
    return Job(Plan(called(name), method, **settings), folder / method)


def ignore(job, event):
    pass


def test_each_run_saves_its_result_its_plan_and_its_log(tmp_path):
    jobs = [job(tmp_path, "topk"), job(tmp_path, "fp16")]
    runs = run_all(jobs, ignore)
    assert [run.label for run in runs] == ["topk", "fp16"]
    for done, run in zip(jobs, runs, strict=True):
        assert Run.load(done.folder / "run.json") == run
        assert (done.folder / PLAN).read_text() == done.plan.to_toml()
        log = (done.folder / LOG).read_text()
        assert log.splitlines()[0] == f"# {done.plan.command()}"
        assert "step 3, test_accuracy" in log


def test_finished_runs_are_kept_and_the_others_executed(tmp_path):
    first = run_all([job(tmp_path, "topk")], ignore)
    seen = []
    again = run_all([job(tmp_path, "topk"), job(tmp_path, "fp16")], lambda which, event: seen.append((which, event)))
    assert again[0] == first[0]
    started = [which.plan.method for which, event in seen if "started" in event]
    kept = [which.plan.method for which, event in seen if "kept" in event]
    assert (started, kept) == (["fp16"], ["topk"])


def test_an_interrupted_comparison_resumes(tmp_path):
    jobs = [job(tmp_path, "topk"), job(tmp_path, "fp16"), job(tmp_path, "sign")]

    def interrupt(which, event):
        if which.plan.method == "fp16" and "loss" in event:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(jobs, interrupt)
    assert jobs[0].finished() is not None
    assert jobs[1].finished() is None
    started = []
    run_all(jobs, lambda which, event: started.append(which.plan.method) if "started" in event else None)
    assert started == ["fp16", "sign"]


def test_a_folder_with_a_run_of_another_plan_is_an_error_and_unchanged(tmp_path):
    run_all([job(tmp_path)], ignore)
    before = (tmp_path / "topk" / "run.json").read_bytes()
    with pytest.raises(PlanError, match=r"contains a run of another plan \(seed 1, not 2\); choose another folder"):
        run_all([job(tmp_path, seed=2)], ignore)
    assert (tmp_path / "topk" / "run.json").read_bytes() == before


def test_a_failed_run_is_reported_and_the_others_are_executed(tmp_path):
    jobs = [job(tmp_path, "topk", "Diverges"), job(tmp_path, "fp16")]
    with pytest.raises(Failed, match="topk, seed 1: diverged: NaN or infinity"):
        run_all(jobs, ignore)
    assert jobs[0].finished() is None
    assert jobs[1].finished() is not None
    assert "NaN or infinity" in (jobs[0].folder / LOG).read_text()


def test_failed_ranks_are_restarted_for_the_next_run(tmp_path):
    settings = {"transport": "processes", "steps": 4}
    named = (("topk", "Dies"), ("fp16", "Tiny"), ("sign", "Breaks"))
    jobs = [job(tmp_path, method, name, **settings) for method, name in named]
    with pytest.raises(Failed) as raised:
        run_all(jobs, ignore)
    message = str(raised.value)
    assert "topk, seed 1: rank 1 was killed by SIGKILL" in message
    assert "sign, seed 1: rank 1 ended with exit code 1: RuntimeError: the third step is too much" in message
    assert all(str(jobs[number].folder / LOG) in message for number in (0, 2))
    assert [one.finished() is not None for one in jobs] == [False, True, False]


def test_a_full_disk_leaves_no_partial_run(tmp_path, monkeypatch):
    done, next_one = job(tmp_path, "topk"), job(tmp_path, "fp16")
    run_all([done], ignore)

    def full(self, target):
        raise OSError(28, "No space left on device", str(target))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            run_all([done, next_one], ignore)
    assert not list(next_one.folder.glob("run.json")) + list(next_one.folder.glob("*.unfinished"))
    assert len(run_all([done, next_one], ignore)) == 2


def test_a_run_of_an_older_task_file_or_version_is_an_error(tmp_path):
    own = tmp_path / "task.py"
    own.write_text(HERE.read_text())
    settings = {"ranks": 2, "transport": "simulated", "steps": 2}
    own_job = Job(Plan(f"{own}:Tiny", "topk", **settings), tmp_path / "run")
    run_all([own_job], ignore)
    assert own_job.finished() is not None
    own.write_text(HERE.read_text() + "\n# changed")
    with pytest.raises(PlanError, match=r"contains a run of another .*task\.py:Tiny"):
        own_job.finished()
    own.write_text(HERE.read_text())
    run = own_job.finished()
    replace(run, version="0.0.0").save(own_job.folder)
    with pytest.raises(PlanError, match=r"another version of thinwire \(0\.0\.0, now"):
        own_job.finished()


def test_a_failure_of_the_ranks_after_a_run_does_not_discard_the_run(tmp_path, monkeypatch):
    jobs = [job(tmp_path, "topk"), job(tmp_path, "fp16")]
    real = simulation.run
    calls = []

    def breaks(plans, on_event, folders):
        calls.append(len(plans))
        real(plans[:1], on_event, folders)
        raise processes.RanksError("rank 1 was killed by SIGABRT")

    monkeypatch.setattr(simulation, "run", breaks)
    assert [run.label for run in run_all(jobs, ignore)] == ["topk", "fp16"]
    assert calls == [2, 1]


def test_simulated_runs_start_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    monkeypatch.setattr("thinwire.lab.recording.record.commit", lambda: None)
    assert len(run_all([job(tmp_path)], ignore)) == 1
