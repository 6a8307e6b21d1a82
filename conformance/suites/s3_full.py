"""A store that is full: writes are refused by name, reads and deletions go on, and space comes back.

Once by `capacity_bytes`, once because a small tmpfs below the data directory has no room left.
"""

import hashlib
import random
import subprocess
import sys
import time

from botocore.exceptions import ClientError
from report import Report
from s3_clients.context import boto
from server import Portico

BUCKET = "full"
CAPACITY_BYTES = 64 << 20
# The local engine keeps a reserve and two logs on the disk beside what it stores.
DISK_BYTES = 256 << 20
LARGE_BYTES = 1 << 20
INLINE_BYTES = 4096
ROUNDS = 2
COMES_BACK_SECONDS_MAX = 60


def main() -> int:
    report = Report("s3-full")
    with Portico(capacity_bytes=CAPACITY_BYTES, grace_seconds=1) as server:
        scenarios(report, "capacity", server)
    disk = OnSmallDisk(grace_seconds=1)
    if report.run("tmpfs: is mounted", disk.mount).result == "passed":
        with disk as server:
            scenarios(report, "tmpfs", server)
    else:
        disk.wipe()
    return report.finish()


class OnSmallDisk(Portico):
    """The data directory is a tmpfs of its own."""

    def mount(self) -> None:
        data = self.directory / "data"
        data.mkdir(mode=0o700)
        options = f"size={DISK_BYTES},mode=0700"
        command = ["mount", "-t", "tmpfs", "-o", options, "portico-full", data]
        mounted = subprocess.run(command, capture_output=True, text=True)
        assert mounted.returncode == 0, (
            f"cannot mount a tmpfs of {DISK_BYTES >> 20} MiB, which this suite cannot do without: "
            f"{mounted.stderr.strip()}; run it as root, in a container with CAP_SYS_ADMIN"
        )

    def wipe(self) -> None:
        if self.process is not None:
            self.kill()
        data = self.directory / "data"
        if data.is_mount():
            subprocess.run(["umount", data], check=False)
        super().wipe()


def scenarios(report: Report, name: str, server: Portico) -> None:
    client = boto(server.endpoints()[0])
    client.create_bucket(Bucket=BUCKET)
    kept = {}
    for turn in range(1, ROUNDS + 1):
        report.run(f"{name}: writes are refused when full, round {turn}", lambda: fill(client, kept))
        report.run(f"{name}: all that was acknowledged reads back, round {turn}", lambda: compare(client, kept))
        report.run(f"{name}: a restart of the full store, round {turn}", lambda: restart(server, client, kept))
        report.run(f"{name}: every object can be deleted, round {turn}", lambda: delete(client, kept))
        report.run(f"{name}: the space comes back, round {turn}", lambda: comes_back(client))


def fill(client, kept: dict) -> None:
    """Large objects until there is no room, then small ones, which lie in the index."""
    for size in (LARGE_BYTES, INLINE_BYTES):
        number = 0
        while put(client, kept, f"{size}/{number:06}", size):
            number += 1
            assert number < 100_000, "it never is full"
        assert number, f"not one object of {size} bytes found room"
    which = {"Bucket": BUCKET, "Key": "parts"}
    try:
        which["UploadId"] = client.create_multipart_upload(**which)["UploadId"]
    except ClientError as error:
        return refused(error)
    client.abort_multipart_upload(**which)


def put(client, kept: dict, key: str, size: int) -> bool:
    body = random.Random(key).randbytes(size)
    try:
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
    except ClientError as error:
        refused(error)
        return False
    kept[key] = hashlib.sha256(body).digest()
    return True


def refused(error: ClientError) -> None:
    status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    assert status == 507, f"refused with {status}: {error}"


def compare(client, kept: dict) -> None:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    listed = [item["Key"] for page in pages for item in page.get("Contents", [])]
    assert listed == sorted(kept), f"{len(listed)} keys are listed, {len(kept)} were acknowledged"
    for key, digest in kept.items():
        body = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        assert hashlib.sha256(body).digest() == digest, f"{key} differs"


def restart(server: Portico, client, kept: dict) -> None:
    """Once gracefully, once not; both open the store while it is full."""
    server.stop()
    server.start()
    compare(client, kept)
    server.kill()
    server.start()
    compare(client, kept)


def delete(client, kept: dict) -> None:
    """Half of them one by one, the others many at once."""
    keys = sorted(kept)
    for key in keys[::2]:
        client.delete_object(Bucket=BUCKET, Key=key)
    rest = keys[1::2]
    for start in range(0, len(rest), 1000):
        objects = [{"Key": key} for key in rest[start:start + 1000]]
        answer = client.delete_objects(Bucket=BUCKET, Delete={"Objects": objects, "Quiet": True})
        assert not answer.get("Errors"), answer["Errors"][:3]
    kept.clear()
    compare(client, kept)


def comes_back(client) -> None:
    """Three quarters of the room of the first fill, without a restart."""
    scratch, deadline = {}, time.monotonic() + COMES_BACK_SECONDS_MAX
    wanted = CAPACITY_BYTES * 3 // 4 // LARGE_BYTES
    while len(scratch) < wanted:
        if not put(client, scratch, f"again/{len(scratch):06}", LARGE_BYTES):
            assert time.monotonic() < deadline, f"room for {len(scratch)} of {wanted} objects"
            time.sleep(0.5)
    delete(client, scratch)


if __name__ == "__main__":
    sys.exit(main())
