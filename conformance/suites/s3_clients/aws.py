"""awscli, versions 1 and 2. Version 1 presigns with Signature Version 2 where nothing says otherwise."""

import concurrent.futures
import json

import install
import payload
from s3_clients.boto import fetch
from s3_clients.context import one_winner
from server import REGION


class Aws:
    def __init__(self, context):
        self.context = context
        self.environment = {
            "AWS_ACCESS_KEY_ID": context.endpoint.access_key,
            "AWS_SECRET_ACCESS_KEY": context.endpoint.secret_key,
            "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_PAGER": "", "AWS_MAX_ATTEMPTS": "1", "AWS_CONFIG_FILE": "/dev/null",
        }
        if context.endpoint.ca:
            self.environment["AWS_CA_BUNDLE"] = str(context.endpoint.ca)

    def aws(self, *arguments, check: bool = True):
        command = [self.program(), "--endpoint-url", self.context.endpoint.url, *arguments]
        return self.context.run(*command, environment=self.environment, check=check)

    def tree(self) -> None:
        bucket = self.context.bucket("tree")
        place, files = self.context.tree
        self.aws("s3", "cp", "--recursive", "--only-show-errors", place, f"s3://{bucket}/")
        self.context.check_keys(bucket, files)
        listed = self.aws("s3", "ls", "--recursive", f"s3://{bucket}/").text.splitlines()
        assert len(listed) == len(files), f"{len(listed)} lines for {len(files)} files"
        self.aws("s3", "sync", "--only-show-errors", f"s3://{bucket}/", self.context.scratch / "down")
        payload.same_tree(place, self.context.scratch / "down")
        again = self.aws("s3", "sync", "--dryrun", "--size-only", place, f"s3://{bucket}/").text
        assert not again.strip(), f"a second sync would send {again[:300]}"
        self.aws("s3", "rb", "--force", f"s3://{bucket}")

    def multipart(self) -> None:
        bucket = self.context.bucket("multipart")
        body, path = payload.Body(64 * payload.MIB + 4321), self.context.scratch / "large"
        body.write_to(path)
        self.aws("s3", "cp", "--only-show-errors", path, f"s3://{bucket}/large")
        self.context.check_body(bucket, "large", body)
        got = self.context.scratch / "range"
        self.aws("s3api", "get-object", "--bucket", bucket, "--key", "large", "--range", "bytes=8388600-16777220", got)
        assert got.read_bytes() == body.range(8388600, 8388621), "the range differs"
        self.aws("s3", "cp", "--only-show-errors", f"s3://{bucket}/large", f"s3://{bucket}/copy")
        self.aws("s3", "cp", "--only-show-errors", f"s3://{bucket}/copy", self.context.scratch / "copy")
        assert (self.context.scratch / "copy").read_bytes() == path.read_bytes(), "the copy differs"

    def presigned(self) -> None:
        bucket = self.context.bucket("presigned")
        body, path = b"presigned" * 999, self.context.scratch / "small"
        path.write_bytes(body)
        self.aws("s3", "cp", "--only-show-errors", path, f"s3://{bucket}/a b+c")
        url = self.aws("s3", "presign", f"s3://{bucket}/a b+c").text.strip()
        assert self.signature in url, url
        assert fetch(self.context.endpoint, "GET", url) == (200, body), url
        forged = url.replace("a%20b", "a%20c")
        assert fetch(self.context.endpoint, "GET", forged)[0] == 403, "a changed URL was not refused"

    def tagging(self) -> None:
        bucket = self.context.bucket("tagging")
        which = ["--bucket", bucket, "--key", "k"]
        self.aws("s3api", "put-object", *which, "--tagging", "one=1&two=2")
        tags = {"TagSet": [{"Key": "a b", "Value": "c+d"}]}
        self.aws("s3api", "put-object-tagging", *which, "--tagging", json.dumps(tags))
        got = json.loads(self.aws("s3api", "get-object-tagging", *which).text)
        assert got == tags, got
        self.aws("s3api", "delete-object-tagging", *which)
        got = json.loads(self.aws("s3api", "get-object-tagging", *which).text)
        assert got == {"TagSet": []}, got

    def race(self) -> None:
        """Processes, not threads: fewer where the run is short."""
        bucket = self.context.bucket("race")
        count = 10 if self.context.short else self.context.rivals

        def rival(number):
            path = self.context.scratch / f"rival{number}"
            path.write_text(str(number))
            finished = self.aws("s3api", "put-object", "--bucket", bucket, "--key", "k", "--body", path,
                                "--if-none-match", "*", check=False)
            if finished.status == 0:
                return 200
            lost = any(word in finished.errors for word in ("PreconditionFailed", "ConditionalRequestConflict"))
            assert lost, finished.errors
            return 412

        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            statuses = list(pool.map(rival, range(count)))
        one_winner(statuses)
        read = self.context.reader().get_object(Bucket=bucket, Key="k")["Body"].read()
        assert int(read) == statuses.index(200), "not the winner's bytes"


class Aws1(Aws):
    name = "awscli1"
    signature = "Signature="

    @staticmethod
    def install() -> None:
        install.venv("awscli1")

    @staticmethod
    def program():
        return install.venv("awscli1") / "aws"


class Aws2(Aws):
    name = "awscli2"
    signature = "X-Amz-Signature="

    @staticmethod
    def install() -> None:
        install.awscli2()

    @staticmethod
    def program():
        return install.awscli2()
