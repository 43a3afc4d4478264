from hypothesis import given
from hypothesis import strategies as st

from thinwire.lab.report import names

ends = st.lists(st.tuples(st.floats(0, 400), st.text("abc", min_size=1, max_size=30)), min_size=1, max_size=12)


@given(ends)
def test_no_label_covers_another_or_its_lead_line(ends):
    rows = names.rows(ends)
    boxes = [(x, x + names.width(label), row) for (x, label), row in zip(ends, rows, strict=True)]
    for i, (left, right, row) in enumerate(boxes):
        for j, (x, _, other) in enumerate(boxes):
            if i != j and left <= x < right:
                # The other starts within this label, so it must be nearer to the plot: its lead line is free.
                assert other != row
                assert other < row or x == left


def test_labels_with_enough_space_share_the_first_row():
    assert names.rows([(0, "dense"), (200, "fp16"), (100, "topk")]) == [0, 0, 0]


def test_long_labels_are_shortened():
    assert names.shown("ErrorFeedback(Chain(TopK(0.01), Cast('float16')))") == "ErrorFeedback(C…"
