"""Runs a checkout of ceph/s3-tests: python -m s3_tests DIR [--core] [--server NAME] [-k TEXT]

The checkout is the reader's own: it is run where it lies and never written to. `--core` runs the tests
named in s3-tests-core.txt: those that pass on AWS itself and need no versioning, policy, access control
list, encryption, lifecycle or logging. Names and reasons of expected failures are in
expected/s3-tests.txt; a name that fails for another reason than the listed one shows it by its message,
which is printed behind the reason.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import server
from report import Expectation, Report

WORKERS = 4
TEST_SECONDS_MAX = 180
SUITE_SECONDS_MAX = 40 * 60

# Tests that want a user without other buckets; they run one after the other on a server of their own.
ALONE = {"test_list_buckets_paginated"}

# Sections of the suite's configuration: name of the user, name it shows.
USERS = {
    "s3 main": ("testid", "M. Tester"),
    "s3 alt": ("altid", "john.doe"),
    "s3 tenant": ("tenantid", "tenanteduser"),
    "iam": ("iamid", "youruseridhere"),
    "iam root": ("iamroot", "iam root"),
    "iam alt root": ("iamaltroot", "iam alt root"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run s3-tests")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--core", action="store_true", help="only the named core tests")
    parser.add_argument("--server", choices=server.SERVERS, default="portico", help="a peer, to try the suite")
    parser.add_argument("-k", dest="only", default="", help="only tests whose name contains this")
    options = parser.parse_args()
    tests = options.checkout.resolve() / "s3tests/functional"
    if not tests.is_dir():
        raise SystemExit(f"{options.checkout} is no checkout of ceph/s3-tests")
    report = Report("s3-tests")
    core = set((Path(__file__).parent / "s3-tests-core.txt").read_text().split())
    results = []
    for alone in (False, True) if any(options.only in name for name in ALONE) else (False,):
        with server.SERVERS[options.server]() as running:
            results += run(tests, running, core if options.core else set(), options.only, alone)
    for result in sorted(results, key=lambda result: result["name"]):
        if result["result"] == "skipped" and result["name"] not in core:
            # By the suite's own word, which needs no line of ours.
            report.expected[result["name"]] = Expectation(result["name"], "skip", result["message"], "")
        report.add(result["name"], result["result"], result["seconds"], result["message"])
    ran = {result["name"] for result in results}
    if options.core and not options.only:
        for name in sorted(core - ran):
            report.add(name, "failed", note="no test of this name ran")
    print_markers(results)
    if options.core:
        report.expected = {name: line for name, line in report.expected.items() if name in core}
    return report.finish(whole=not options.only)


def run(tests: Path, running: server.Server, core: set, only: str, alone: bool) -> list[dict]:
    """Runs pytest on the suite and returns a record for each test."""
    names, without = (ALONE & core if core else ALONE, set()) if alone else (core, ALONE)
    configuration, results = running.directory / "s3tests.conf", running.directory / "results"
    configuration.write_text(configure(running))
    results.touch()
    command = [
        sys.executable, "-B", "-m", "pytest", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider",
        "-p", "s3_tests_plugin", "-n", "0" if alone else str(WORKERS), f"--timeout={TEST_SECONDS_MAX}",
        "--no-summary", str(tests),
    ]
    environment = os.environ | {
        "S3TEST_CONF": str(configuration), "S3TESTS_RESULTS": str(results),
        "S3TESTS_NAMES": " ".join(names), "S3TESTS_WITHOUT": " ".join(without), "S3TESTS_ONLY": only,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    cut = []
    try:
        finished = subprocess.run(
            command, cwd=tests.parents[1], env=environment, stdin=subprocess.DEVNULL, timeout=SUITE_SECONDS_MAX)
        # 5: no test has a name that was asked for; the report knows which names are missing.
        assert finished.returncode in (0, 1, 5), f"pytest ended with {finished.returncode}"
    except subprocess.TimeoutExpired as error:
        cut = [{"name": "(whole suite)", "markers": [], "result": "failed", "seconds": SUITE_SECONDS_MAX,
                "message": str(error)[-60:]}]
    return [json.loads(line) for line in results.read_text().splitlines()] + cut


def configure(running: server.Server) -> str:
    """The suite's configuration; every user it names is made first."""
    endpoint = running.endpoints()[0]
    host, port = endpoint.url.split("//")[1].split(":")
    lines = ["[DEFAULT]", f"host = {host}", f"port = {port}", "is_secure = False", "ssl_verify = False",
             "[fixtures]", "bucket prefix = portico-{random}-"]
    for section, (name, display) in USERS.items():
        user = running.user(name, display)
        lines += [f"[{section}]", f"display_name = {user.display_name}", f"user_id = {user.id}",
                  f"email = {name}@example.com", f"access_key = {user.access_key}",
                  f"secret_key = {user.secret_key}"]
        if section == "s3 main":
            lines += ["api_name = ", "kms_keyid = testkey-1", "lc_debug_interval = 3"]
        if section == "s3 tenant":
            lines += ["tenant = testx"]
    return "\n".join(lines) + "\n"


def print_markers(results: list[dict]) -> None:
    """Pass, fail and skip for each of the suite's markers and in total."""
    table = collections.defaultdict(collections.Counter)
    for result in results:
        for marker in result["markers"] or ["(none)"]:
            table[marker][result["result"]] += 1
        table["total"][result["result"]] += 1
    print(f"\n{'marker':36}{'passed':>8}{'failed':>8}{'skipped':>9}")
    for marker in sorted(table, key=lambda name: (name == "total", name)):
        count = table[marker]
        print(f"{marker:36}{count['passed']:8}{count['failed']:8}{count['skipped']:9}")
    print()


if __name__ == "__main__":
    sys.exit(main())
