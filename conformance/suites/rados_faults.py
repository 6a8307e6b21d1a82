"""What a cluster does to the gateway above it: it is full, it freezes, an OSD dies, it is blocklisted."""

import hashlib
import json
import re
import statistics
import threading
import time
from pathlib import Path

from botocore.exceptions import ClientError
from ceph_cluster import DATA_POOL, META_POOL, OSDS, Cluster
from race_clients import AnyGateway, Client, Owner, Swapper, ask, stored
from rados_server import RadosPortico
from report import Report
from s3_clients.context import boto
from s3_kill import BUCKET, PART_BYTES_MIN, Key, digest

MIB = 1 << 20
QUOTA_BYTES = 48 * MIB
# Monitor and manager take some seconds each to notice.
NOTICED_SECONDS_MAX = 90
NEARFULL_PUTS = 40
MEMORY_BYTES = 64 * MIB
FROZEN_SECONDS = 30
GOES_ON_SECONDS_MAX = 60
BULK_CLIENTS = 48
# Bodies on their way twice (as received, and in librados' messages), and the rest of the program.
GROWS_BYTES_MAX = 2 * MEMORY_BYTES + 64 * MIB


def full(report: Report, cluster: Cluster) -> None:
    with RadosPortico(cluster, "full", grace_seconds=1) as server:
        client = boto(server.endpoints()[0], read_timeout=120)
        client.create_bucket(Bucket=BUCKET)
        kept: dict[str, bytes] = {}
        report.run("quota: writes are refused when the pool is full", lambda: fill(cluster, client, kept))
        refused_and_back(report, "quota", server, client, kept)
        cluster.ceph("osd", "pool", "set-quota", DATA_POOL, "max_bytes", "0")
        report.run("nearfull: everything goes on", lambda: nearly_full(cluster, server, client, kept))
        report.run("full OSDs: writes are refused", lambda: full_osds(cluster, client, kept))
        refused_and_back(report, "full OSDs", server, client, kept, lambda: ratios(cluster, 0.85, 0.90, 0.95))


def refused_and_back(report, title, server, client, kept, relieve=lambda: None) -> None:
    """Of a full store: what can be read, deleted, and that the room comes back."""
    report.run(f"{title}: what was acknowledged reads back", lambda: compare(client, kept))
    report.run(f"{title}: every object can be deleted", lambda: delete(server, client, kept))
    relieve()
    report.run(f"{title}: writes go on when there is room", lambda: until_written(server.cluster, client, kept))


def fill(cluster: Cluster, client, kept: dict) -> None:
    # What others keep in the pool counts too, and stays when everything of this part is deleted.
    quota = stored_bytes(cluster)[DATA_POOL] + QUOTA_BYTES
    cluster.ceph("osd", "pool", "set-quota", DATA_POOL, "max_bytes", str(quota))
    deadline = time.monotonic() + NOTICED_SECONDS_MAX
    number = 0
    while (status := put(client, kept, f"quota/{number:04}")) == 200:
        number += 1
        assert time.monotonic() < deadline, f"{number} MiB were taken, {QUOTA_BYTES >> 20} are allowed"
        # Beyond the quota it is the monitor's turn.
        time.sleep(0.5 if number * MIB > QUOTA_BYTES else 0)
    assert status == 507 and number * MIB >= QUOTA_BYTES // 2, f"refused with {status} after {number} MiB"


def put(client, kept: dict, key: str) -> int:
    """The status of putting 1 MiB; whoever is refused is told that there is no room."""
    body = hashlib.sha256(key.encode()).digest() * (MIB // 32)
    try:
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert status in (503, 507), f"refused with {status}: {error}"
        return status
    kept[key] = body
    return 200


def compare(client, kept: dict) -> None:
    assert kept, "nothing was put"
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    listed = [item["Key"] for page in pages for item in page.get("Contents", [])]
    assert listed == sorted(kept), f"{len(listed)} keys are listed, {len(kept)} were acknowledged"
    for key, body in kept.items():
        assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body, f"{key} differs"


def delete(server: RadosPortico, client, kept: dict) -> None:
    """From the listing, and after the grace from the pool."""
    for key in kept:
        client.delete_object(Bucket=BUCKET, Key=key)
    kept.clear()
    deadline = time.monotonic() + NOTICED_SECONDS_MAX
    while left := server.objects():
        assert time.monotonic() < deadline, f"{len(left)} objects stay in the pool"
        time.sleep(1)


def until_written(cluster: Cluster, client, kept: dict) -> None:
    deadline = time.monotonic() + NOTICED_SECONDS_MAX
    while (status := put(client, kept, "again")) != 200:
        assert time.monotonic() < deadline, f"still refused with {status}; the cluster says {pool_state(cluster)}"
        time.sleep(1)
    compare(client, kept)


def pool_state(cluster: Cluster) -> str:
    """Tells a cluster that is slow to notice from a gateway that is."""
    flags = {pool["pool_name"]: pool["flags_names"] for pool in cluster.ask("osd", "dump")["pools"]}
    return f"stored {stored_bytes(cluster)}, flags {flags}, {cluster.health()['checks']}"


def stored_bytes(cluster: Cluster) -> dict[str, int]:
    """By pool, copies not counted."""
    return {pool["name"]: pool["stats"]["stored"] for pool in cluster.ask("df")["pools"]}


def ratios(cluster: Cluster, nearfull: float, backfillfull: float, full_: float) -> None:
    for name, ratio in (("nearfull", nearfull), ("backfillfull", backfillfull), ("full", full_)):
        cluster.ceph("osd", f"set-{name}-ratio", str(ratio))


def nearly_full(cluster: Cluster, server: RadosPortico, client, kept: dict) -> None:
    """It is told, and nothing is refused or slower: docs/decisions/0006-nearly-full.md."""
    before = [timed_put(client, kept, f"before/{number}") for number in range(NEARFULL_PUTS)]
    ratios(cluster, 0.001, 0.90, 0.95)
    cluster.wait_for("OSD_NEARFULL", NOTICED_SECONDS_MAX, lambda: "OSD_NEARFULL" in cluster.health()["checks"])
    cluster.wait_for("the gateway's notice", NOTICED_SECONDS_MAX, lambda: tells_nearly_full(server) == [1, 1])
    during = [timed_put(client, kept, f"nearfull/{number}") for number in range(NEARFULL_PUTS)]
    print(f"PUT of 1 MiB, median of {NEARFULL_PUTS}: {statistics.median(before) * 1000:.0f} ms with room, "
          f"{statistics.median(during) * 1000:.0f} ms when nearly full")
    assert f"pool {DATA_POOL} is nearly full" in server.log.read_text(), "the log does not tell"
    ratios(cluster, 0.85, 0.90, 0.95)
    cluster.wait_for("the end of it", NOTICED_SECONDS_MAX, lambda: tells_nearly_full(server) == [0, 0])


def timed_put(client, kept: dict, key: str) -> float:
    asked = time.monotonic()
    status = put(client, kept, key)
    assert status == 200, f"{key} was refused with {status}"
    return time.monotonic() - asked


def tells_nearly_full(server: RadosPortico) -> list[int]:
    """What the metrics say of the gateway's two pools."""
    page = server.page("/metrics")[1]
    return [int(value) for value in re.findall(r"^portico_rados_pool_nearly_full\{.*\} (\d)$", page, re.MULTILINE)]


def full_osds(cluster: Cluster, client, kept: dict) -> None:
    ratios(cluster, 0.001, 0.002, 0.003)
    cluster.wait_for("OSD_FULL", NOTICED_SECONDS_MAX, lambda: "OSD_FULL" in cluster.health()["checks"])
    deadline, number = time.monotonic() + NOTICED_SECONDS_MAX, 0
    while (status := put(client, kept, f"osds/{number}")) != 507:
        assert time.monotonic() < deadline, f"still answered with {status}"
        number += 1
        time.sleep(0.5)


def ended(report: Report, cluster: Cluster) -> None:
    with RadosPortico(cluster, "ended") as server:
        report.run("a clean stop leaves no name and no entry on the blocklist", lambda: stopped(cluster, server))
        report.run("a killed gateway's name goes when it is fenced, its entry stays", lambda: fenced_names(cluster, server))


def stopped(cluster: Cluster, server: RadosPortico) -> None:
    before = blocklist(cluster)
    assert len(session_names(server)) == 1, f"one session answers as the node: {session_names(server)}"
    for _ in range(2):
        server.stop()
        assert not session_names(server), f"{session_names(server)} stay behind a clean stop"
        server.start()
    assert blocklist(cluster) == before, "a clean stop was fenced"


def fenced_names(cluster: Cluster, server: RadosPortico) -> None:
    for _ in range(2):
        before, names = blocklist(cluster), session_names(server)
        server.kill()
        assert session_names(server) == names, "nobody knows yet that it ended"
        server.start()
        # Nobody waits for the removal.
        cluster.wait_for("the name's end", NOTICED_SECONDS_MAX, lambda: not names & session_names(server))
        assert len(session_names(server)) == 1, f"one session answers as the node: {session_names(server)}"
        assert len(blocklist(cluster) - before) == 1, "one session was fenced"


def session_names(server: RadosPortico) -> set[str]:
    names = server.cluster.rados("-p", META_POOL, "-N", server.namespace, "ls").split("\n")
    return {name for name in names if name.startswith("portico_session.")}


def blocklist(cluster: Cluster) -> set[str]:
    # A sentence stands behind the document.
    listed, _ = json.JSONDecoder().raw_decode(cluster.ceph("osd", "blocklist", "ls", "-f", "json").lstrip())
    return {entry["addr"] for entry in listed}


class Bulk(Client):
    """Puts 4 MiB under a key of its own again and again."""

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, name: str):
        super().__init__(gateways, stop, seed)
        self.name_of_key, self.key = name, Key()
        self.block = self.random.randbytes(4 * MIB)

    def turn(self) -> None:
        body = b"%012d" % (self.turns + self.unknown) + self.block
        self.key.asked.append(digest(body))
        ask(lambda: self.client.put_object(Bucket=BUCKET, Key=self.name_of_key, Body=body))
        self.key.acknowledged, self.key.asked = digest(body), []

    def finished(self) -> None:
        state = stored(self.client, self.name_of_key)
        assert self.key.allows(state), f"{self.name_of_key} holds what was written before"


def freeze(report: Report, cluster: Cluster) -> None:
    tables = f"[limits]\nmemory_bytes = {MEMORY_BYTES}\n"
    with RadosPortico(cluster, "freeze", tables=tables, part_bytes_min=PART_BYTES_MIN) as server:
        boto(server.endpoints()[0]).create_bucket(Bucket=BUCKET)
        boto(server.endpoints()[0]).put_object(Bucket=BUCKET, Key="swap", Body=b"")
        load = Load(server)
        with load:
            report.run(f"frozen for {FROZEN_SECONDS} s: memory is bounded, the process answers",
                       lambda: frozen(cluster, server))
            report.run("thawed: every client goes on", load.goes_on)
            report.run("an OSD is killed under load: every client goes on", lambda: killed(cluster, load))
        report.run("nothing acknowledged is lost, nothing late or twice", load.judge)
        report.run("the cluster is healthy again", cluster.wait_healthy)


def fenced(report: Report, cluster: Cluster) -> None:
    with RadosPortico(cluster, "fenced", part_bytes_min=PART_BYTES_MIN) as server:
        boto(server.endpoints()[0]).create_bucket(Bucket=BUCKET)
        boto(server.endpoints()[0]).put_object(Bucket=BUCKET, Key="swap", Body=b"")
        load = Load(server, bulk_clients=4)
        with load:
            for number in (1, 2):
                report.run(f"blocklisted under load, time {number}: every client goes on, without a restart",
                           lambda: blocklisted(cluster, server, load, number))
        report.run("fences lost nothing acknowledged, and nothing came late or twice", load.judge)


def blocklisted(cluster: Cluster, server: RadosPortico, load: "Load", number: int) -> None:
    watchers = cluster.rados("-p", META_POOL, "-N", server.namespace, "listwatchers", "portico_node.first")
    addresses = re.findall(r"watcher=(\S+) client", watchers)
    assert len(addresses) == 1, f"one session answers as the node: {watchers!r}"
    process, since = server.process.pid, time.monotonic()
    cluster.ceph("osd", "blocklist", "add", addresses[0], "3600")

    def reopened():
        return f"\nportico_session_reopened_total {number}\n" in server.page("/metrics")[1]

    cluster.wait_for("a new session", GOES_ON_SECONDS_MAX, reopened)
    print(f"a new session {time.monotonic() - since:.1f} s after the command")
    load.goes_on()
    assert server.page("/health/ready") == (200, "ready\n") and server.process.pid == process


class Load:
    """Clients that know what they were told."""

    def __init__(self, server: RadosPortico, bulk_clients: int = BULK_CLIENTS):
        gateways = AnyGateway([server])
        self.stop = threading.Event()
        self.clients = [
            *(Bulk(gateways, self.stop, 100 + number, f"bulk/{number}") for number in range(bulk_clients)),
            *(Owner(gateways, self.stop, 200 + number, {f"own/{number}/{key}": Key() for key in range(4)})
              for number in range(4)),
            *(Swapper(gateways, self.stop, 300 + number, "swap") for number in range(3)),
        ]

    def __enter__(self):
        for client in self.clients:
            client.start()
        self.goes_on()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for client in self.clients:
            client.join(150)

    def goes_on(self) -> None:
        """Within a while each client is acknowledged something that it asks for from now on."""
        deadline = time.monotonic() + GOES_ON_SECONDS_MAX
        before = [client.turns for client in self.clients]
        while waiting := [client for client, turns in zip(self.clients, before) if client.turns < turns + 2]:
            for client in self.clients:
                if client.error:
                    raise client.error
            assert time.monotonic() < deadline, f"{len(waiting)} of {len(self.clients)} clients are stuck"
            time.sleep(0.5)

    def judge(self) -> None:
        for client in self.clients:
            assert not client.is_alive(), "a client hangs"
            if client.error:
                raise client.error
            client.finished()
            if isinstance(client, Owner):
                for name in client.keys:
                    client.look(name)
        print(f"{sum(client.turns for client in self.clients)} turns, "
              f"{sum(client.unknown for client in self.clients)} with an unknown outcome")


def frozen(cluster: Cluster, server: RadosPortico) -> None:
    before = peak = memory(server)
    for osd in range(OSDS):
        cluster.pause(osd)
    try:
        slowest, until = 0.0, time.monotonic() + FROZEN_SECONDS
        while time.monotonic() < until:
            asked = time.monotonic()
            assert server.page("/health/live")[0] == 200, "the process does not say that it lives"
            slowest = max(slowest, time.monotonic() - asked)
            peak = max(peak, memory(server))
            time.sleep(0.3)
    finally:
        for osd in range(OSDS):
            cluster.resume(osd)
    print(f"{before >> 20} MiB before, at most {peak >> 20} MiB; slowest answer to /health/live {slowest:.2f} s")
    assert peak < before + GROWS_BYTES_MAX, f"{peak >> 20} MiB, {before >> 20} MiB before"


def killed(cluster: Cluster, load: Load) -> None:
    cluster.kill(1)
    try:
        load.goes_on()
    finally:
        cluster.start_osd(1)
    load.goes_on()


def memory(server: RadosPortico) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10

