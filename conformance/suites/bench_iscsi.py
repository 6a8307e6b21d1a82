"""Measures Portico's iSCSI target beside tgt: python -m bench_iscsi [--short]

Two tables: equal durability (every write on stable storage before its answer), and with a write cache.
Rounds are interleaved and the median counts. The initiator runs on the same machine, so the target's CPU
time per operation is the figure that carries over; the initiator's own is told beside it. The last
column is the engine alone: the same load on an image over `local`, without a target.
"""

import argparse
import contextlib
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import install
from iscsi_peers import MIB, IscsiPortico, Tgt
from report import Report
from server import Server

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


class Engine:
    """The engine of Portico in the load's own process."""

    name = "engine alone"

    def __init__(self, write_cache: bool):
        self.write_cache = write_cache
        self.directory = Path(tempfile.mkdtemp(prefix="engine-", dir=install.HOME))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory)

    def settings(self) -> dict:
        return {"directory": self.directory, "durable": int(not self.write_cache)}


@dataclass(frozen=True)
class Target:
    """A target in a process of its own."""

    server: Server

    @property
    def name(self) -> str:
        return self.server.name

    def settings(self) -> dict:
        disk = self.server.disk(1)
        return {"address": disk.portal, "iqn": disk.iqn, "lun": disk.lun, "pid": self.server.process.pid}


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run bench-iscsi")
    parser.add_argument("--short", action="store_true", help="3 rounds of 2 s instead of 5 of 5 s")
    options = parser.parse_args()
    rounds, seconds = (3, 2) if options.short else (5, 5)
    install.iscsi()
    install.run("cargo", "build", "--locked", "--release", "-p", "portico-conformance", "--bin", "iscsiload")
    report = Report("bench-iscsi")
    tables = [compare(report, "every write durable", False, rounds, seconds),
              compare(report, "with a write cache", True, rounds, seconds)]
    print("\n\n".join(tables))
    return report.finish()


def compare(report: Report, title: str, write_cache: bool, rounds: int, seconds: int) -> str:
    found = {}
    with contextlib.ExitStack() as stack:
        portico = stack.enter_context(IscsiPortico([DISK_MIB], write_cache=write_cache))
        tgt = stack.enter_context(Tgt([DISK_MIB], write_cache=write_cache))
        places = [Target(portico), Target(tgt), stack.enter_context(Engine(write_cache))]
        for place in places:
            filling = {"operations": SPAN_BYTES // FILL.size_bytes}
            report.run(f"{title}: {place.name}: {FILL.name}", lambda: load(place, FILL, 0, filling))
        for number in range(rounds):
            for measure in MEASURES:
                for place in places:
                    def scenario():
                        figures = load(place, measure, seconds)
                        found.setdefault((measure.name, place.name), []).append(figures)
                    report.run(f"{title}: round {number + 1}: {place.name}: {measure.name}", scenario)
    return table(title, [place.name for place in places], found)


def load(place, measure: Measure, seconds: int, more: dict | None = None) -> dict:
    settings = place.settings() | {
        "bytes": measure.size_bytes, "depth": measure.depth, "random": int(measure.random),
        "seconds": seconds, "span_bytes": SPAN_BYTES,
    } | (more or {})
    command = [str(install.TARGET / "release/iscsiload"), measure.direction]
    command += [f"{name}={value}" for name, value in settings.items()]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr[-2000:]
    figures = json.loads(finished.stdout)
    assert figures["operations"], "nothing was done"
    return figures


def table(title: str, names: list[str], found: dict) -> str:
    """Median rates; below them the 99th percentile, and CPU time of the target and the initiator in
    microseconds per operation."""
    head = "".join(f"{name:>18}" for name in names)
    lines = [f"{title:28}{head}{'/ ' + names[1]:>10}{'/ engine':>10}"]
    for measure in MEASURES:
        runs = [found.get((measure.name, name), []) for name in names]
        rates = [median(run["operations"] / run["seconds"] for run in some) for some in runs]
        tails = [median(run["p99_us"] for run in some) for some in runs]
        served = [per_operation(some, "server_cpu_seconds") for some in runs]
        asked = [per_operation(some, "own_cpu_seconds") for some in runs]
        lines += [
            line(measure.name, [amount(rate, measure) for rate in rates], rates),
            line("  p99", [f"{tail:,.0f} us" for tail in tails], tails),
            line("  CPU per operation", [f"{cpu:,.1f} us" for cpu in served], served),
            line("  CPU of the initiator", [f"{cpu:,.1f} us" for cpu in asked[:2]], []),
        ]
    return "\n".join(lines)


def line(name: str, cells: list[str], figures: list[float]) -> str:
    """Cells, and how the first figure relates to each other one."""
    ratios = [f"{figures[0] / other:.2f}" if other else "-" for other in figures[1:]]
    return f"{name:28}" + "".join(f"{cell:>18}" for cell in cells) + "".join(f"{ratio:>10}" for ratio in ratios)


def amount(rate: float, measure: Measure) -> str:
    if measure.size_bytes < 128 * KIB:
        return f"{rate:,.0f}/s"
    return f"{rate * measure.size_bytes / 1e6:,.0f} MB/s"


def per_operation(runs: list[dict], name: str) -> float:
    return median(run[name] * 1e6 / run["operations"] for run in runs)


def median(figures) -> float:
    """Not a number where no run was any good."""
    figures = list(figures)
    return statistics.median(figures) if figures else math.nan


if __name__ == "__main__":
    sys.exit(main())
