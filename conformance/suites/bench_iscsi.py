"""Measures Portico's iSCSI target beside tgt: python -m bench_iscsi [--short]

Two tables: equal durability (every write on stable storage before its answer), and the write cache as
each comes with it. Rounds are interleaved and the median counts. The initiator runs on the same
machine, so the target's CPU time per operation is the figure that carries over.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass

import install
from iscsi_peers import MIB, IscsiPortico, Tgt
from report import Report

KIB = 1 << 10
DISK_MIB = 1024
SPAN_BYTES = 256 * MIB


@dataclass(frozen=True)
class Measure:
    name: str
    direction: str
    size_bytes: int
    depth: int
    random: bool


FILL = Measure("fill", "write", MIB, 4, False)
MEASURES = [
    Measure("read 4 KiB random x1", "read", 4 * KIB, 1, True),
    Measure("read 4 KiB random x32", "read", 4 * KIB, 32, True),
    Measure("write 4 KiB random x1", "write", 4 * KIB, 1, True),
    Measure("write 4 KiB random x32", "write", 4 * KIB, 32, True),
    Measure("read 128 KiB in turn x8", "read", 128 * KIB, 8, False),
    Measure("write 128 KiB in turn x8", "write", 128 * KIB, 8, False),
    Measure("read 1 MiB in turn x4", "read", MIB, 4, False),
    Measure("write 1 MiB in turn x4", "write", MIB, 4, False),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run bench-iscsi")
    parser.add_argument("--short", action="store_true", help="3 rounds of 2 s instead of 5 of 5 s")
    options = parser.parse_args()
    rounds, seconds = (3, 2) if options.short else (5, 5)
    install.iscsi()
    install.run("cargo", "build", "--locked", "--release", "-p", "portico-conformance", "--bin", "iscsiload")
    report = Report("bench-iscsi")
    for title, cache in (("every write durable", False), ("with a write cache", True)):
        found = {}
        with contextlib.ExitStack() as stack:
            servers = [
                stack.enter_context(IscsiPortico([DISK_MIB], write_cache=cache)),
                stack.enter_context(Tgt([DISK_MIB], write_cache=cache)),
            ]
            for server in servers:
                report.run(f"{title}: {server.name}: {FILL.name}", lambda server=server: load(server, FILL, 3))
            for number in range(rounds):
                for measure in MEASURES:
                    for server in servers:
                        def scenario(server=server, measure=measure):
                            figures = load(server, measure, seconds)
                            found.setdefault((measure.name, server.name), []).append(figures)
                        report.run(f"{title}: round {number + 1} {server.name} {measure.name}", scenario)
        print(table(title, [server.name for server in servers], found))
    return report.finish()


def load(server, measure: Measure, seconds: int) -> dict:
    disk = server.disk(1)
    settings = {
        "address": disk.portal, "iqn": disk.iqn, "lun": disk.lun, "bytes": measure.size_bytes,
        "depth": measure.depth, "random": int(measure.random), "seconds": seconds,
        "span_bytes": SPAN_BYTES, "pid": server.process.pid,
    }
    command = [str(install.TARGET / "release/iscsiload"), measure.direction]
    command += [f"{name}={value}" for name, value in settings.items()]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr[-2000:]
    figures = json.loads(finished.stdout)
    assert figures["operations"], "nothing was done"
    return figures


def table(title: str, servers: list[str], found: dict) -> str:
    """Median rate; below it the 99th percentile and the target's CPU time per operation."""
    lines = [f"{title:28}" + "".join(f"{name:>28}" for name in servers)]
    for measure in MEASURES:
        rates, tails = [], []
        for name in servers:
            runs = found.get((measure.name, name))
            if not runs:
                rates.append(f"{'failed':>28}")
                tails.append(f"{'-':>28}")
                continue
            rate = statistics.median(run["operations"] / run["seconds"] for run in runs)
            tail = statistics.median(run["p99_us"] for run in runs)
            cpu = statistics.median(run["server_cpu_seconds"] * 1e6 / run["operations"] for run in runs)
            amount = f"{rate:,.0f}/s" if measure.size_bytes < 128 * KIB else f"{rate * measure.size_bytes / MIB:,.0f} MiB/s"
            rates.append(f"{amount:>28}")
            tails.append(f"{f'p99 {tail:,.0f} us, {cpu:,.1f} us CPU':>28}")
        lines += [f"{measure.name:28}" + "".join(rates), f"{'':28}" + "".join(tails)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
