"""bench/tools/plot draws what the rows of results hold."""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from conftest import ROOT
from stored import RESULTS, STORED
from waiting import LIMIT_S

LINES = {"kind": "lines", "x": "n", "y": "rate", "series": "method", "x_label": "sequences", "y_label": "tokens/s", "accent": "ours"}
SVG_TEXT = "{http://www.w3.org/2000/svg}text"


def run(*arguments, status=0, **environment):
    done = subprocess.run([sys.executable, "bench/tools/plot", *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=LIMIT_S, env={**os.environ, **environment})
    assert done.returncode == status, done
    return done.stderr


def test_missing_matplotlib_is_named(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    message = run("results.jsonl", status=1, PYTHONPATH=str(tmp_path))
    assert "python3-matplotlib" in message and "requirements-plots.txt" in message and message.count("\n") == 1


# ---- With matplotlib ----


def of(n, rate, method="ours", **others):
    return {"n": n, "rate": rate, "method": method, **others}


def curves(axes):
    """The series of a panel, without other lines."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def points(axes, kind):
    """What a panel shows: series, x and y, or label and value."""
    if kind in ("lines", "points"):
        return [(name, *map(float, point)) for name, line in curves(axes).items() for point in zip(*line.get_data())]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    if kind == "bars":
        return [(labels[round(bar.get_y() + bar.get_height() / 2)], bar.get_width()) for bar in axes.patches]
    return [(labels[int(dot.get_ydata()[0])], dot.get_xdata()[0]) for dot in axes.lines if dot.get_marker() == "o"]


def key_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.long
@pytest.mark.parametrize("cpu, name", [(cpu, name) for cpu, name, head in STORED if "plot" in head])
def test_stored_rows_are_drawn(cpu, name, plot):
    _, description, rows = plot.load(RESULTS / f"{cpu}.jsonl", name)
    kind, x, y, series, panel = (description.get(field) for field in ("kind", "x", "y", "series", "panel"))
    panels = plot.by_value(rows, panel)
    drawn = plot.draw(description, rows)
    assert len(drawn.axes) == len(panels) and drawn.get_suptitle() == description["y_label"]
    for axes, (name, shown) in zip(drawn.axes, panels.items()):
        over_x = kind in ("lines", "points")
        expected = [(plot.text(r[series]) if series else "", r[x], r[y]) if over_x else (plot.text(r[x]), r[y]) for r in shown]
        assert sorted(points(axes, kind)) == sorted(expected)
        assert axes.get_title("left") == description.get("panel_label", "") + name or axes.get_xlabel() == name
    if "accent" in description and series != x:
        assert description["accent"] in key_of(next(axes for axes in drawn.axes if axes.get_legend()))


@pytest.mark.long
def test_lines(plot):
    """The accent stands out; without numbers there is no line; a key names the lines."""
    rows = [of(1, 10), of(2, 20), of(1, 9, "theirs"), of(2, 19.9, "theirs")]
    axes, = plot.draw(LINES, rows).axes
    drawn = curves(axes)
    assert list(drawn) == key_of(axes) == ["ours", "theirs"] and drawn["ours"].get_linestyle() == "-"
    assert drawn["ours"].get_color() == plot.ACCENT != drawn["theirs"].get_color()
    assert drawn["ours"].get_linewidth() > drawn["theirs"].get_linewidth()
    assert axes.get_xlabel() == "sequences" and axes.figure.get_suptitle() == "tokens/s"
    assert curves(plot.draw({**LINES, "kind": "points"}, rows).axes[0])["ours"].get_linestyle() == "None"


@pytest.mark.long
def test_panels_share_their_y_axis(plot):
    rows = [of(1, 10, p=7), of(2, 90, p=8), of(3, 50, p=9)]
    drawn = plot.draw({**LINES, "panel": "p", "panel_label": "part: "}, rows).axes
    assert [axes.get_title("left") for axes in drawn] == ["part: 7", "part: 8", "part: 9"]
    assert len({axes.get_ylim() for axes in drawn}) == 1 and drawn[0].get_ylim()[1] > 90
    unlabelled = {field: value for field, value in LINES.items() if field != "x_label"}
    assert [axes.get_xlabel() for axes in plot.draw({**unlabelled, "panel": "p"}, rows).axes] == ["7", "8", "9"]


@pytest.mark.long
def test_axes(plot):
    """Logarithmic axes have round ticks, and one whose values include 0 is linear."""
    log = {**LINES, "log_x": True, "log_y": True}
    axes, = plot.draw(log, [of(1, 3), of(64, 20000)]).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log") and list(axes.get_xticks()) == [1, 64]
    assert {"10", "20", "50", "10,000"} <= {axes.yaxis.get_major_formatter()(tick) for tick in axes.get_yticks()}
    axes, = plot.draw(log, [of(0, 0), of(64, 20)]).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear") and axes.get_ylim()[0] < 0
    axes, = plot.draw({**LINES, "from_zero": True}, [of(1, 10), of(2, 20)]).axes
    assert axes.get_ylim()[0] == 0


@pytest.mark.long
def test_limits(plot):
    axes, = plot.draw({**LINES, "limit": "most"}, [of(1, 10, most=15), of(2, 20, most=15)]).axes
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in dashed] == [[15, 15]] and key_of(axes) == ["ours", "limit"]


@pytest.mark.long
def test_bars_show_their_values(plot):
    axes, = plot.draw({"kind": "bars", "x": "what", "y": "ms", "y_label": "ms"},
                      [{"what": "a", "ms": 1234.5}, {"what": "b", "ms": 0.25}]).axes
    assert [text.get_text() for text in axes.texts] == ["1,234", "0.25"] and axes.get_xlim()[0] == 0 and not axes.get_legend()


@pytest.mark.long
def test_dots_have_a_key_and_intervals(plot):
    description = {"kind": "dots", "x": "what", "y": "ratio", "series": "who", "low": "low", "high": "high", "y_label": "ratio", "mark": 1}
    rows = [{"what": "a", "ratio": 1.1, "who": "x", "low": 1.0, "high": 1.3}, {"what": "a", "ratio": 0.9, "who": "y"}]
    axes, = plot.draw(description, rows).axes
    assert points(axes, "dots") == [("a", 1.1), ("a", 0.9)] and key_of(axes) == ["x", "y"]
    assert [tuple(lines.get_segments()[0][:, 0]) for lines in axes.collections] == [(1.0, 1.3), (0.9, 0.9)]
    assert [list(line.get_xdata()) for line in axes.lines if line.get_linestyle() == "--"] == [[1, 1]]


@pytest.fixture
def results(tmp_path):
    """Writes results with these rows."""

    def write(*rows, head=None):
        lines = [{"title": "a < b", "plot": LINES} if head is None else head, *rows]
        (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(tmp_path / "results.jsonl")

    return write


@pytest.mark.long
@pytest.mark.usefixtures("plot")
def test_files(results, tmp_path):
    """The file has a title and its texts as text, and the same rows give the same bytes. Rows without a number at y are left out."""
    path = results(of(1, 10), of(2, 20), of(2, None, "none"), {"note": "no y"})
    run(path)
    run(path, "-o", str(tmp_path / "again.svg"))
    assert (tmp_path / "results.svg").read_text() == (tmp_path / "again.svg").read_text()
    root = xml.etree.ElementTree.parse(tmp_path / "again.svg").getroot()
    texts = ["".join(text.itertext()) for text in root.iter(SVG_TEXT)]
    assert root[0].text == "a < b" and {"sequences", "tokens/s"} <= set(texts) and "none" not in texts


@pytest.mark.long
@pytest.mark.usefixtures("plot")
def test_one_of_several_results(results, tmp_path):
    """It is drawn as if it were alone, beside the file under the names of both."""
    heads = [{"results": name, "title": "t", "plot": LINES} for name in ("a", "b")]
    run(results(of(1, 3), of(2, 7), head=heads[1]), "-o", str(tmp_path / "alone.svg"))
    path = results(of(1, 10), of(2, 20), heads[1], of(1, 3), of(2, 7), head=heads[0])
    run(path, "b")
    assert (tmp_path / "results-b.svg").read_text() == (tmp_path / "alone.svg").read_text()
    for name in ([], ["c"]):
        assert "results.jsonl has the results a, b: name one of them\n" in run(path, *name, status=1)


@pytest.mark.long
@pytest.mark.usefixtures("plot")
def test_mistakes_are_named(results, tmp_path):
    lacks = 'results.jsonl: a row lacks "method", which is the series of the plot: {"n": 2, "rate": 20}\n'
    assert lacks in run(results(of(1, 10), {"n": 2, "rate": 20}), status=1)
    assert 'a row lacks "n", which is the x of the plot: {"n": "two"' in run(results(of(1, 10), of("two", 20)), status=1)
    limited = {"title": "t", "plot": {**LINES, "limit": "most"}}
    assert 'a row lacks "most", which is the limit of the plot' in run(results(of(1, 10), head=limited), status=1)
    assert 'no row has a number at "rate", the y of the plot' in run(results(of(1, None)), status=1)
    assert "its first line describes no plot" in run(results(head={"results": "memory"}), status=1)
    assert "its first line describes no plot" in run(results(head=[1]), status=1)
    (tmp_path / "text.jsonl").write_text("text\n")
    assert "text.jsonl does not consist of lines of JSON: " in run(str(tmp_path / "text.jsonl"), status=1)
    assert "/none/x.jsonl: No such file or directory\n" in run("/none/x.jsonl", status=1)
    assert "/none/x.svg: No such file or directory\n" in run(results(of(1, 10)), "-o", "/none/x.svg", status=1)
