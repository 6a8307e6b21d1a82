"""kill -9 in an upload storm: python -m s3_kill [--rounds N]

Workers put, overwrite, delete, copy and upload in parts without pause; the server is killed, started
again and looked at, round after round. Each key belongs to one worker, so what it may hold is known:
the last acknowledged state, or one of those asked for since and never answered. At the end everything
is deleted, and nothing may be left in the store.
"""

import argparse
import hashlib
import random
import re
import sys
import threading
import time
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError
from report import Report
from s3_clients.context import boto
from server import Portico

BUCKET = "storm"
WORKERS = 8
KEYS = 12
PART_BYTES_MIN = 64 << 10
RECLAIM_SECONDS_MAX = 120
# A quiet store keeps up to 256 KiB of records and freed blocks in memory until it is worth a
# checkpoint; users, sessions and the log of changes themselves take a few hundred records more.
LEFT_BYTES_MAX = 1 << 20
LEFT_OBJECTS_MAX = 60
# What a request ends with when its server is killed.
CUT = (ConnectionError, HTTPClientError, BotoCoreError, OSError)


@dataclass
class Key:
    """What one key may hold. A state is the digest of the body, or None for no object."""

    acknowledged: str | None = None
    asked: list = field(default_factory=list)

    def allows(self, state: str | None) -> bool:
        return state == self.acknowledged or state in self.asked


class Worker(threading.Thread):
    """Changes its own keys until told to stop or cut off."""

    def __init__(self, number: int, client, keys: dict[str, Key], stop: threading.Event, seed: int):
        super().__init__(daemon=True)
        self.keys = keys
        self.stop_asked = stop
        self.random = random.Random(seed * 1000 + number)
        self.client = client
        self.acknowledged = 0
        self.error: Exception | None = None

    def turn(self):
        """One random action on one random key."""
        actions = [self.put, self.put, self.put, self.upload, self.upload, self.delete, self.copy]
        name = self.random.choice(list(self.keys))
        self.random.choice(actions)(name, self.keys[name])
        self.acknowledged += 1

    def run(self):
        while not self.stop_asked.is_set():
            try:
                self.turn()
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    self.error = error
                return
            except CUT:
                return
            except Exception as error:
                self.error = error
                return

    def body(self) -> bytes:
        size = self.random.choice([0, 10, 4096, 16384, 16385, 200_000, self.random.randrange(3 << 20)])
        return self.random.randbytes(size)

    def change(self, key: Key, state: str | None, request) -> None:
        """Asks for a state, and takes it as acknowledged when the answer came."""
        key.asked.append(state)
        request()
        key.acknowledged = state
        key.asked.clear()

    def put(self, name: str, key: Key) -> None:
        body = self.body()
        self.change(key, digest(body), lambda: self.client.put_object(Bucket=BUCKET, Key=name, Body=body))

    def delete(self, name: str, key: Key) -> None:
        self.change(key, None, lambda: self.client.delete_object(Bucket=BUCKET, Key=name))

    def copy(self, name: str, key: Key) -> None:
        source = self.random.choice(list(self.keys))
        state = self.keys[source].acknowledged
        # A source with an unanswered request holds nobody knows what.
        if state is None or self.keys[source].asked or source == name:
            return
        request = {"Bucket": BUCKET, "Key": name, "CopySource": {"Bucket": BUCKET, "Key": source}}
        self.change(key, state, lambda: self.client.copy_object(**request))

    def upload(self, name: str, key: Key) -> None:
        """Three parts, one of them sent twice; now and then left unfinished or aborted."""
        which = {"Bucket": BUCKET, "Key": name}
        which["UploadId"] = self.client.create_multipart_upload(**which)["UploadId"]
        parts, bodies = [], [self.random.randbytes(PART_BYTES_MIN + self.random.randrange(300_000)) for _ in range(3)]
        self.client.upload_part(**which, PartNumber=1, Body=b"superseded" * 9999)
        for number, body in enumerate(bodies, 1):
            answer = self.client.upload_part(**which, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        chance = self.random.random()
        if chance < 0.1:
            return
        if chance < 0.2:
            self.client.abort_multipart_upload(**which)
            return
        self.change(key, digest(b"".join(bodies)), lambda: self.client.complete_multipart_upload(
            **which, MultipartUpload={"Parts": parts}))


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run s3-kill")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = Report("s3-kill")
    keys = [{f"w{worker}/k{key:02}": Key() for key in range(KEYS)} for worker in range(WORKERS)]
    with Portico(part_bytes_min=PART_BYTES_MIN, grace_seconds=2) as server:
        boto(server.endpoints()[0]).create_bucket(Bucket=BUCKET)
        empty = used_bytes(server)
        for round_number in range(options.rounds):
            seed = options.seed + round_number
            name = f"round {round_number + 1}, seed {seed}"
            if report.run(name, lambda: storm(server, keys, seed)).result == "failed":
                break
        report.run("everything deleted is given back", lambda: given_back(server, empty))
    return report.finish()


def storm(server: Portico, keys: list[dict[str, Key]], seed: int) -> None:
    generator = random.Random(seed)
    endpoint = server.endpoints()[seed % 2]
    stop = threading.Event()
    clients = [boto(endpoint, read_timeout=30, connect_timeout=5) for _ in range(WORKERS)]
    workers = [Worker(number, clients[number], keys[number], stop, seed) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    time.sleep(generator.uniform(2, 6))
    alive = [worker for worker in workers if worker.is_alive()]
    server.kill()
    stop.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a worker hangs"
        assert worker.error is None, f"{type(worker.error).__name__}: {worker.error}"
    assert len(alive) == WORKERS, f"only {len(alive)} workers were at work when the server was killed"
    acknowledged = sum(worker.acknowledged for worker in workers)
    assert acknowledged > WORKERS, f"only {acknowledged} requests were acknowledged"
    server.start()
    inspect(server, {name: key for part in keys for name, key in part.items()})


def inspect(server: Portico, keys: dict[str, Key]) -> None:
    """Reads everything that is listed, and everything that should be there; then what is there is known."""
    client = boto(server.endpoints()[0])
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    listed = {item["Key"]: item for page in pages for item in page.get("Contents", [])}
    assert not set(listed) - set(keys), f"listed and never put: {sorted(set(listed) - set(keys))[:5]}"
    for name, key in keys.items():
        state = None
        if name in listed:
            answer = client.get_object(Bucket=BUCKET, Key=name)
            body = answer["Body"].read()
            assert len(body) == listed[name]["Size"], f"{name}: {len(body)} bytes, listed {listed[name]['Size']}"
            assert answer["ETag"] == listed[name]["ETag"], f"{name}: listed under another ETag"
            state = digest(body)
        else:
            try:
                client.head_object(Bucket=BUCKET, Key=name)
                raise AssertionError(f"{name} is there but not listed")
            except ClientError as error:
                assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 404, f"{name}: {error}"
        assert key.allows(state), f"{name} holds {state}, acknowledged was {key.acknowledged}, asked {key.asked}"
        key.acknowledged, key.asked = state, []


def used_bytes(server: Portico) -> int:
    """What the store says it holds, from the metrics."""
    return int(server.metric("portico_store_used_bytes"))


def given_back(server: Portico, empty: int) -> None:
    """Deletes all; within a while the running store holds no more data than when it was new."""
    client = boto(server.endpoints()[0])
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET):
        for upload in page.get("Uploads", []):
            client.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for item in page.get("Contents", []):
            client.delete_object(Bucket=BUCKET, Key=item["Key"])
    client.delete_bucket(Bucket=BUCKET)
    deadline = time.monotonic() + RECLAIM_SECONDS_MAX
    while (used := used_bytes(server)) > empty + LEFT_BYTES_MAX:
        assert time.monotonic() < deadline, f"{used} bytes are in use, {empty} were when it was new"
        time.sleep(1)
    server.stop()
    objects, blocks = checked(server)
    assert objects <= LEFT_OBJECTS_MAX and blocks == 0, f"{objects} objects and {blocks} blocks are left"


def checked(server: Portico) -> tuple[int, int]:
    """The offline check of the stopped store finds nothing wrong; objects and blocks of data it holds."""
    found = server.ask("check")
    return tuple(int(re.search(rf"(\d+) {what}", found)[1]) for what in ("objects", "blocks"))


if __name__ == "__main__":
    sys.exit(main())
