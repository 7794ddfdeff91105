"""Tables of printed results."""

from interp.core.results import table_lines


def test_columns_are_as_wide_as_their_widest_cell():
    rows = [["edge", "verdict", "a name that is longer than any number", "b"], ["0.1 > 1.0 q", "idle", "0.5", "12.25"]]
    head, line = table_lines(rows, n_left=2)
    assert line.startswith("0.1 > 1.0 q  idle   ")
    assert line.endswith("  12.25")
    assert head.index("number") + len("number") == line.index("0.5") + len("0.5")
    assert len(head) == len(line)


def test_no_line_ends_with_blanks():
    lines = table_lines([["kernel", ""], ["linear", ""]])
    assert lines == ["kernel", "linear"]
