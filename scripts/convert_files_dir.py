#!/usr/bin/env python3
"""Convert a folder of `chunkllama serve --files-dir` from its first form, in which each file and batch was a record, ID.json, to
the one with an index. No server may use the folder meanwhile.

    scripts/convert_files_dir.py DIR
"""
import fcntl
import json
import os
import pathlib
import re
import sqlite3
import sys

SCHEMA = pathlib.Path(__file__).parent.parent / "serve/batches/schema.sql"
ENDED = ("completed", "failed", "expired", "cancelled")


def requests_of(path):
    """Number, place, size and custom_id of the requests of an input."""
    place, number = 0, 0
    for line in path.read_bytes().split(b"\n"):
        if line.strip(b" \t\r"):
            number += 1
            yield number, place, len(line), json.loads(line.removeprefix(b"\xef\xbb\xbf"))["custom_id"]
        place += len(line) + 1


def records_of(path):
    """The records with the numbers of their requests, up to the first one that is not whole."""
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        whole = re.match(rb'\{"id": "batch_req_([0-9]+)", .*\}\n', line)
        if not whole:
            return
        yield int(whole[1]), line


def insert(index, table, columns):
    names = ", ".join(columns)
    index.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})", list(columns.values()))


def convert(index, folder, record):
    members = record["object"] | {key: record[key] for key in ("sequence", "tenant", "domain")}
    table = members.pop("object")
    members |= members.pop("request_counts", {})
    known = [column[1] for column in index.execute(f"PRAGMA table_info({table})")]
    columns = {key: json.dumps(value) if isinstance(value, dict) else value for key, value in members.items() if key in known}
    runs = table == "batch" and members["status"] not in ENDED and members["total"] > 0
    insert(index, table, columns | ({"completed": 0, "failed": 0} if runs else {}))
    if not runs:
        return
    for number, place, size, custom_id in requests_of(folder / f"{members['input_file_id']}.data"):
        insert(index, "request", {"batch": record["sequence"], "number": number, "place": place, "size": size, "custom_id": custom_id})
    for failed, kind in enumerate(("output", "errors")):
        for number, line in records_of(folder / f"{record[kind]}.data"):
            index.execute("UPDATE request SET failed = ?, record = ? WHERE batch = ? AND number = ?",
                          (failed, line, record["sequence"], number))


def main(folder):
    os.umask(0o077)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"a server uses {folder}; stop it first")
    paths = [path for path in folder.iterdir() if path.name.startswith(("file-", "batch_")) and path.suffix != ".data"]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.suffix == ".json"]
    index = sqlite3.connect(folder / "index.db", isolation_level=None)
    if index.execute("PRAGMA user_version").fetchone()[0]:
        sys.exit(f"{folder} has an index already")
    index.execute("PRAGMA auto_vacuum = FULL")
    index.executescript("BEGIN;" + SCHEMA.read_text(encoding="utf-8"))
    for record in sorted(records, key=lambda record: record["sequence"]):
        convert(index, folder, record)
    index.execute("COMMIT")
    index.close()
    for path in paths:
        path.unlink()
    print(f"{len(records)} files and batches are in {folder}/index.db")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
