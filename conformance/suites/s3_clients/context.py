"""What every client is given: the endpoint, a bucket for each scenario, scratch, and a second reader."""

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config

import payload
from server import REGION, Endpoint

COMMAND_SECONDS_MAX = 600


@dataclass
class Finished:
    """What a client left."""

    status: int
    bytes: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.bytes.decode()


class Context:
    def __init__(
        self, directory: Path, endpoint: Endpoint, client: str, short: bool, reading: Endpoint | None = None,
    ):
        self.endpoint = endpoint
        # Where what a client wrote is listed and read back: another gateway of the same store, perhaps.
        self.reading = reading or endpoint
        self.client = client
        self.short = short
        self.scratch = Path(tempfile.mkdtemp(prefix=f"{client}-", dir=directory))
        self.file_count = 200 if short else 2000
        self.rivals = 50

    def clean(self) -> None:
        shutil.rmtree(self.scratch)

    def boto(self, **options):
        return boto(self.endpoint, **options)

    def reader(self):
        return boto(self.reading)

    def bucket(self, scenario: str) -> str:
        """A new bucket of this client, transport and scenario."""
        name = f"{self.client}-{self.endpoint.transport}-{scenario}".replace(" ", "-")
        self.boto().create_bucket(Bucket=name)
        return name

    @functools.cached_property
    def tree(self) -> tuple[Path, dict[str, Path]]:
        place = self.scratch / "tree"
        return place, payload.tree(place, self.file_count)

    def run(self, *command, environment: dict | None = None, check: bool = True):
        """Runs a client; its failure is the scenario's, unless the scenario judges the status itself."""
        finished = subprocess.run(
            [str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=COMMAND_SECONDS_MAX, cwd=self.scratch,
            env={"PATH": os.environ["PATH"], "HOME": str(self.scratch), "LANG": "C.UTF-8"} | (environment or {}),
        )
        answer = Finished(finished.returncode, finished.stdout, finished.stderr.decode(errors="replace"))
        if check and answer.status:
            raise AssertionError(f"{command[1:]} ended with {answer.status}\n{answer.errors[-3000:]}")
        return answer

    def check_keys(self, bucket: str, files: dict[str, Path]) -> None:
        """The bucket lists exactly these keys with these sizes, in the order of their bytes."""
        pages = self.reader().get_paginator("list_objects_v2").paginate(Bucket=bucket)
        listed = [(item["Key"], item["Size"]) for page in pages for item in page.get("Contents", [])]
        wanted = sorted(((key, path.stat().st_size) for key, path in files.items()),
                        key=lambda entry: entry[0].encode())
        assert sorted(listed) == sorted(wanted), f"listed and not sent: {different(listed, wanted)}"
        assert listed == wanted, "the listing isn't in the order of the keys' bytes"

    def check_body(self, bucket: str, key: str, body: payload.Body) -> None:
        """The whole object and ranges that begin, cross and end at the borders of parts."""
        client = self.reader()
        answer = client.get_object(Bucket=bucket, Key=key)
        assert answer["ContentLength"] == body.size, f"{answer['ContentLength']} bytes of {body.size}"
        digest = hashlib.sha256()
        for chunk in answer["Body"].iter_chunks(payload.MIB):
            digest.update(chunk)
        assert digest.hexdigest() == body.digest(), "the whole object differs"
        part = 8 * payload.MIB
        for first, last in [(0, 0), (1, 1000), (part - 1, part), (part - 5, 2 * part + 5), (body.size - 7, body.size + 9)]:
            answer = client.get_object(Bucket=bucket, Key=key, Range=f"bytes={first}-{last}")
            end = min(last, body.size - 1)
            assert answer["ContentRange"] == f"bytes {first}-{end}/{body.size}", answer["ContentRange"]
            assert answer["Body"].read() == body.range(first, end - first + 1), f"bytes {first}-{end} differ"


def boto(endpoint: Endpoint, **options):
    """A boto3 client; `options` go into its configuration."""
    options = {"max_pool_connections": 64, "retries": {"total_max_attempts": 1}, "s3": {"addressing_style": "path"}} | options
    return boto3.client(
        "s3", endpoint_url=endpoint.url, verify=str(endpoint.ca) if endpoint.ca else None, region_name=REGION,
        aws_access_key_id=endpoint.access_key, aws_secret_access_key=endpoint.secret_key, config=Config(**options),
    )


def different(left: list, right: list) -> str:
    only = [sorted(set(left) - set(right))[:4], sorted(set(right) - set(left))[:4]]
    return f"{only[0]!a} and {only[1]!a}"


def one_winner(statuses: list[int]) -> None:
    """Of rivals with one condition exactly one has won, and each other was told so."""
    won = [status for status in statuses if status == 200]
    lost = [status for status in statuses if status in (409, 412)]
    assert len(won) == 1 and len(lost) == len(statuses) - 1, f"statuses {sorted(statuses)}"
