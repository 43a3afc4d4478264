import io

import pytest
from rich.console import Console

import thinwire
from thinwire.lab.sizing import scale
from thinwire.lab.sizing.scale import DENSE, GATHERED, GIVEN, HALF, SHARDED
from thinwire.lab.sizing.sizes import Sizer

ELEMENTS = 61_706  # of LeNet


@pytest.fixture(scope="module")
def topk():
    return scale.scale("topk", "lenet", "2..1024", "100mbit", latency_ms=2, compute_ms=30)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("2..16", [2, 4, 8, 16]),
        ("3..17", [4, 8, 16]),
        ("8..8", [8]),
        (" 2 .. 4 ", [2, 4]),
        ("12", [12]),
        ("10,2, 6,2", [2, 6, 10]),
    ],
)
def test_ranks_are_a_range_of_powers_of_two_or_a_list(text, ranks):
    assert scale.parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "many", "2..", "5..7", "16..2", "1,2", "0", "-2..8", "2..1000000000", "2;4"])
def test_an_invalid_number_of_ranks_is_an_error(text):
    with pytest.raises(ValueError, match="ranks"):
        scale.parse_ranks(text)


def test_dense_is_an_all_reduce_of_rounded_shards(topk):
    for ranks, load in topk.forms[DENSE].items():
        assert load.link == 2 * (ranks - 1) * 4 * -(-ELEMENTS // ranks)
        assert load.payload == 4 * ELEMENTS
    assert topk.forms[HALF][512].link == topk.forms[DENSE][512].link / 2


def test_gathered_grows_with_every_rank_and_sharded_stays_flat(topk):
    gathered, sharded = topk.forms[GIVEN], topk.forms[SHARDED]
    assert GATHERED not in topk.forms, "the given method is already gathered"
    assert all(load.link == (ranks - 1) * load.payload for ranks, load in gathered.items())
    assert gathered[256].link == 255 * gathered[2].link
    assert sharded[32].link < 3 * sharded[2].link
    given = scale.scale("int8", "lenet", "2,64")
    assert SHARDED not in given.forms
    assert given.forms[GATHERED][64].link > 20 * given.forms[GIVEN][64].link


def test_bytes_equal_those_of_size_up_to_the_rounding_of_shards(topk):
    ranks = 8
    sizer = Sizer.of_model("lenet", ranks, steps=2)
    for form, method in ((GIVEN, "topk"), (HALF, "fp16"), (DENSE, "dense")):
        strategy = thinwire.strategy_of(method)
        _, link, _ = sizer.simulated(strategy, list(strategy.units(sizer.replica)), servers=())
        assert topk.forms[form][ranks].link == pytest.approx(link, abs=2 * 4 * ranks)  # shards are rounded up


def test_time_is_the_sum_of_computation_bytes_and_latency(topk):
    load = topk.forms[SHARDED][16]
    assert load.exchanges == 2
    assert topk.seconds(SHARDED, 16) == pytest.approx(0.030 + load.link * 8 / 100e6 + 2 * 0.002)


def test_the_slower_direction_of_a_link_determines_the_time():
    scaled = scale.scale("fp16", "lenet", "4", "50mbit/10mbit")
    assert scaled.seconds(DENSE, 4) == pytest.approx(scaled.forms[DENSE][4].link * 8 / 10e6)


def test_the_crossing_with_dense_is_found_exactly(topk):
    payload = topk.forms[GIVEN][2].payload
    first = next(n for n in range(2, 1025) if (n - 1) * payload >= 2 * (n - 1) * 4 * -(-ELEMENTS // n))
    assert 128 < first < 512, "between two listed numbers of ranks"
    assert topk.crossings[0] == f"This method: carries as much as dense or more from {first} ranks on."


def test_methods_that_never_and_always_carry_less_than_dense_are_reported():
    (server,) = scale.scale("server", "lenet", "8..64").crossings
    assert "as much as dense or more from 8 ranks on" in server
    (low_rank,) = scale.scale("powersgd", "lenet", "2..64").crossings
    assert "less than dense up to 64 ranks" in low_rank


def test_the_dictionary_has_all_loads_and_crossings(topk):
    fields = topk.as_dict()
    assert fields["forms"].keys() == topk.forms.keys()
    row = fields["forms"][GIVEN][3]
    assert row["ranks"] == 16
    assert row["link"] == topk.forms[GIVEN][16].link
    assert row["seconds"] == topk.seconds(GIVEN, 16)
    assert fields["crossings"] == list(topk.crossings)


def test_the_tables_fit_a_terminal_and_show_the_growth(topk):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(topk.shown())
    text = console.export_text()
    assert "…" not in text
    growth = next(line for line in text.splitlines() if "growth" in line).split()
    assert growth[1][-1] == "█", "gathered carries the most"
    assert len(growth[1]) == len(topk.ranks)
    for sentence in topk.crossings:
        assert sentence in text


@pytest.mark.parametrize(("name", "start"), [("scale.png", b"\x89PNG"), ("scale.svg", b"<?xml")])
def test_the_picture_is_saved_in_the_format_of_its_suffix(topk, tmp_path, name, start):
    topk.draw(tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "topkk"},
        {"model": "lenett"},
        {"link": "fast"},
        {"ranks": "1"},
        {"latency_ms": -1.0},
        {"compute_ms": float("nan")},
        {"link": "star:1gbit"},
        {"method": "server:dgc"},
        {"method": "Server(TopK(0.01), Nonzero())"},
    ],
)
def test_invalid_arguments_are_errors(wrong):
    with pytest.raises(
        ValueError, match=r"topkk|lenett|fast|ranks|latency|computation|star|depends on how ranks differ"
    ):
        scale.scale(**({"method": "fp16", "model": "lenet", "ranks": "2"} | wrong))


@pytest.mark.parametrize("method", ["dpsgd", "powergossip", "sgp"])
def test_decentralized_methods_are_an_error_that_names_other_commands(method):
    with pytest.raises(ValueError, match=r"exchanges with neighbors only.*`thinwire size`"):
        scale.scale(method, "lenet", "2..8")
