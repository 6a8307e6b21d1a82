"""The RADOS engine on a real cluster: python -m rados_s3 [--only PART] [--keys N]

Its parts: `contract` (the suite that every engine keeps), `clients` (real clients against one gateway,
then written through one and read through another), `image` (images beside RBD's own tools), `full`,
`freeze`, `fenced`, `ended` and `omap`.
"""

import argparse
import os
import subprocess
import sys
import time

import front
import install
from ceph_cluster import EC_POOL, META_POOL, Cluster
from rados_faults import ended, fenced, freeze, full
from rados_server import RadosPortico
from report import Report
from s3_clients.context import boto
from s3_clients.run import Run

CONTRACT_SECONDS_MAX = 20 * 60
SHARD_KEYS_MAX = 50_000
# Each has a row for its entry and one for its data.
MANY_KEYS = 60_000
PUTS_PER_SECOND_MIN = 200
SCRUB_SECONDS_MAX = 300


def main() -> int:
    parts = {"contract": contract, "image": image, "clients": clients, "full": full, "freeze": freeze,
             "fenced": fenced, "ended": ended, "omap": lambda report, cluster: omap(report, cluster, options.keys)}
    parser = argparse.ArgumentParser(prog="conformance/run rados")
    parser.add_argument("--only", choices=parts, action="append", help="this part, may be repeated")
    parser.add_argument("--keys", type=int, default=MANY_KEYS, help="that part `omap` puts into one bucket")
    options = parser.parse_args()
    report = Report("rados")
    with Cluster() as cluster:
        print(f"the cluster is healthy and has {cluster.memory_bytes() >> 20} MiB in memory")
        for name in options.only or parts:
            started = time.monotonic()
            parts[name](report, cluster)
            print(f"{name} took {time.monotonic() - started:.0f} s")
    return report.finish()


def contract(report: Report, cluster: Cluster) -> None:
    report.run("the contract of engines", lambda: rust(cluster, "rados"))
    # A full pool is not healthy, and `freeze` ends with a cluster that is.
    report.run("its full pool is full no more",
               lambda: cluster.ceph("osd", "pool", "set-quota", "portico-contract-full", "max_bytes", "0"))


def image(report: Report, cluster: Cluster) -> None:
    report.run("images and RBD's own tools", lambda: rust(cluster, "rados_image"))


def rust(cluster: Cluster, target: str) -> None:
    """The Rust target finds the cluster by the environment."""
    os.environ |= cluster.variables()
    command = ["cargo", "test", "--locked", "-p", "portico-conformance", "--features", "rados-cluster",
               "--test", target]
    status, output = front.limited([*command, "--", "--nocapture", "--test-threads=1"], CONTRACT_SECONDS_MAX)
    passed, failed, _ = front.rust_counts(output)
    assert status == 0 and passed and not failed, f"{failed} failed, {passed} passed, status {status}"


def clients(report: Report, cluster: Cluster) -> None:
    with RadosPortico(cluster, "one") as server:
        Run(report, server.directory, short=True, title="one gateway: ").against(server.endpoints())
    # On the second pool, with erasure coding.
    with RadosPortico(cluster, "two", EC_POOL) as writer:
        with RadosPortico(cluster, "two", EC_POOL, beside=writer) as reader:
            run = Run(report, writer.directory, short=True, title="two gateways: ")
            run.against(writer.endpoints(), reader.endpoints())


def omap(report: Report, cluster: Cluster, keys: int) -> None:
    """The cluster itself counts the keys of index objects, in a deep scrub."""
    with RadosPortico(cluster, "omap") as server:
        report.run(f"{keys} keys are put", lambda: put_many(server, keys))
        report.run("no object has more keys than a shard may have", lambda: scrub(cluster, SHARD_KEYS_MAX, False))
    # Else it might not have looked at all.
    report.run("the cluster does warn when its limit is lower", lambda: scrub(cluster, SHARD_KEYS_MAX // 10, True))


def put_many(server: RadosPortico, keys: int) -> None:
    install.run("cargo", "build", "--locked", "--release", "-p", "portico-conformance", "--bin", "s3load")
    endpoint = server.endpoints()[0]
    boto(endpoint).create_bucket(Bucket="many")
    settings = {
        "address": endpoint.url.split("//")[1], "access_key": endpoint.access_key, "bucket": "many",
        "secret_key": endpoint.secret_key, "size_bytes": 16, "connections": 128, "keys": keys,
    }
    command = [str(install.TARGET / "release/s3load"), "fill", *(f"{name}={value}" for name, value in settings.items())]
    subprocess.run(command, check=True, capture_output=True, timeout=60 + keys / PUTS_PER_SECOND_MIN)
    pages = boto(endpoint).get_paginator("list_objects_v2").paginate(Bucket="many")
    total = sum(page["KeyCount"] for page in pages)
    shards = cluster_shards(server)
    print(f"{total} keys in {shards} shards")
    assert total == keys and shards > 2, f"{total} keys in {shards} shards"


def cluster_shards(server: RadosPortico) -> int:
    names = server.cluster.rados("-p", META_POOL, "-N", server.namespace, "ls").split("\n")
    return sum(name.startswith("bucket.shard.") for name in names)


def scrub(cluster: Cluster, keys_max: int, warns: bool) -> None:
    """Deep-scrubs the meta pool with this limit; whether LARGE_OMAP_OBJECTS is complained of."""
    cluster.ceph("config", "set", "osd", "osd_deep_scrub_large_omap_object_key_threshold", str(keys_max))

    def stamps():
        groups = cluster.ask("pg", "ls-by-pool", META_POOL)["pg_stats"]
        return {group["pgid"]: group["last_deep_scrub_stamp"] for group in groups}

    before = stamps()
    cluster.ceph("osd", "pool", "deep-scrub", META_POOL)
    cluster.wait_for("a deep scrub", SCRUB_SECONDS_MAX,
                     lambda: all(stamp != before[group] for group, stamp in stamps().items()))
    # The manager tells the monitor every few seconds.
    time.sleep(10)
    found = "LARGE_OMAP_OBJECTS" in cluster.health()["checks"]
    assert found == warns, f"large omap objects: {found}\n{cluster.ceph('health', 'detail')}"


if __name__ == "__main__":
    sys.exit(main())
