"""boto3: over TLS it sends every body in chunks with a checksum in the trailer, over plain HTTP signed."""

import concurrent.futures
import threading
import urllib.parse
import uuid

import payload
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from s3_clients.context import different, one_winner
from server import connect


class Boto:
    name = "boto3"

    def __init__(self, context):
        self.context = context
        self.client = context.boto()
        self.reader = context.reader()

    @staticmethod
    def install() -> None:
        """The suite itself runs in boto3's environment."""

    def tree(self) -> None:
        bucket = self.context.bucket("tree")
        place, files = self.context.tree
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: self.client.upload_file(str(files[key]), bucket, key), files))
            self.context.check_keys(bucket, files)
            self.delimited(bucket, files)
            bodies = pool.map(lambda key: (key, self.read(bucket, key)), files)
            for key, body in bodies:
                assert body == files[key].read_bytes(), f"{key!a} differs"
        keys = [{"Key": key} for key in files]
        for start in range(0, len(keys), 1000):
            answer = self.client.delete_objects(Bucket=bucket, Delete={"Objects": keys[start : start + 1000]})
            assert not answer.get("Errors"), answer["Errors"][:3]
        self.client.delete_bucket(Bucket=bucket)

    def delimited(self, bucket: str, files: dict) -> None:
        """Small pages with a delimiter add up to what the keys say."""
        wanted = sorted({key.split("/")[0] + ("/" if "/" in key else "") for key in files})
        for operation in ("list_objects", "list_objects_v2", "list_object_versions"):
            found, settings = [], {"PageSize": 7}
            pages = self.client.get_paginator(operation).paginate(
                Bucket=bucket, Delimiter="/", PaginationConfig=settings)
            for page in pages:
                found += [item["Key"] for item in page.get("Contents", page.get("Versions", []))]
                found += [item["Prefix"] for item in page.get("CommonPrefixes", [])]
            assert sorted(found) == wanted, f"{operation}: {different(found, wanted)}"

    def keys(self) -> None:
        bucket = self.context.bucket("keys")
        wanted = {key: key.encode() if not key.endswith("/") else b"" for key in payload.KEYS_ONLY}
        for key, body in wanted.items():
            self.client.put_object(Bucket=bucket, Key=key, Body=body)
        listed = [item["Key"] for item in self.client.list_objects_v2(Bucket=bucket)["Contents"]]
        assert listed == sorted(wanted), f"{different(listed, sorted(wanted))}"
        for key, body in wanted.items():
            assert self.read(bucket, key) == body, f"{key!a} differs"
            copy = {"Bucket": bucket, "Key": key}
            self.client.copy_object(Bucket=bucket, Key=f"copy of {key[:1000]}", CopySource=copy)
            assert self.read(bucket, f"copy of {key[:1000]}") == body, f"the copy of {key!a} differs"
        failed = status(lambda: self.client.put_object(Bucket=bucket, Key="x" * 1025, Body=b""))
        assert failed == 400, f"a key of 1,025 bytes was answered {failed}"

    def multipart(self) -> None:
        """1 GiB over TLS, 64 MiB elsewhere."""
        bucket = self.context.bucket("multipart")
        large = self.context.endpoint.ca and not self.context.short
        body = payload.Body((1024 if large else 64) * payload.MIB + 12345)
        part = 8 * payload.MIB
        settings = TransferConfig(multipart_chunksize=part, max_concurrency=8)
        self.client.upload_fileobj(body, bucket, "large", Config=settings, ExtraArgs={"Metadata": {"made-by": "boto3"}})
        head = self.client.head_object(Bucket=bucket, Key="large")
        parts = -(-body.size // part)
        assert head["ETag"].endswith(f'-{parts}"'), head["ETag"]
        assert head["Metadata"] == {"made-by": "boto3"}, head["Metadata"]
        self.context.check_body(bucket, "large", payload.Body(body.size))
        second = self.client.get_object(Bucket=bucket, Key="large", PartNumber=2)
        assert second["PartsCount"] == parts, second["PartsCount"]
        assert second["Body"].read() == body.range(part, part), "part 2 differs"
        upload = self.client.create_multipart_upload(Bucket=bucket, Key="left")["UploadId"]
        self.client.upload_part(Bucket=bucket, Key="left", UploadId=upload, PartNumber=1, Body=b"part")
        self.client.abort_multipart_upload(Bucket=bucket, Key="left", UploadId=upload)
        assert not self.client.list_multipart_uploads(Bucket=bucket).get("Uploads")

    def presigned(self) -> None:
        """URLs made by boto3 in both versions of the signature, used by a plain HTTP client."""
        bucket = self.context.bucket("presigned")
        for version in ("s3v4", "s3"):
            signer = self.context.boto(signature_version=version)
            key, body = f"with space+plus/{version}", version.encode() * 1000
            put = signer.generate_presigned_url("put_object", {"Bucket": bucket, "Key": key}, 300)
            assert self.fetch("PUT", put, body)[0] == 200, f"PUT {version}"
            get = signer.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}, 300)
            assert self.fetch("GET", get) == (200, body), f"GET {version}"
            forged = get.replace(version, "other", 1)
            assert self.fetch("GET", forged)[0] == 403, f"{version}: a changed URL was not refused"
            late = signer.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}, -10)
            assert self.fetch("GET", late)[0] in (400, 403), f"{version}: an expired URL was not refused"
            named = {"Bucket": bucket, "Key": key, "ResponseContentType": "text/x-test"}
            url = signer.generate_presigned_url("get_object", named, 300)
            assert self.fetch("GET", url)[0] == 200, f"{version}: with an overriding header"

    def bare(self) -> None:
        """Uploads no SDK can be made to send: without a signature, with an empty one, without a length."""
        bucket = self.context.bucket("bare")
        for headers in ({}, {"Authorization": ""}):
            for path in ("", "/key"):
                code, answer = self.fetch("PUT", f"/{bucket}{path}", b"", headers)
                assert code == 403 and b"<Code>AccessDenied<" in answer, f"{headers} {path}: {code} {answer}"
        put = self.client.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "key"}, 300)
        connection = connect(self.context.endpoint)
        connection.putrequest("PUT", put.split(self.context.endpoint.url)[1])
        connection.endheaders()
        response = connection.getresponse()
        code, answer = response.status, response.read()
        assert code == 411 and b"<Code>MissingContentLength<" in answer, f"no length: {code} {answer}"
        assert not self.client.list_objects_v2(Bucket=bucket).get("Contents"), "something was stored"

    def post_form(self) -> None:
        bucket = self.context.bucket("post-form")
        form = self.client.generate_presigned_post(
            bucket, "form/${filename}", Fields={"success_action_status": "201"},
            Conditions=[{"success_action_status": "201"}, ["content-length-range", 1, 5000]])
        body = payload.Body(5000).range(0, 5000)
        found = self.fetch("POST", form["url"], *multipart_form(form["fields"], "picked.bin", body))
        assert found[0] == 201, found
        assert self.read(bucket, "form/picked.bin") == body
        found = self.fetch("POST", form["url"], *multipart_form(form["fields"], "long.bin", body + b"+"))
        assert found[0] == 400, f"a form beyond its length was answered {found[0]}"

    def tagging(self) -> None:
        bucket = self.context.bucket("tagging")
        tags = [{"Key": "a b+c", "Value": "\u00e4=1/2"}, {"Key": "empty", "Value": ""}]
        self.client.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="one=1&two=2%20")
        got = self.client.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
        assert got == [{"Key": "one", "Value": "1"}, {"Key": "two", "Value": "2 "}], got
        assert self.client.get_object(Bucket=bucket, Key="k")["TagCount"] == 2
        self.client.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": tags})
        got = self.client.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
        assert sorted(got, key=str) == sorted(tags, key=str), got
        self.client.delete_object_tagging(Bucket=bucket, Key="k")
        assert self.client.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
        self.client.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
        got = self.client.get_bucket_tagging(Bucket=bucket)["TagSet"]
        assert sorted(got, key=str) == sorted(tags, key=str), got
        self.client.delete_bucket_tagging(Bucket=bucket)
        assert status(lambda: self.client.get_bucket_tagging(Bucket=bucket)) == 404

    def race(self) -> None:
        """Rivals create one key, each with its own bytes; the winner's are what stays."""
        bucket = self.context.bucket("race")
        for round_number in range(5):
            key = f"lock{round_number}"
            bodies = [f"{number}".encode() * (1 + 999 * number) for number in range(self.context.rivals)]
            statuses = self.rivals(lambda number: self.client.put_object(
                Bucket=bucket, Key=key, Body=bodies[number], IfNoneMatch="*"))
            one_winner(statuses)
            assert self.read(bucket, key) == bodies[statuses.index(200)], "not the winner's bytes"

    def race_complete(self) -> None:
        bucket = self.context.bucket("race-complete")
        uploads = []
        for number in range(self.context.rivals):
            upload = self.client.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
            part = self.client.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"%d" % number)
            uploads.append((upload, {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}))
        statuses = self.rivals(lambda number: self.client.complete_multipart_upload(
            Bucket=bucket, Key="k", UploadId=uploads[number][0], MultipartUpload=uploads[number][1], IfNoneMatch="*"))
        one_winner(statuses)
        assert self.read(bucket, "k") == b"%d" % statuses.index(200), "not the winner's bytes"

    def swap(self) -> None:
        """Counting by compare-and-swap with If-Match loses no step."""
        bucket = self.context.bucket("swap")
        self.client.put_object(Bucket=bucket, Key="count", Body=b"0")

        def add(_):
            while True:
                current = self.client.get_object(Bucket=bucket, Key="count")
                following = b"%d" % (int(current["Body"].read()) + 1)
                answer = status(lambda: self.client.put_object(
                    Bucket=bucket, Key="count", Body=following, IfMatch=current["ETag"]))
                if answer == 200:
                    return
                assert answer in (409, 412), answer

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(40)))
        assert self.read(bucket, "count") == b"40"

    def rivals(self, request) -> list[int]:
        """Runs request(number) for all rivals at once; their statuses in order."""
        count = self.context.rivals
        start = threading.Barrier(count)

        def rival(number):
            start.wait(60)
            return status(lambda: request(number))

        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return list(pool.map(rival, range(count)))

    def read(self, bucket: str, key: str) -> bytes:
        return self.reader.get_object(Bucket=bucket, Key=key)["Body"].read()

    def fetch(self, method: str, url: str, body: bytes | None = None, headers: dict | None = None):
        return fetch(self.context.endpoint, method, url, body, headers)


def status(request) -> int:
    """The HTTP status of a request; 200 when it succeeded."""
    try:
        return request()["ResponseMetadata"]["HTTPStatusCode"]
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]


def fetch(endpoint, method: str, url: str, body: bytes | None = None, headers: dict | None = None) -> tuple[int, bytes]:
    """What a plain HTTP client gets for a URL."""
    connection = connect(endpoint)
    parts = urllib.parse.urlsplit(url)
    connection.request(method, urllib.parse.urlunsplit(("", "", *parts[2:])), body, headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


def multipart_form(fields: dict, filename: str, body: bytes) -> tuple[bytes, dict]:
    """A form as a browser sends it."""
    boundary = uuid.uuid4().hex
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
             for name, value in fields.items()]
    file = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'
    data = b"".join(parts) + file.encode() + body + f"\r\n--{boundary}--\r\n".encode()
    return data, {"Content-Type": f"multipart/form-data; boundary={boundary}"}
