"""Results as a table on the terminal and as files: NAME.json, NAME.md for tools/fill_benchmarks, and NAME.svg by gnuplot."""

import json
import shutil
import subprocess
import sys


def cell(value, digits):
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.{digits}f}"


class Output:
    """columns: (key, heading, digits behind the point or None for text). notes: lines below the table."""

    def __init__(self, args, name, title, columns, notes=()):
        self.args, self.name, self.title, self.columns, self.notes, self.rows = args, name, title, columns, list(notes), []
        print(f"\n{name}: {title}\n" + "  ".join(f"{c[1]:>12}" for c in columns), flush=True)

    def add(self, row):
        self.rows.append(row)
        print("  ".join(f"{cell(row.get(k), d):>12}" for k, _, d in self.columns), flush=True)
        self.write_json()  # what is measured is not lost when a later run is broken off

    def write_json(self):
        self.args.output.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {
                "name": self.name,
                "title": self.title,
                "quick": self.args.quick,
                "machine": self.args.machine,
                "rows": self.rows,
                "notes": self.notes,
            },
            indent=1,
        )
        (self.args.output / f"{self.name}.json").write_text(text + "\n")

    def close(self, plot=None):
        self.write_json()
        heads = " | ".join(c[1] for c in self.columns)
        rules = "|".join("---" if c[2] is None else "--:" for c in self.columns)
        rows = [" | ".join(cell(row.get(k), d) for k, _, d in self.columns) for row in self.rows]
        lines = [
            f"## {self.name}",
            "",
            self.args.machine,
            "",
            self.title,
            "",
            f"| {heads} |",
            f"|{rules}|",
            *(f"| {row} |" for row in rows),
        ]
        for note in self.notes:
            print(note)
            lines += ["", note]
        if plot and self.draw(**plot):
            lines += ["", f"![{self.name}]({self.name}.svg)"]
        (self.args.output / f"{self.name}.md").write_text("\n".join(lines) + "\n")

    def draw(self, x, y, series, x_label, y_label, panel=None, limit=None, log_x=False, log_y=False):
        """A line for each series, a plot beside the others for each panel. False: gnuplot is not installed."""
        rows = [r for r in self.rows if isinstance(r.get(x), (int, float)) and isinstance(r.get(y), (int, float))]
        panels = list(dict.fromkeys(r.get(panel) for r in rows)) or [None]
        blocks, plots = [], []
        for i, p in enumerate(panels):
            parts = []
            for k, s in enumerate(dict.fromkeys(r[series] for r in rows)):
                points = [f"{r[x]} {r[y]}" for r in rows if r.get(panel) == p and r[series] == s]
                if points:
                    blocks.append("\n".join([f"$d{i}_{k} << EOD", *points, "EOD"]))
                    parts.append(f'$d{i}_{k} using 1:2 title "{s}" noenhanced lt {k + 1}')
            parts += [f'{limit} title "limit" dt 2 lc "black" with lines'] if limit else []
            title = f'set title "{panel.replace("_", " ")} {p}"\n' if panel else ""
            plots.append(title + "plot " + ", ".join(parts))
        script = "\n".join([
            f"# gnuplot {self.name}.gp makes {self.name}.svg", *blocks,
            f'set terminal svg size {640 * len(panels)},420 background "white" font "sans,12"', f'set output "{self.name}.svg"',
            f'set xlabel "{x_label}"', f'set ylabel "{y_label}"', "set grid", "set key above horizontal",
            *(["set logscale x 2"] if log_x else []), "set logscale y 10" if log_y else "set yrange [0:]",
            "set style data linespoints", f"set multiplot layout 1,{len(panels)}", *plots, "unset multiplot", ""])  # fmt: skip
        (self.args.output / f"{self.name}.gp").write_text(script)
        if not shutil.which("gnuplot"):
            print(f"{self.name}.svg was not drawn: gnuplot is not installed (package gnuplot-nox)", file=sys.stderr)
            return False
        subprocess.run(["gnuplot", f"{self.name}.gp"], cwd=self.args.output, check=True)
        return True
