"""restic: a backup that is checked by reading all of it, restored, thinned out and checked again."""

import payload


class Restic:
    name = "restic"

    def __init__(self, context):
        self.context = context

    @staticmethod
    def install() -> None:
        """A package of the release, installed with the others."""

    def backup(self) -> None:
        bucket = self.context.bucket("backup")

        def restic(*arguments, endpoint=self.context.endpoint):
            environment = {
                "AWS_ACCESS_KEY_ID": endpoint.access_key, "AWS_SECRET_ACCESS_KEY": endpoint.secret_key,
                "RESTIC_PASSWORD": "conformance", "RESTIC_CACHE_DIR": str(self.context.scratch / "cache"),
                "RESTIC_REPOSITORY": f"s3:{endpoint.url}/{bucket}/repository",
            }
            trust = ["--cacert", endpoint.ca] if endpoint.ca else []
            return self.context.run("restic", *trust, *arguments, environment=environment)

        place, files = self.context.tree
        restic("init")
        restic("backup", place)
        first = sorted(files)[0]
        files[first].write_bytes(b"second backup")
        restic("backup", place)
        reading = self.context.reading
        restic("check", "--read-data", endpoint=reading)
        restic("restore", "latest", "--target", self.context.scratch / "restored", endpoint=reading)
        payload.same_tree(place, self.context.scratch / "restored" / place.relative_to("/"))
        restic("forget", "--keep-last", "1", "--prune")
        restic("check", "--read-data")
