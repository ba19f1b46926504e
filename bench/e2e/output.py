"""Results as a table on the terminal and as a file, NAME.jsonl, of which bench/tools/plot makes NAME.svg.

NAME.jsonl has the form of cattn-bench's results: a head that describes the measurement, then a line for each row.
"""

import datetime
import json
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parents[2]
PINNED_IN = ("bench/peers/requirements.txt", "bench/peers/requirements-serve.txt", "bench/peers/setup.sh", "requirements-clients.txt")
TEXT_WIDTH = -12  # what cattn-bench's columns have instead of digits where they hold text
MACHINE_KEYS = ("cpu", "compiler", "flags", "read_gbs")


def cell(value, digits):
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.{digits}f}"


def changed_options(args, parser, names):
    """Those of the named options that differ from their defaults, as the end of a command line."""
    options = ""
    for name in names:
        value = getattr(args, name)
        if value != parser.get_default(name):
            text = "" if value is True else f" {shlex.quote(str(value))}"
            options += f" --{name.replace('_', '-')}{text}"
    return options


def versions(packages):
    """The packages, each with the version that the set-up of peers and clients installs."""
    pins = "\n".join((ROOT / name).read_text() for name in PINNED_IN)
    return ", ".join(re.search(rf"\b{package}==[\w.]+", pins)[0].replace("==", " ") for package in packages)


def lines_of(head, rows):
    return "".join(json.dumps(line) + "\n" for line in (head, *rows))


class Output:
    """columns: (key, heading, digits after the point or None for text). notes: paragraphs below the table.

    plot: the fields that bench/tools/plot reads, or None."""

    def __init__(self, args, name, title, columns, notes=(), plot=None):
        self.args, self.name, self.title, self.columns, self.plot = args, name, title, columns, plot
        self.notes, self.rows = list(notes), []
        self.date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        print(f"\n{name}: {title}\n" + "  ".join(f"{c[1]:>12}" for c in columns), flush=True)

    def add(self, row):
        self.rows.append(row)
        print("  ".join(f"{cell(row.get(k), d):>12}" for k, _, d in self.columns), flush=True)
        self.write()  # a run that is interrupted later loses nothing that was measured

    def head(self):
        head = {
            "results": self.name,
            "title": self.title,
            "date": self.date,
            "command": self.args.command(self.name),
            **{key: self.args.machine.get(key) for key in MACHINE_KEYS},
            "threads": self.args.threads,
            "quick": self.args.quick,
            "peers": versions(self.args.peers_of(self.name)),
            "columns": [[key, heading, TEXT_WIDTH if digits is None else digits] for key, heading, digits in self.columns],
            "note": "\n\n".join(self.notes) + "\n" if self.notes else "",
        }
        return {**head, "plot": self.plot} if self.plot else head

    def path(self):
        return self.args.output / f"{self.name}.jsonl"

    def write(self):
        self.args.output.mkdir(parents=True, exist_ok=True)
        self.path().write_text(lines_of(self.head(), self.rows))

    def close(self):
        for note in self.notes:
            print(note)
        self.write()
