#!/usr/bin/env python3
"""Run pytest, and each test that fails once more alone. usage: run_pytest.py [arguments of pytest]

A test that passes the second time is FLAKY: both of its outputs are shown, and it is counted apart. Some failures count at once:
of tests that are marked `exact`, and those that show a crash, a server that hangs or a finding of a sanitizer.

The last line is "PASSED FAILED FLAKY", the numbers of tests, for scripts/stages.sh; skipped tests count as none of these.
"""
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as tree

REPORT = pathlib.Path("build/pytest.xml")
MOST_AGAIN = 5  # if more tests fail, their cause is no moment in which the machine was busy
AT_ONCE = re.compile(r"Sanitizer|runtime error:|waited \d+ s for|TimeoutExpired|timed out|assert -(4|6|7|8|11) == |SIG(ILL|ABRT|BUS|FPE|SEGV)")


def run(arguments):
    """The report's test cases; None if pytest wrote no report."""
    REPORT.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1", f"--junitxml={REPORT}", *arguments], check=False)
    return list(tree.parse(REPORT).iter("testcase")) if REPORT.exists() else None


def problems(case):
    return [element for element in case if element.tag in ("failure", "error")]


def text_of(case):
    return "\n".join(f"{problem.get('message')}\n{problem.text}" for problem in problems(case))


def may_run_again(case):
    is_exact = any(entry.get("name") == "exact" for entry in case.iter("property"))
    return not is_exact and case.get("file") and not AT_ONCE.search(text_of(case))


def passes_alone(case):
    name = f"{case.get('file')}::{case.get('name')}"
    print(f"\n--- {name} failed, and runs once more alone", flush=True)
    again = run([name])
    if not again or any(problems(one) for one in again):
        return False
    print(f"\nFLAKY: {name}. Its first output was:\n\n{text_of(case)}\n")
    return True


def main():
    cases = run(sys.argv[1:])
    if not cases:
        print("0 1 0")
        return
    failed = {id(case): case for case in cases if problems(case)}.values()
    flaky = [case for case in failed if len(failed) <= MOST_AGAIN and may_run_again(case) and passes_alone(case)]
    passed = [case for case in cases if not problems(case) and case.find("skipped") is None]
    sys.stdout.flush()
    print(len(passed) + len(flaky), len(failed) - len(flaky), len(flaky))


if __name__ == "__main__":
    main()
