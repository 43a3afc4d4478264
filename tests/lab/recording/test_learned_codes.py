import pytest
import torch

from tests.lab.runner.test_simulation import run_of
from thinwire.inspect import Learning
from thinwire.lab.recording.learned_codes import Codes
from thinwire.lab.report import summary
from thinwire.lab.report.charts import lines
from thinwire.lab.report.charts.style import looks

PARAMETERS = {"a": torch.zeros(10), "b": torch.zeros(5), "c": torch.zeros(7)}
CODE = "LGC(8, rate=3e-3, check_every=3, bound=0.999)"
DEEP = f"WarmUp(2, DGC(by=LeaderTopK(0.2, values={CODE}, order='value', ends=True), outside=0.0))"


def test_bytes_are_those_of_the_steps_that_send_codes():
    codes, payload = Codes(), {"a,b": 0, "c": 0}
    states = [None, True, True, False, False, True, False]  # after each step, whether the next is a learning step
    for step, learns in enumerate(states, start=1):
        payload = {"a,b": payload["a,b"] + 10**step, "c": payload["c"] + 5}
        other = {"a,b": 3 * payload["a,b"]}
        codes.add(step, {} if learns is None else {"a,b": Learning(1 / step, 0, learns)}, [payload, other], PARAMETERS)
    result = codes.as_dict()
    # Step 2 was still dense; 3, 4 and 7 learned; 5 and 6 sent codes.
    assert result["learning"] == [[3, 4], [7, 7]]
    assert result["coded"] == {"steps": 2, "dense": 2 * 60, "payload": 2 * (10**5 + 10**6)}
    assert result["errors"] == [[step, 1 / step] for step in range(2, 8)]
    assert codes.as_dict(payload=7.2)["coded"]["payload"] == 7


def test_an_unchanged_error_is_recorded_once():
    codes = Codes()
    for step in range(1, 5):
        codes.add(step, {"a": Learning(0.5, 0, False)}, [{"a": step}], PARAMETERS)
    assert codes.as_dict()["errors"] == [[1, 0.5]]
    assert codes.as_dict()["learning"] == [[1, 1]]


def test_methods_without_learned_codes_record_nothing():
    assert run_of().learned == {}


@pytest.mark.filterwarnings("ignore:after step")
def test_a_run_records_its_codes_and_a_report_plots_them():
    run = run_of(method=DEEP, steps=16)
    assert run.learned["learning"] == [[3, 10]]
    assert run.learned["coded"]["steps"] == 6
    assert run.learned["coded"]["dense"] > run.learned["coded"]["payload"] > 0
    (section,) = summary.sections([run])
    chart = lines.learned(section, looks([section]))
    assert chart is not None
    assert "Error of learned codes" in chart.title
    (without,) = summary.sections([run_of()])
    assert lines.learned(without, looks([without])) is None
