"""Runs the whole iscsi-test-cu of libiscsi: python -m iscsi_libiscsi [--target portico|tgt] [--only FAMILY]

Destructive, over two portals, SANITIZE allowed, and the tests of write protection on a disk of their
own. CUnit counts a skipped test as passed; here each test is told apart by what it printed.
"""

import argparse
import contextlib
import re
import subprocess
import sys
import time

import install
from iscsi_peers import Disk, IscsiPortico, Tgt
from report import Report

SIZE_MIB = 256
FAMILY_SECONDS_MAX = 240
# Suites that need a disk that refuses writes.
READ_ONLY = {"ReadOnly"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run iscsi-libiscsi")
    parser.add_argument("--target", default="portico", choices=["portico", "tgt"])
    parser.add_argument("--only", help="one suite by its name, such as Unmap")
    options = parser.parse_args()
    install.iscsi()
    # Another target has failures of its own: they are shown, not judged.
    report = Report("iscsi-libiscsi" if options.target == "portico" else f"iscsi-libiscsi-{options.target}")
    families = [options.only] if options.only else listed()
    kind = {"portico": IscsiPortico, "tgt": Tgt}[options.target]
    with kind([SIZE_MIB, SIZE_MIB]) as server:
        with contextlib.suppress(AttributeError):
            server.protect(2)
        for family in families:
            lun = 2 if family in READ_ONLY else 1
            run(report, family, server.disk(lun), server.disk(lun, portal=1))
    print(f"{len(report.outcomes)} tests of {len(families)} suites")
    return report.finish(whole=not options.only and options.target == "portico")


def listed() -> list[str]:
    """The suites of the first family, which holds all tests."""
    shown = subprocess.run(["iscsi-test-cu", "--list"], capture_output=True, text=True, timeout=60)
    names = re.findall(r"^ALL\.(\w+)$", shown.stdout, re.MULTILINE)
    assert len(names) > 40, f"iscsi-test-cu lists {len(names)} suites"
    return names


def run(report: Report, family: str, disk: Disk, second: Disk) -> None:
    expected = tests_of(family)
    command = ["iscsi-test-cu", "-d", "-S", "-v", "-t", f"ALL.{family}", disk.url, second.url]
    started = time.monotonic()
    try:
        finished = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", timeout=FAMILY_SECONDS_MAX)
        output, ended = finished.stdout, f"status {finished.returncode}"
    except subprocess.TimeoutExpired as stopped:
        output, ended = (stopped.stdout or b"").decode(errors="replace"), f"stopped after {FAMILY_SECONDS_MAX} s"
    found = results(output)
    share = (time.monotonic() - started) / max(len(expected), 1)
    for test in expected:
        result, note = found.get(test, ("failed", f"didn't run: {ended}: {output[-300:]}"))
        report.add(f"{family}.{test}", result, share, note)


def tests_of(family: str) -> list[str]:
    shown = subprocess.run(["iscsi-test-cu", "--list"], capture_output=True, text=True, timeout=60)
    names = re.findall(rf"^ALL\.{family}\.(\S+)$", shown.stdout, re.MULTILINE)
    assert names, f"iscsi-test-cu lists no test of {family}"
    return names


def results(output: str) -> dict[str, tuple[str, str]]:
    """What each test came to: name -> (result, what it said)."""
    parts = re.split(r"^\s*Test: (\S+) \.\.\.", output.split("Run Summary")[0], flags=re.MULTILINE)
    found = {}
    for name, said in zip(parts[1::2], parts[2::2]):
        # Behind the verdict stands what the next test says while it is set up.
        verdict = re.search(r"(?<!\[)(passed|FAILED)$", said, re.MULTILINE)
        body = said[:verdict.end()] if verdict else said
        if verdict is None:
            found[name] = ("failed", f"ended in the midst: {said[-300:]}")
        elif verdict[1] == "FAILED":
            found[name] = ("failed", reason(body + said[verdict.end():], "[FAILED]"))
        elif "[SKIPPED]" in body:
            found[name] = ("skipped", reason(body, "[SKIPPED]"))
        else:
            found[name] = ("passed", "")
    return found


def reason(said: str, mark: str) -> str:
    lines = [line.strip() for line in said.splitlines() if mark in line]
    return "; ".join(lines[:2]) or " ".join(said.split())[-300:]


if __name__ == "__main__":
    sys.exit(main())
