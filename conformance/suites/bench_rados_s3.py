"""Measures Portico beside radosgw on one cluster: python -m bench_rados_s3 [--short] [--servers a,b]

As `bench_s3`: interleaved rounds, medians, rates per CPU second of the server beside plain ones. Then
what each request costs the OSDs, and how fast keys in order are put into a new bucket, against the
rate at which one object takes guarded writes to its omap.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys

import install
from bench_s3 import KIB, MIB, Measure, load, s3load, table
from ceph_cluster import CLIENT, META_POOL, OSDS, Cluster
from rados_server import Radosgw, RadosPortico
from report import Report

MEASURES = [
    Measure("PUT 4 KiB x16", "put", 4 * KIB, 16, "ops/s"),
    Measure("GET 4 KiB x16", "get", 4 * KIB, 16, "ops/s"),
    Measure("LIST", "list", 4 * KIB, 1, "keys/s"),
    Measure("PUT 64 KiB x16", "put", 64 * KIB, 16, "ops/s"),
    Measure("GET 64 KiB x16", "get", 64 * KIB, 16, "ops/s"),
    Measure("PUT 64 MiB x4", "put", 64 * MIB, 4, "MB/s"),
    Measure("GET 64 MiB x4", "get", 64 * MIB, 4, "MB/s"),
]
PAGE_KEYS = 1000
ORDERED = "PUT in order x64"
GUARDED = "guarded omap writes x32"
# (measure, least multiple of radosgw).
AIMS = [("PUT 4 KiB x16", 2), ("GET 4 KiB x16", 2)]
ORDERED_AIM = 10
# What is overwritten stays for an hour, with either server.
OSD_BYTES = 24 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run bench-rados-s3")
    parser.add_argument("--short", action="store_true", help="rounds of 3 s instead of 8 s")
    parser.add_argument("--servers", default="portico,radosgw", help="which, by name, with commas")
    options = parser.parse_args()
    seconds = 3 if options.short else 8
    build = ["cargo", "build", "--locked", "--release", "-p", "portico-conformance"]
    install.run(*build, "--bin", "s3load", "--bin", "omapload")
    report, names = Report("bench-rados-s3"), options.servers.split(",")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(osd_bytes=OSD_BYTES))
        servers = [stack.enter_context(SERVERS[name](cluster)) for name in names]
        bench = Bench(report, cluster, seconds)
        for round_number in range(3):
            for server in servers:
                bench.round(server, round_number)
            if "portico" in names:
                bench.ordered(servers[names.index("portico")], round_number)
        print(table(MEASURES, names, bench.found))
        print(bench.costs(names))
        print(bench.aims())
    return report.finish()


def portico(cluster: Cluster) -> RadosPortico:
    """With pauses between background work as an operator has them, as radosgw has."""
    return RadosPortico(cluster, "bench", grace_seconds=3600, interval_seconds=60)


SERVERS = {"portico": portico, "radosgw": Radosgw}


class Bench:
    def __init__(self, report: Report, cluster: Cluster, seconds: int):
        self.report = report
        self.cluster = cluster
        self.seconds = seconds
        self.found: dict[tuple[str, str], list[dict]] = {}

    def round(self, server, round_number: int) -> None:
        keys: dict[str, int] = {}
        for measure in MEASURES:
            def scenario():
                before = self.osd_operations()
                figures = load(server, measure, round_number, self.seconds, keys)
                after = self.osd_operations()
                count = figures["operations"]
                if measure.verb == "list":
                    # Every page of every listing of the whole bucket.
                    held = keys[f"bench-{round_number}-{measure.size_bytes}"]
                    count = figures["operations"] // held * -(-held // PAGE_KEYS)
                figures["osd"] = {name: (after[name] - before[name]) / count for name in after}
                self.found.setdefault((measure.name, server.name), []).append(figures)
            self.report.run(f"round {round_number + 1} {server.name} {measure.name}", scenario)

    def ordered(self, server: RadosPortico, round_number: int) -> None:
        def guarded():
            command = [install.TARGET / "release/omapload", self.cluster.conf, f"client.{CLIENT}",
                       self.cluster.keyring, META_POOL, f"guarded-{round_number}", self.seconds]
            finished = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=180)
            assert finished.returncode == 0, finished.stderr[-2000:]
            self.add(GUARDED, json.loads(finished.stdout))

        def put():
            bucket = f"bench-ordered-{round_number}"
            s3load(server, "create", bucket, {})
            settings = {"size_bytes": 16, "connections": 64, "seconds": self.seconds, "keys": 10_000_000,
                        "pid": server.process.pid}
            self.add(ORDERED, s3load(server, "put", bucket, settings))

        self.report.run(f"round {round_number + 1} {GUARDED}", guarded)
        self.report.run(f"round {round_number + 1} {ORDERED}", put)

    def add(self, name: str, figures: dict) -> None:
        assert figures["operations"], "nothing was done"
        self.found.setdefault((name, "portico"), []).append(figures)

    def osd_operations(self) -> dict[str, int]:
        """Operations that clients had from all OSDs; copies among OSDs are not among them."""
        total = {"op_r": 0, "op_w": 0, "op_rw": 0}
        for osd in range(OSDS):
            counters = self.cluster.counters(f"osd.{osd}")["osd"]
            for name in total:
                total[name] += counters[name]
        return total

    def costs(self, names: list[str]) -> str:
        lines = [f"{'OSD operations: reads + writes':34}" + "".join(f"{name:>22}" for name in names)]
        for measure in MEASURES:
            cells = []
            for name in names:
                runs = [run["osd"] for run in self.found.get((measure.name, name), [])]
                reads = median([run["op_r"] for run in runs])
                # What reads and writes in one operation is a write with a guard, or a call of a class.
                writes = median([run["op_w"] + run["op_rw"] for run in runs])
                cells.append(f"{f'{reads:.2f} + {writes:.2f}':>22}" if runs else f"{'failed':>22}")
            what = "LIST, a page of 1,000 keys" if measure.verb == "list" else measure.name
            lines.append(f"{what:34}" + "".join(cells))
        return "\n".join(lines)

    def aims(self) -> str:
        """Aims, not limits: a busy machine may miss them."""
        lines = []
        for name, least in AIMS:
            lines.append(verdict(f"{name}: Portico / radosgw", self.rate(name, "portico"),
                                 self.rate(name, "radosgw"), least))
        lines.append(verdict(f"{ORDERED} / {GUARDED}", self.rate(ORDERED, "portico"),
                             self.rate(GUARDED, "portico"), ORDERED_AIM))
        return "\n".join(lines)

    def rate(self, measure: str, server: str) -> float:
        return median([run["operations"] / run["seconds"] for run in self.found.get((measure, server), [])])


def median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def verdict(what: str, ours: float, theirs: float, least: int) -> str:
    times = ours / theirs if theirs else 0.0
    word = "met" if times >= least else "missed"
    return f"{what}: {ours:,.0f}/s / {theirs:,.0f}/s = {times:.1f}, aim {least}: {word}"


if __name__ == "__main__":
    sys.exit(main())
