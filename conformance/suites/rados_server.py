"""S3 servers on a cluster of Ceph: Portico with the RADOS engine, and radosgw to measure it against."""

import shutil

from ceph_cluster import CLIENT, DATA_POOL, META_POOL, Cluster
from server import ACCESS_KEY, SECRET_KEY, Endpoint, Portico, Server, free_port

RADOSGW_CAPS = ["mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw"]


class RadosPortico(Portico):
    """One gateway. Several with the same pools and namespace serve the same buckets."""

    def __init__(
        self, cluster: Cluster, namespace: str, data_pool: str = DATA_POOL, tables: str = "",
        beside: "RadosPortico | None" = None, **options,
    ):
        self.cluster = cluster
        self.namespace = namespace
        self.data_pool = data_pool
        self.beside = beside
        backend = (
            f'[backend]\nkind = "rados"\nconf = "{cluster.conf}"\nclient = "client.{CLIENT}"\n'
            f'keyring = "{cluster.keyring}"\nnode = "{"second" if beside else "first"}"\n'
            f'meta = {{ pool = "{META_POOL}", namespace = "{namespace}" }}\n'
            f'data = {{ pool = "{data_pool}", namespace = "{namespace}" }}\n'
        )
        super().__init__(tables=backend + tables, **options)

    def start(self) -> None:
        data = self.directory / "data"
        if self.beside and not data.exists():
            # The secrets in the store are sealed with the keyring: all gateways need the same.
            data.mkdir(mode=0o700)
            shutil.copy2(self.beside.directory / "data/keyring", data / "keyring")
        super().start()

    def objects(self) -> list[str]:
        """The names of all objects that the data pool holds for this namespace."""
        return self.cluster.rados("-p", self.data_pool, "-N", self.namespace, "ls").split("\n")[:-1]


class Radosgw(Server):
    """Ceph's own S3 gateway, with pools like those of Portico."""

    name = "radosgw"

    def __init__(self, cluster: Cluster):
        super().__init__()
        self.cluster = cluster
        self.port = free_port()
        for pool, groups in (("index", 16), ("data", 32)):
            name = f"default.rgw.buckets.{pool}"
            cluster.ceph("osd", "pool", "create", name, str(groups), str(groups), "replicated")
            cluster.ceph("osd", "pool", "application", "enable", name, "rgw")
        self.keyring = self.directory / "keyring"
        self.keyring.touch(mode=0o600)
        self.keyring.write_text(cluster.ceph("auth", "get-or-create", "client.rgw.a", *RADOSGW_CAPS))
        cluster.tool("radosgw-admin", "-c", cluster.conf, "user", "create", "--uid=bench", "--display-name=bench",
                     f"--access-key={ACCESS_KEY}", f"--secret-key={SECRET_KEY}")

    def command(self) -> list:
        # Without tcp_nodelay every small reply waits 40 ms for the client's delayed acknowledgement.
        return [
            "radosgw", "-f", "-c", self.cluster.conf, "-n", "client.rgw.a", "--keyring", self.keyring,
            "--rgw_data", self.directory, "--log_file", self.directory / "radosgw.log", "--log_to_stderr=false",
            f"--rgw_frontends=beast endpoint=127.0.0.1:{self.port} tcp_nodelay=1",
            "--rgw_enable_usage_log=false", "--rgw_run_sync_thread=false",
        ]

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(f"http://127.0.0.1:{self.port}")]

    def stop(self) -> None:
        """How a peer ends is not our concern; asked to, it may go on for minutes."""
        if self.process is not None:
            self.kill()
