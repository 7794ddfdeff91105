"""Scatter plots, slopes and small attention maps: marks, positions, colours and labels."""

import re
from html import unescape

import numpy as np
import pandas as pd
import pytest

from interp.tasks import Dyck
from interp.view.charts import COLOURS, chart_svg, pattern_maps
from interp.view.points import scatter, slopes

ODD = ["(", ")", "'", '"', "\\", "]", "<", "&", "{", "\\", "'", "é"]


def marks(svg, kind):
    """Accessible labels of the marks of a kind, one dict per mark."""
    labels = re.findall(rf'aria-label="([^"]*)"[^>]*aria-roledescription="{kind}"', svg)
    return [dict(entry.split(": ", 1) for entry in unescape(label).split("; ")) for label in labels]


def texts(svg):
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def labels_of(svg, anchor):
    """Labels along one axis: `middle` for x, `end` for y; titles are larger, names of maps are at 0."""
    texts = re.findall(
        rf'<text text-anchor="{anchor}" transform="translate\(([^)]*)\)"[^>]*10px[^>]*>([^<]*)</text>', svg
    )
    return [unescape(text) for position, text in texts if not position.startswith("0,")]


def paths(svg, width):
    """Lines of a stroke width, each as its points from left to right."""
    paths = re.findall(rf'd="M([^"]*)"[^>]*stroke-width="{width}"', svg)
    return [[tuple(map(float, point.split(","))) for point in line.split("L")] for line in paths]


@pytest.fixture
def models():
    return pd.DataFrame(
        {
            "balance violation": [0.5, 1.0, 2.0, 0.25],
            "accuracy": [0.9, 0.8, 0.4, 1.0],
            "models": ["plain", "with <it>", "plain", "with <it>"],
            "seed": [0, 0, 1, 1],
        }
    )


def test_scatter_has_a_point_per_row_and_a_colour_per_series(models):
    title = "40 models & \"more\" <than> 'that'"
    svg = chart_svg(scatter(models, x="balance violation", y="accuracy", series="models", title=title))
    points = marks(svg, "point")
    assert len(points) == 4
    for row, mark in zip(models.to_dict("records"), points, strict=True):
        assert float(mark["balance violation"]) == row["balance violation"]
        assert float(mark["accuracy"]) == row["accuracy"]
        assert (mark["models"], mark["seed"]) == (row["models"], str(row["seed"]))
    assert {title, "plain", "with <it>", "balance violation", "accuracy"} <= set(texts(svg))
    colours = re.findall(r'aria-roledescription="point"[^>]*fill="([^"]*)"', svg)
    assert colours == [COLOURS[0], COLOURS[1]] * 2


def test_positions_of_scatter_points(models):
    chart = scatter(models, x="balance violation", y="accuracy", series="models", title="t", zero=True)
    positions = re.findall(r'roledescription="point" transform="translate\(([^,]*),([^)]*)\)"', chart_svg(chart))
    x, y = np.array(positions, dtype=float).T
    # with both axes from zero: right of the left edge and above the bottom in proportion
    np.testing.assert_allclose(x / models["balance violation"], x[0] / 0.5, rtol=1e-3)
    up = 220 - y
    np.testing.assert_allclose(up / models["accuracy"], up[3], rtol=1e-3)
    assert (x > 0).all()


def test_scatter_starts_at_zero_if_requested(models):
    for zero in (False, True):
        svg = chart_svg(scatter(models, x="accuracy", y="balance violation", series="models", title="t", zero=zero))
        assert ("'accuracy' for a linear scale with values from 0.0 to 1.0" in svg) == zero
        assert ("'balance violation' for a linear scale with values from 0.0 to 2.0" in svg) == zero


@pytest.mark.parametrize("name", [*Dyck().outcomes[2:], "loss [nats]"])
def test_scatter_of_a_column_with_a_dot_in_its_name(models, name):
    table = models.rename(columns={"accuracy": name})
    assert (
        len(marks(chart_svg(scatter(table, x="balance violation", y=name, series="models", title="t")), "point")) == 4
    )


@pytest.fixture
def pairs():
    rows = [("with", 4.0, 40.0), ("with", 6.0, 10.0), ("with", 8.0, 40.0), ("plain", 2.0, 20.0), ("plain", 8.0, 40.0),
            ("plain", 5.0, 30.0)]  # fmt: skip
    table = pd.DataFrame(rows, columns=["loss", "violation S / P", "accuracy"]).assign(seed=[0, 1, 2] * 2)
    return table.melt(["loss", "seed"], var_name="measured")


def test_slopes_have_a_line_per_model_and_one_for_the_mean_in_every_panel(pairs):
    svg = chart_svg(slopes(pairs, x="loss", y="value", line="seed", panel="measured", title="what it changed"))
    assert {"with", "plain", "violation S / P", "accuracy", "what it changed"} <= set(texts(svg))
    thin, mean = paths(svg, "1.2"), paths(svg, "3.5")
    assert (len(thin), len(mean)) == (2 * 3, 2)
    for panel, (name, panel_table) in enumerate(pairs.groupby("measured", sort=False)):
        table = panel_table.pivot(index="seed", columns="loss", values="value")
        low, high = panel_table["value"].min(), panel_table["value"].max()
        for line, row in zip(thin[3 * panel : 3 * panel + 3], table.to_dict("records"), strict=True):
            heights = [low + (220 - y) / 220 * (high - low) for _, y in line]
            assert heights == pytest.approx([row["with"], row["plain"]], rel=1e-3), name  # in the table's order
            assert line[0][0] < line[1][0]
        heights = [low + (220 - y) / 220 * (high - low) for _, y in mean[panel]]
        assert heights == pytest.approx([table["with"].mean(), table["plain"].mean()], rel=1e-3)
    points = marks(svg, "point")
    assert len(points) == len(pairs)
    assert {mark["seed"] for mark in points} == {"0", "1", "2"}
    assert labels_of(svg, "middle")[:2] == ["with", "plain"]


def test_pattern_maps_have_a_cell_per_visible_weight(tmp_path):
    maps = {"seed 1": np.tril(np.ones((3, 3))) / [[1], [2], [3]], "seed 0": np.eye(3) * 0.9}
    maps["seed 0"][2, 0], maps["seed 0"][2, 1] = 0.0039, 0.0042
    svg = chart_svg(pattern_maps(maps, tokens=["[START]", "(", ")"], title="patterns"))
    cells = {(mark["map"], int(mark["query"]), int(mark["key"])): mark["weight"] for mark in marks(svg, "rect mark")}
    expected = {
        (name, query, key): weight
        for name, values in maps.items()
        for (query, key), weight in np.ndenumerate(values)
        if weight > 0.004
    }
    assert set(cells) == set(expected)
    assert ("seed 0", 2, 0) not in cells
    for cell, weight in cells.items():
        assert float(weight) == pytest.approx(expected[cell], abs=6e-4)  # three digits
    assert [text for text in texts(svg) if text.startswith("seed")] == ["seed 1", "seed 0"]
    assert "patterns" in texts(svg)


def test_maps_of_many_heads_are_not_too_many_rows():
    maps = {f"0.{head}": np.full((24, 24), 1 / 24) for head in range(10)}
    spec = pattern_maps(maps, tokens=["a"] * 24, title="patterns").to_dict()
    (rows,) = spec["datasets"].values()
    assert len(rows) == 10 * 24 * 24


def test_orientation_and_colour_of_pattern_maps():
    values = np.zeros((3, 3))
    values[2, 0], values[0, 1] = 1.0, 0.1
    svg = chart_svg(pattern_maps({"a": values}, tokens=list("abc"), title="t"))
    cells = re.findall(
        r'query: (\d)[^>]*roledescription="rect mark" d="M([\d.]+),([\d.]+)[^"]*" fill="currentColor" '
        r'opacity="([^"]*)"',
        svg,
    )
    cell_of = {int(query): (float(x), float(y), float(opacity)) for query, x, y, opacity in cells}
    assert cell_of[2][0] < cell_of[0][0]  # key 0 is left of key 1
    assert cell_of[2][1] > cell_of[0][1]
    assert cell_of[2][2] == 1
    assert cell_of[0][2] == 0.1


def test_every_position_is_labelled():
    svg = chart_svg(pattern_maps({"a": np.diag([1.0, 0, 0, 1])}, tokens=["[START]", "(", "[", "(5"], title="t"))
    assert labels_of(svg, "end") == ["·", "(", "[", "·"]
    assert labels_of(svg, "middle") == ["·", "(", "[", "·"]


@pytest.mark.parametrize(
    "tokens",
    [ODD, ODD[::-1], ["'"] * 3, ['"'] * 3, ["\\"] * 3, ["\\", "'"], ["'", '"', "\\"], ["\\", "n"], list("{}<>$%")],
    ids=repr,
)
def test_labels_with_special_characters(tokens):
    svg = chart_svg(pattern_maps({'it\'s "a" map \\': np.eye(len(tokens))}, tokens=tokens, title="t"))
    assert labels_of(svg, "end") == tokens
    assert labels_of(svg, "middle") == tokens
    assert 'it\'s "a" map \\' in texts(svg)
    assert len(marks(svg, "rect mark")) == len(tokens)


def test_labels_beyond_the_basic_plane():
    tokens = ["(", "\N{GRINNING FACE}", ")"]
    svg = chart_svg(pattern_maps({"a": np.eye(3)}, tokens=tokens, title="t"))
    assert labels_of(svg, "end") == tokens


def test_labels_from_a_task():
    task = Dyck(n_types=4)
    batch = task.read("([{<>}])")
    words = task.vocab.words(batch.tokens[0])
    svg = chart_svg(
        pattern_maps({"stack top": task.relations(batch)["stack_top"][0].double().numpy()}, tokens=words, title="t")
    )
    assert labels_of(svg, "end") == ["·", *"([{<>}])"]
    pairs = {(int(mark["query"]), int(mark["key"])) for mark in marks(svg, "rect mark")}
    assert pairs == {(1, 1), (2, 2), (3, 3), (4, 4), (5, 3), (6, 2), (7, 1)}


def test_number_of_maps_per_row():
    maps = {f"seed {i}": np.eye(2) for i in range(4)}
    for columns, rows in ((1, 4), (2, 2), (3, 2), (4, 1)):
        svg = chart_svg(pattern_maps(maps, tokens=["(", ")"], title="t", columns=columns))
        width, height = (float(re.search(rf'{side}="(\d+)"', svg).group(1)) for side in ("width", "height"))
        assert (width // 150, height // 180) == (columns, rows)  # a map, and its name above it
