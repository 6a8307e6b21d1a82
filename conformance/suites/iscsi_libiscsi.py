"""Runs the whole iscsi-test-cu of libiscsi: python -m iscsi_libiscsi [--target portico|tgt] [--only SUITE] [--short]

Destructive, over two portals, SANITIZE allowed, and the tests of write protection on a disk of their
own. CUnit counts a skipped test as passed; here each test is told apart by what it printed. tgt does the
same beside it: its figures are printed, not judged.
"""

import argparse
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import install
from iscsi_peers import Disk, IscsiPortico, Tgt
from report import Report

SIZE_MIB = 256
# SANITIZE writes 256 MiB a second at most: on this much it is at work for 8 s at least. The test of
# resets looks at it up to 5 s after it began.
LARGE_MIB = 2048
RUN_SECONDS_MAX = 240

USUAL, PROTECTED, NATIVE, LARGE = range(1, 5)
# What needs another disk than the usual one: suites, or single tests.
LUNS = {
    "ReadOnly": PROTECTED,
    # Counts logical blocks where it means physical ones: right only where they are the same.
    "GetLBAStatus.UnmapSingle": NATIVE,
    "Sanitize.Reset": LARGE,
}
# The write may have ended when the abort comes. The test then asks for "task does not exist", and SAM-5 7.2
# has FUNCTION COMPLETE for a command "that was aborted or was not in the task set" too.
EITHER_WAY = {"iSCSITMF.AbortTaskSimpleAsync": "CU_ASSERT_EQUAL(state.wr_good,0)"}
# Takes longer than all others together: it looks once a minute whether SANITIZE has ended.
SLOW = "Sanitize.Reset"


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run iscsi-libiscsi")
    parser.add_argument("--target", choices=["portico", "tgt"], help="one of them alone")
    parser.add_argument("--only", help="one suite by its name, such as Unmap")
    parser.add_argument("--short", action="store_true", help=f"Portico alone, without {SLOW}")
    options = parser.parse_args()
    install.iscsi()
    tests = [name for name in listed() if options.only in (None, suite_of(name))]
    if options.short:
        tests = [name for name in tests if name != SLOW]
        options.target = "portico"
    if options.target == "tgt":
        return beside(tests)
    report = Report("iscsi-libiscsi")
    with IscsiPortico([SIZE_MIB, SIZE_MIB]) as server:
        server.protect(PROTECTED)
        server.add(NATIVE, SIZE_MIB, "--block-size", "4096")
        server.add(LARGE, LARGE_MIB)
        for outcome in outcomes(server, tests):
            report.add(*outcome)
    print(f"{len(report.outcomes)} tests of {len(set(map(suite_of, tests)))} suites")
    if options.target is None:
        beside(tests)
    return report.finish(whole=not options.only)


def beside(tests: list[str]) -> int:
    """The same on tgt, whose failures are shown."""
    count = {"passed": 0, "failed": 0, "skipped": 0}
    with Tgt([SIZE_MIB, SIZE_MIB]) as server:
        server.protect(PROTECTED)
        server.add(NATIVE, SIZE_MIB, block_bytes=4096)
        server.add(LARGE, LARGE_MIB)
        for name, result, seconds, note in outcomes(server, tests):
            count[result] += 1
            if result == "failed":
                print(f"tgt failed {seconds:.1f} s {name}: {note}", flush=True)
    print("tgt:", ", ".join(f"{number} {result}" for result, number in count.items()), flush=True)
    return 0


def listed() -> list[str]:
    """All tests, as SUITE.TEST: those of the first family, which holds every one."""
    shown = subprocess.run(["iscsi-test-cu", "--list"], capture_output=True, text=True, timeout=60)
    names = re.findall(r"^ALL\.(\w+\.\S+)$", shown.stdout, re.MULTILINE)
    assert len(names) >= 230, f"iscsi-test-cu lists {len(names)} tests"
    return names


def suite_of(test: str) -> str:
    return test.split(".")[0]


def outcomes(server: IscsiPortico | Tgt, tests: list[str]) -> Iterator[tuple[str, str, float, str]]:
    """Name, result, seconds and note of each test, as they come."""
    for suite, members in itertools.groupby(tests, suite_of):
        members = list(members)
        # One run for a suite, unless tests of it need disks of their own.
        runs = [[name] for name in members] if LUNS.keys() & set(members) else [members]
        for names in runs:
            lun = LUNS.get(suite, LUNS.get(names[0], USUAL))
            pattern = f"ALL.{names[0] if len(names) == 1 else suite}"
            output, ended, seconds = run(pattern, server.disk(lun), server.disk(lun, portal=1))
            found = results(output)
            for name in names:
                missing = ("failed", f"didn't run: {ended}: {output[-300:]}")
                result, note = found.get(name.split(".", 1)[1], missing)
                if result == "failed" and is_either_way(name, note):
                    result, note = "passed", ""
                yield name, result, seconds / len(names), note


def is_either_way(name: str, note: str) -> bool:
    """Whether the assertion that another right answer breaks is the only one that failed."""
    failed = re.findall(r" - (CU_\w+\(.*?\))(?= \d+\. |$)", note)
    return failed == [EITHER_WAY.get(name)]


def run(pattern: str, disk: Disk, second: Disk) -> tuple[str, str, float]:
    """What it printed, how it ended, and the seconds it took."""
    command = ["iscsi-test-cu", "-d", "-S", "-v", "-t", pattern, disk.url, second.url]
    started = time.monotonic()
    try:
        finished = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", timeout=RUN_SECONDS_MAX)
        output, ended = finished.stdout, f"status {finished.returncode}"
    except subprocess.TimeoutExpired as stopped:
        output, ended = (stopped.stdout or b"").decode(errors="replace"), f"stopped after {RUN_SECONDS_MAX} s"
    return output, ended, time.monotonic() - started


def results(output: str) -> dict[str, tuple[str, str]]:
    """What each test came to: name -> (result, what it said)."""
    parts = re.split(r"^\s*Test: (\S+) \.\.\.", output.split("Run Summary")[0], flags=re.MULTILINE)
    found = {}
    for name, said in zip(parts[1::2], parts[2::2]):
        # The verdict begins a line, or is all there is. Behind it stands what the next test says while it
        # is set up.
        verdict = re.search(r"^(passed|FAILED)", said, re.MULTILINE)
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
