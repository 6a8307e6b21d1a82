"""rclone with the provider `Other` and no quirk but path style."""

import install
import payload
from s3_clients.boto import fetch
from server import REGION


class Rclone:
    name = "rclone"

    def __init__(self, context):
        self.context = context
        endpoint = context.endpoint
        self.environment = {
            "RCLONE_CONFIG_S_TYPE": "s3", "RCLONE_CONFIG_S_PROVIDER": "Other",
            "RCLONE_CONFIG_S_ENDPOINT": endpoint.url, "RCLONE_CONFIG_S_REGION": REGION,
            "RCLONE_CONFIG_S_ACCESS_KEY_ID": endpoint.access_key,
            "RCLONE_CONFIG_S_SECRET_ACCESS_KEY": endpoint.secret_key,
            "RCLONE_CONFIG_S_FORCE_PATH_STYLE": "true", "RCLONE_CONFIG": "/dev/null", "RCLONE_RETRIES": "1",
            "RCLONE_LOW_LEVEL_RETRIES": "1",
        }
        if endpoint.ca:
            self.environment["RCLONE_CA_CERT"] = str(endpoint.ca)

    @staticmethod
    def install() -> None:
        install.venv("tools")

    def rclone(self, *arguments, check: bool = True):
        command = [install.venv("tools") / "rclone", *arguments]
        return self.context.run(*command, environment=self.environment, check=check)

    def tree(self) -> None:
        bucket = self.context.bucket("tree")
        place, files = self.context.tree
        self.rclone("copy", place, f"S:{bucket}")
        self.context.check_keys(bucket, files)
        listed = self.rclone("lsf", "-R", "--files-only", f"S:{bucket}").text.splitlines()
        assert sorted(listed) == sorted(files), "rclone lists other names"
        self.rclone("copy", f"S:{bucket}", self.context.scratch / "down")
        payload.same_tree(place, self.context.scratch / "down")
        self.rclone("purge", f"S:{bucket}")

    def multipart(self) -> None:
        bucket = self.context.bucket("multipart")
        body, path = payload.Body(64 * payload.MIB + 999), self.context.scratch / "large"
        body.write_to(path)
        flags = ["--s3-upload-cutoff", "8Mi", "--s3-chunk-size", "8Mi"]
        self.rclone("copyto", *flags, path, f"S:{bucket}/large")
        self.context.check_body(bucket, "large", body)
        cut = self.rclone("cat", "--offset", "8388600", "--count", "20", f"S:{bucket}/large")
        assert cut.bytes == body.range(8388600, 20), "the range differs"
        down = self.context.scratch / "down-large"
        self.rclone("copyto", "--multi-thread-streams", "4", "--multi-thread-cutoff", "8Mi", f"S:{bucket}/large", down)
        assert down.read_bytes() == path.read_bytes(), "the parallel download differs"

    def presigned(self) -> None:
        bucket = self.context.bucket("presigned")
        path = self.context.scratch / "small"
        path.write_bytes(b"rclone" * 77)
        self.rclone("copyto", path, f"S:{bucket}/with space+plus")
        url = self.rclone("link", "--expire", "5m", f"S:{bucket}/with space+plus").text.strip()
        assert fetch(self.context.endpoint, "GET", url) == (200, path.read_bytes()), url

    def sync(self) -> None:
        """Changes, removals and times: after each sync a check that compares hashes finds nothing."""
        bucket = self.context.bucket("sync")
        place = self.context.scratch / "sync"
        files = payload.tree(place, 100, seed=5)
        self.rclone("sync", place, f"S:{bucket}")
        self.rclone("check", place, f"S:{bucket}")
        names = sorted(files)
        files[names[3]].unlink()
        files[names[5]].write_bytes(b"changed")
        (place / "new").write_bytes(b"new")
        assert self.rclone("check", place, f"S:{bucket}", check=False).status == 1, "check sees no change"
        self.rclone("sync", place, f"S:{bucket}")
        self.rclone("check", "--download", place, f"S:{bucket}")
        plan = self.rclone("sync", "--dry-run", place, f"S:{bucket}").errors
        assert "Skipped copy" not in plan and "Skipped delete" not in plan, plan[:500]
