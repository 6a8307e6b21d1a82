"""Measures Portico beside its peers: python -m bench_s3 [--short] [--servers a,b]

Rounds are interleaved, so that a busy moment of the machine hits all alike, and the median of each
figure counts. The load runs on the same machine: the rate per CPU second of the server is the figure
to compare, the plain rate shows what a client saw. Peers run with their own defaults, also of when
data is flushed.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass

import install
from report import Report
from server import SERVERS, Server

KIB, MIB = 1024, 1 << 20


@dataclass(frozen=True)
class Measure:
    name: str
    verb: str
    size_bytes: int
    connections: int
    unit: str

    def amount(self, figures: dict) -> float:
        return figures["bytes"] / 1e6 if self.unit == "MB/s" else figures["operations"]


MEASURES = [
    Measure("PUT 4 KiB x32", "put", 4 * KIB, 32, "ops/s"),
    Measure("GET 4 KiB x32", "get", 4 * KIB, 32, "ops/s"),
    Measure("LIST", "list", 4 * KIB, 1, "keys/s"),
    Measure("PUT 64 MiB x8", "put", 64 * MIB, 8, "MB/s"),
    Measure("GET 64 MiB x8", "get", 64 * MIB, 8, "MB/s"),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run bench-s3")
    parser.add_argument("--short", action="store_true", help="3 rounds of 3 s instead of 5 of 8 s")
    parser.add_argument("--servers", default=",".join(SERVERS), help="which, by name, with commas")
    options = parser.parse_args()
    rounds, seconds = (3, 3) if options.short else (5, 8)
    install.run("cargo", "build", "--locked", "--release", "-p", "portico-conformance", "--bin", "s3load")
    report, found = Report("bench-s3"), {}
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(SERVERS[name]()) for name in options.servers.split(",")]
        for round_number in range(rounds):
            for server in servers:
                keys = {}
                for measure in MEASURES:
                    def scenario():
                        figures = load(server, measure, round_number, seconds, keys)
                        found.setdefault((measure.name, server.name), []).append(figures)
                    report.run(f"round {round_number + 1} {server.name} {measure.name}", scenario)
    print(table(MEASURES, options.servers.split(","), found))
    return report.finish()


def load(server: Server, measure: Measure, round_number: int, seconds: int, keys: dict) -> dict:
    """One run of the load generator. A put tells how many keys the get after it finds."""
    large = measure.size_bytes >= MIB
    bucket = f"bench-{round_number}-{measure.size_bytes}"
    settings = {
        "size_bytes": measure.size_bytes, "connections": measure.connections, "seconds": seconds,
        "keys": keys.get(bucket, measure.connections if large else 1_000_000), "pid": server.process.pid,
    }
    if measure.verb == "put":
        s3load(server, "create", bucket, {})
    figures = s3load(server, measure.verb, bucket, settings)
    assert figures["operations"], "nothing was done"
    if measure.verb == "put":
        keys[bucket] = min(settings["keys"], figures["operations"])
    if measure.verb == "list":
        assert figures["operations"] % keys[bucket] == 0, f"{figures['operations']} of {keys[bucket]} keys"
    return figures


def s3load(server: Server, verb: str, bucket: str, settings: dict) -> dict:
    endpoint = server.endpoints()[0]
    settings = settings | {
        "address": endpoint.url.split("//")[1], "access_key": endpoint.access_key,
        "secret_key": endpoint.secret_key, "bucket": bucket,
    }
    command = [str(install.TARGET / "release/s3load"), verb, *(f"{name}={value}" for name, value in settings.items())]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert finished.returncode == 0, finished.stderr[-2000:]
    return json.loads(finished.stdout)


def table(measures: list[Measure], servers: list[str], found: dict) -> str:
    """Median rate, and in brackets the median rate per CPU second of the server."""
    lines = [f"{'median (per server CPU second)':34}" + "".join(f"{name:>22}" for name in servers)]
    for measure in measures:
        cells = []
        for name in servers:
            runs = found.get((measure.name, name))
            if not runs:
                cells.append(f"{'failed':>22}")
                continue
            rate = statistics.median(measure.amount(run) / run["seconds"] for run in runs)
            per_cpu = statistics.median(
                measure.amount(run) / max(run["server_cpu_seconds"], 0.01) for run in runs)
            cells.append(f"{f'{rate:,.0f} ({per_cpu:,.0f})':>22}")
        lines.append(f"{measure.name + ', ' + measure.unit:34}" + "".join(cells))
        cells = [f"{latency(found.get((measure.name, name))):>22}" for name in servers]
        lines.append(f"{'  p50 / p99':34}" + "".join(cells))
    return "\n".join(lines)


def latency(runs: list | None) -> str:
    if not runs:
        return "-"
    half, tail = (statistics.median(run[field] for run in runs) / 1000 for field in ("p50_us", "p99_us"))
    return f"{half:.1f} / {tail:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
