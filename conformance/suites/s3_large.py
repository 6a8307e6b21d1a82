"""What is large: 10,000 parts, objects of 1 GiB over TLS, and the memory the server takes for them."""

import concurrent.futures
import hashlib
import sys
import time
from pathlib import Path

import payload
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from report import Report
from s3_clients.context import boto
from server import Portico, connect

BUCKET = "large"
PARTS = 10_000
PART_BYTES = 4096
COMPLETE_SECONDS_MAX = 2
GIB = 1 << 30
# Far below the bodies in flight: bodies stream, whatever their size.
MEMORY_BYTES_MAX = 700 << 20


def main() -> int:
    report = Report("s3-large")
    with Portico(part_bytes_min=PART_BYTES) as server:
        plain, tls = server.endpoints()
        boto(plain).create_bucket(Bucket=BUCKET)
        report.run("10,000 parts", lambda: many_parts(plain))
        report.run("1 GiB in parts over TLS", lambda: in_parts(tls))
        report.run("1 GiB in one request over TLS", lambda: in_one_request(tls))
        report.run("8 x 256 MiB at once over TLS", lambda: at_once(tls))
        report.run("more than 5 GiB in one request is refused", lambda: too_large(plain))
        report.run("memory stays bounded", lambda: memory(server))
    return report.finish()


def many_parts(endpoint) -> None:
    client = boto(endpoint)
    body = payload.Body(PARTS * PART_BYTES - 100)
    which = {"Bucket": BUCKET, "Key": "parts"}
    which["UploadId"] = client.create_multipart_upload(**which)["UploadId"]

    def part(number):
        data = body.range((number - 1) * PART_BYTES, min(PART_BYTES, body.size - (number - 1) * PART_BYTES))
        return client.upload_part(**which, PartNumber=number, Body=data)["ETag"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        tags = list(pool.map(part, range(1, PARTS + 1)))
    pages = client.get_paginator("list_parts").paginate(**which)
    listed = [(item["PartNumber"], item["ETag"]) for page in pages for item in page["Parts"]]
    assert listed == list(enumerate(tags, 1)), f"{len(listed)} parts are listed, or others"
    try:
        client.upload_part(**which, PartNumber=PARTS + 1, Body=b"x")
        raise AssertionError("part 10,001 was taken")
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400, error
    parts = [{"PartNumber": number, "ETag": tag} for number, tag in listed]
    started = time.monotonic()
    answer = client.complete_multipart_upload(**which, MultipartUpload={"Parts": parts})
    seconds = time.monotonic() - started
    print(f"completing {PARTS} parts took {seconds:.2f} s")
    assert seconds < COMPLETE_SECONDS_MAX, f"{seconds:.1f} s"
    wanted = hashlib.md5(b"".join(bytes.fromhex(tag.strip('"')) for tag in tags)).hexdigest()
    assert answer["ETag"] == f'"{wanted}-{PARTS}"', answer["ETag"]
    check(client, "parts", body)
    found = client.get_object(Bucket=BUCKET, Key="parts", PartNumber=PARTS)
    assert found["Body"].read() == body.range((PARTS - 1) * PART_BYTES, PART_BYTES - 100), "the last part differs"
    cut = client.get_object(Bucket=BUCKET, Key="parts", Range="bytes=20000000-20100000")["Body"].read()
    assert cut == body.range(20000000, 100001), "a range over many parts differs"


def in_parts(endpoint) -> None:
    client, body = boto(endpoint), payload.Body(GIB)
    client.upload_fileobj(body, BUCKET, "gib", Config=TransferConfig(multipart_chunksize=16 << 20))
    check(client, "gib", payload.Body(GIB))


def in_one_request(endpoint) -> None:
    """boto3 sends it in chunks with a checksum in the trailer."""
    client = boto(endpoint, read_timeout=300)
    client.put_object(Bucket=BUCKET, Key="gib", Body=payload.Body(GIB, seed=8))
    check(client, "gib", payload.Body(GIB, seed=8))


def at_once(endpoint) -> None:
    def one(seed):
        client = boto(endpoint, read_timeout=300)
        client.put_object(Bucket=BUCKET, Key=f"at-once-{seed}", Body=payload.Body(256 << 20, seed))
        check(client, f"at-once-{seed}", payload.Body(256 << 20, seed))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))


def too_large(endpoint) -> None:
    """The answer comes from the head alone: no byte of the body is sent."""
    client = boto(endpoint)
    url = client.generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": "too-large"}, 60)
    connection = connect(endpoint)
    connection.putrequest("PUT", url.removeprefix(endpoint.url))
    connection.putheader("Content-Length", str(5 * GIB + 1))
    connection.putheader("Expect", "100-continue")
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 400 and b"EntityTooLarge" in text, f"{answer.status} {text[:300]!r}"


def check(client, key: str, body: payload.Body) -> None:
    digest = hashlib.sha256()
    for chunk in client.get_object(Bucket=BUCKET, Key=key)["Body"].iter_chunks(1 << 20):
        digest.update(chunk)
    assert digest.hexdigest() == body.digest(), f"{key} differs"


def memory(server: Portico) -> None:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10
    print(f"peak {peak >> 20} MiB")
    assert peak < MEMORY_BYTES_MAX, f"{peak >> 20} MiB"


if __name__ == "__main__":
    sys.exit(main())
