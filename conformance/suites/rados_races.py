"""Two gateways on one cluster, many clients, gateways killed and OSDs paused at random: python -m rados_races

Options: [--seconds N] [--seed N] [--local]. What clients do and what they hold the store to is in
`race_clients`. With --local one gateway on the local engine is killed and started again, which needs
no cluster; two gateways cannot share a local store.
"""

import argparse
import contextlib
import random
import sys
import threading
import time

from ceph_cluster import OSDS, Cluster
from rados_server import RadosPortico
from race_clients import (
    AnyGateway, Ender, Filler, Lister, Owner, Overwriter, Rivalry, SlowReader, Swapper, stored,
)
from report import Report
from s3_clients.context import boto
from s3_kill import BUCKET, PART_BYTES_MIN, Key, checked
from server import Portico

GRACE_SECONDS = 5
# Few keys a shard, so that a storm of minutes splits many.
SHARDS = "[index]\nshard_keys_max = 200\n"
INLINE_BYTES_MAX = 16 << 10
OBJECT_BYTES = 4 << 20
RECLAIM_SECONDS_MAX = 240
JOIN_SECONDS_MAX = 150


class LocalPortico(Portico):
    """One gateway on the local engine, in the place of two."""

    def objects(self) -> list[str] | None:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run rados-s3-races")
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--local", action="store_true", help="one gateway on the local engine")
    options = parser.parse_args()
    report = Report("rados-s3-races")
    settings = {"part_bytes_min": PART_BYTES_MIN, "grace_seconds": GRACE_SECONDS, "tables": SHARDS}
    cluster = None
    with contextlib.ExitStack() as stack:
        if options.local:
            servers = [stack.enter_context(LocalPortico(**settings))]
        else:
            cluster = stack.enter_context(Cluster())
            first = stack.enter_context(RadosPortico(cluster, "races", **settings))
            servers = [first, stack.enter_context(RadosPortico(cluster, "races", beside=first, **settings))]
        race(report, servers, options, cluster)
    return report.finish()


def race(report: Report, servers: list[Portico], options, cluster: Cluster | None) -> None:
    boto(servers[0].endpoints()[0]).create_bucket(Bucket=BUCKET)
    storm = Storm(servers, options.seed, cluster)
    report.run(f"a storm of {options.seconds} s, seed {options.seed}", lambda: storm.run(options.seconds))
    for kind in dict.fromkeys(type(client) for client in storm.clients):
        report.run(kind.holds, lambda: storm.judge(kind))
    for number, server in enumerate(servers, 1):
        name = f"gateway {number} holds what was acknowledged, and no half object"
        report.run(name, lambda: hold(server, storm.keys))
    if servers[0].objects() is not None:
        report.run("every data object belongs to what is listed", lambda: no_orphans(servers[0]))
    report.run("everything deleted is given back", lambda: given_back(servers))


class Pauser(threading.Thread):
    """Stops one OSD after the other for some seconds, too short for the cluster to give it up."""

    def __init__(self, cluster: Cluster, stop: threading.Event, seed: int):
        super().__init__(daemon=True)
        self.cluster, self.stop, self.random = cluster, stop, random.Random(seed)
        self.pauses = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.wait(self.random.uniform(2, 8)):
                self.pause(self.random.randrange(OSDS), self.random.uniform(2, 6))
        except BaseException as error:
            self.error = error

    def pause(self, osd: int, seconds: float) -> None:
        self.cluster.pause(osd)
        try:
            # Also at the end of the storm: gateways then end and begin while it stands still.
            time.sleep(seconds)
        finally:
            self.cluster.resume(osd)
        self.pauses += 1


class Storm:
    """The clients, what they know, and the hand at the power switch."""

    def __init__(self, servers: list[Portico], seed: int, cluster: Cluster | None = None):
        self.servers = servers
        self.random = random.Random(seed)
        self.stop = threading.Event()
        self.pauser = Pauser(cluster, self.stop, seed) if cluster else None
        self.kills = self.splits = 0
        gateways = AnyGateway(servers)
        # Each client writes its own part of the model.
        self.parts: list[dict[str, Key]] = []
        seeds = iter(range(seed * 1000, seed * 1000 + 1000))

        def part(*names: str) -> dict[str, Key]:
            self.parts.append({name: Key() for name in names})
            return self.parts[-1]

        def client(kind, *rest):
            return kind(gateways, self.stop, next(seeds), *rest)

        owners = [client(Owner, part(*(f"own/{owner}/{key}" for key in range(8)))) for owner in range(4)]
        fillers = [client(Filler, part()) for _ in range(3)]
        writers = []
        for name in ("long/0", "long/1"):
            writers.append(client(Overwriter, name, part(name)[name]))
        self.chains = ["swap/0", "swap/1"]
        for name in self.chains:
            gateways.put_object(Bucket=BUCKET, Key=name, Body=b"")
        self.clients = [
            *owners, *fillers, *writers, client(Lister, fillers),
            *(client(SlowReader, writer) for writer in writers for _ in range(2)),
            *(client(Swapper, name) for name in self.chains for _ in range(3)),
            client(Rivalry, part()), client(Ender, part()),
        ]

    @property
    def keys(self) -> dict[str, Key]:
        return {name: key for part in self.parts for name, key in part.items()}

    def run(self, seconds: int) -> None:
        for client in self.clients:
            client.start()
        if self.pauser:
            self.pauser.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not any(client.error for client in self.clients):
            self.stop.wait(self.random.uniform(6, 12))
            self.kill(self.random.choice(self.servers))
        self.stop.set()
        for client in self.clients:
            client.join(JOIN_SECONDS_MAX)
            assert not client.is_alive(), f"{type(client).__name__} hangs"
        if self.pauser:
            self.pauser.join(JOIN_SECONDS_MAX)
            assert not self.pauser.is_alive() and not self.pauser.error, f"pausing OSDs failed: {self.pauser.error}"
        pauses = self.pauser.pauses if self.pauser else 0
        self.splits += sum(server.metric("portico_bucket_splits_total") for server in self.servers)
        turns = sum(client.turns for client in self.clients)
        unknown = sum(client.unknown for client in self.clients)
        print(f"{turns} turns of {len(self.clients)} clients, {unknown} with an unknown outcome, "
              f"{self.kills} kills, {pauses} pauses of an OSD, {self.splits:.0f} splits")
        assert self.kills and self.splits and (pauses or not self.pauser), "the storm was none"

    def kill(self, server: Portico) -> None:
        with contextlib.suppress(OSError):
            self.splits += server.metric("portico_bucket_splits_total")
        server.kill()
        self.kills += 1
        time.sleep(self.random.uniform(0, 2))
        server.start()

    def judge(self, kind: type) -> None:
        clients = [client for client in self.clients if type(client) is kind]
        for client in clients:
            if client.error:
                raise client.error
            client.finished()
        counts = [client.turns for client in clients]
        print(f"  {kind.__name__}: {sum(counts)} turns, {sum(client.unknown for client in clients)} unknown")
        assert min(counts) > 0, f"one of them did nothing: {counts}"


def hold(server: Portico, keys: dict[str, Key]) -> None:
    """All is listed that should be there, as it was acknowledged, and nothing else."""
    client = boto(server.endpoints()[0], read_timeout=120)
    listed = listing(client)
    unknown = {name for name in set(listed) - set(keys) if not name.startswith("swap/")}
    assert not unknown, f"listed and never put: {sorted(unknown)[:5]}"
    for name, key in keys.items():
        if name.startswith("fill/") and name in listed:
            # Their bytes are their names; sizes tell enough of thousands.
            assert listed[name]["Size"] == len(name), f"{name} has {listed[name]['Size']} bytes"
            continue
        state = stored(client, name) if name in listed else None
        assert key.allows(state), f"{name} holds {state}, acknowledged was {key.acknowledged}, asked {key.asked}"


def listing(client) -> dict[str, dict]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return {item["Key"]: item for page in pages for item in page.get("Contents", [])}


def no_orphans(server: RadosPortico) -> None:
    """When uploads are aborted and the grace is over, the data pool has the objects of the listing."""
    client = boto(server.endpoints()[0], read_timeout=120)
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET):
        for upload in page.get("Uploads", []):
            client.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    wanted = sum(map(data_objects, listing(client).values()))
    found = settled(server, wanted)
    print(f"{found} objects in the data pool, {wanted} belong to what is listed")
    assert found == wanted, f"{found} objects are in the data pool, {wanted} belong to what is listed"


def data_objects(item: dict) -> int:
    """How many objects of the data pool hold a listed object."""
    tag = item["ETag"].strip('"')
    if "-" in tag:
        # No part of this suite is larger than one object.
        return int(tag.split("-")[1])
    return -(-item["Size"] // OBJECT_BYTES) if item["Size"] > INLINE_BYTES_MAX else 0


def settled(server: RadosPortico, wanted: int) -> int:
    """Waits until the data pool holds so many objects, or for as long as reclaim may take."""
    deadline = time.monotonic() + RECLAIM_SECONDS_MAX
    while (found := len(server.objects())) != wanted and time.monotonic() < deadline:
        time.sleep(2)
    return found


def given_back(servers: list[Portico]) -> None:
    client = boto(servers[0].endpoints()[0], read_timeout=120)
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET):
        for upload in page.get("Uploads", []):
            client.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    names = list(listing(client))
    for start in range(0, len(names), 1000):
        objects = [{"Key": name} for name in names[start:start + 1000]]
        answer = client.delete_objects(Bucket=BUCKET, Delete={"Objects": objects, "Quiet": True})
        assert not answer.get("Errors"), answer["Errors"][:3]
    boto(servers[-1].endpoints()[0]).delete_bucket(Bucket=BUCKET)
    if servers[0].objects() is None:
        rounds = servers[0].metric("portico_reclaim_rounds_total")
        deadline = time.monotonic() + RECLAIM_SECONDS_MAX
        while servers[0].metric("portico_reclaim_rounds_total") < rounds + GRACE_SECONDS + 5:
            assert time.monotonic() < deadline, "background work does not go on"
            time.sleep(1)
        servers[0].stop()
        objects, blocks = checked(servers[0])
        assert blocks == 0, f"{objects} objects and {blocks} blocks are left"
    else:
        left = settled(servers[0], 0)
        assert left == 0, f"{left} objects are left, among them {servers[0].objects()[:3]}"


if __name__ == "__main__":
    sys.exit(main())
