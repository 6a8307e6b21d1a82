"""A throw-away Ceph cluster on loopback: one monitor, one manager, BlueStore OSDs on sparse files.

Used by suites as a context, and by developers as a program:

    PYTHONPATH=conformance/suites python3 -m ceph_cluster up|down|status DIR
    PYTHONPATH=conformance/suites python3 -m ceph_cluster osd ID kill|pause|resume|start DIR

`up DIR` makes the cluster or starts what is not running, and prints what `[backend]` of a
configuration needs; `down DIR` stops and wipes it. cephx is on; Portico's own key has the least
capabilities that work. Only processes are ended whose command line names this cluster.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import install

OSDS = 3
OSD_BYTES = 8 << 30
START_SECONDS_MAX = 60
HEALTHY_SECONDS_MAX = 180
STOP_SECONDS_MAX = 60
COMMAND_SECONDS_MAX = 90
PORTS = 100

META_POOL = "portico-meta"
DATA_POOL = "portico-data"
EC_POOL = "portico-data-ec"
# The least that works: the monitor's maps, to fence another session, to read and write the pools, and
# the class that keeps locks in the OSDs, in the meta pool.
CLIENT = "portico"
CAPS = {
    "mon": "profile simple-rados-client-with-blocklist",
    "osd": ", ".join([
        f"allow rw pool={META_POOL}", f"allow pool={META_POOL} class lock",
        f"allow rw pool={DATA_POOL}", f"allow rw pool={EC_POOL}",
    ]),
}


class Cluster:
    """The daemons below one directory. As a context: up on entry, stopped and wiped on exit."""

    def __init__(self, directory: Path | None = None, grace_seconds: int = 20, osd_bytes: int = OSD_BYTES):
        install.ceph()
        self.temporary = directory is None
        self.directory = Path(directory or tempfile.mkdtemp(prefix="portico-ceph-")).resolve()
        # Sockets lie below it, whose paths the kernel limits.
        assert len(str(self.directory)) <= 80, f"{self.directory} is too long a path"
        self.conf = self.directory / "ceph.conf"
        self.keyring = self.directory / f"ceph.client.{CLIENT}.keyring"
        self.grace_seconds = grace_seconds
        # Of a file with holes: it takes what was written of the disk.
        self.osd_bytes = osd_bytes
        # Of daemons that this process started.
        self.children: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "Cluster":
        # A suite that is stopped at its time limit leaves no daemons behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        try:
            self.up()
        except BaseException:
            print(self.logs())
            self.wipe()
            raise
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(self.logs())
        self.wipe()

    def up(self) -> None:
        """Makes the cluster, or starts what of it does not run; returns when it is healthy."""
        made = self.directory / "made"
        if not made.exists():
            self.make()
        self.start("mon.a", "ceph-mon")
        self.start("mgr.x", "ceph-mgr")
        for osd in range(OSDS):
            if not made.exists():
                self.make_osd(osd)
            self.start(f"osd.{osd}", "ceph-osd")
        for osd in range(OSDS):
            self.wait_for(f"osd.{osd}", START_SECONDS_MAX, lambda: self.serves(osd))
        if not made.exists():
            self.make_pools()
            self.make_client()
            made.touch()
        self.wait_healthy()

    def make(self) -> None:
        """Keys, the monitor's map and its store."""
        for place in ("run", "log", "crash", "mon.a", "mgr.x"):
            (self.directory / place).mkdir(parents=True)
        port, fsid = free_ports(PORTS), str(uuid.uuid4())
        self.conf.write_text(configuration(self.directory, fsid, port, self.grace_seconds, self.osd_bytes))
        admin = ["--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *"]
        manager = ["--cap", "mon", "allow profile mgr", "--cap", "osd", "allow *"]
        first, keyring, mgr = (self.directory / name for name in ("mon.keyring", "keyring", "mgr.x/keyring"))
        make = ["--create-keyring", "--gen-key"]
        self.tool("ceph-authtool", first, *make, "-n", "mon.", "--cap", "mon", "allow *")
        self.tool("ceph-authtool", keyring, *make, "-n", "client.admin", *admin)
        self.tool("ceph-authtool", mgr, *make, "-n", "mgr.x", *manager)
        for other in (keyring, mgr):
            self.tool("ceph-authtool", first, "--import-keyring", other)
        monmap = self.directory / "monmap"
        self.tool("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{port}]",
                  "--set-min-mon-release", "pacific", monmap)
        self.tool("ceph-mon", "-c", self.conf, "-n", "mon.a", "--mkfs", "--monmap", monmap, "--keyring", first)

    def make_osd(self, osd: int) -> None:
        place, identity = self.directory / f"osd.{osd}", str(uuid.uuid4())
        place.mkdir()
        key = self.tool("ceph-authtool", "--gen-print-key").strip()
        private(place / "keyring", f"[osd.{osd}]\n\tkey = {key}\n")
        self.ceph("osd", "new", identity, str(osd), "-i", "-", input=json.dumps({"cephx_secret": key}))
        self.tool("ceph-osd", "-c", self.conf, "-n", f"osd.{osd}", "--mkfs", "--osd-uuid", identity,
                  "--no-mon-config")

    def make_pools(self) -> None:
        """What docs/operations/ceph.md tells an operator to make."""
        self.ceph("osd", "erasure-code-profile", "set", "portico", "k=2", "m=1", "crush-failure-domain=osd")
        self.ceph("osd", "pool", "create", META_POOL, "16", "16", "replicated")
        self.ceph("osd", "pool", "create", DATA_POOL, "32", "32", "replicated")
        self.ceph("osd", "pool", "create", EC_POOL, "16", "16", "erasure", "portico")
        self.ceph("osd", "pool", "set", EC_POOL, "allow_ec_overwrites", "true")
        # One OSD may be missing, as with three copies.
        self.ceph("osd", "pool", "set", EC_POOL, "min_size", "2")
        for pool in (META_POOL, DATA_POOL, EC_POOL):
            self.ceph("osd", "pool", "application", "enable", pool, "portico")

    def make_client(self) -> None:
        caps = [word for pair in CAPS.items() for word in pair]
        private(self.keyring, self.ceph("auth", "get-or-create", f"client.{CLIENT}", *caps))

    def start(self, name: str, program: str) -> None:
        """Starts a daemon that is not running."""
        if self.pid(name) is not None:
            return
        command = [program, "-f", "-c", str(self.conf), "-n", name]
        with (self.directory / f"log/{name}.out").open("ab") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     env=environment(), start_new_session=True)
        self.children[name] = child
        (self.directory / f"run/{name}.ours").write_text(str(child.pid))

    def pid(self, name: str) -> int | None:
        """The process of a daemon, if it runs and is this cluster's."""
        if name in self.children and self.children[name].poll() is not None:
            return None
        try:
            pid = int((self.directory / f"run/{name}.ours").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (OSError, ValueError):
            return None
        return pid if str(self.conf) in words and name in words else None

    def names(self) -> list[str]:
        """Every daemon, in the order in which they stop."""
        places = sorted(path.name for path in self.directory.glob("osd.*"))
        return ["mgr.x", *places, "mon.a"]

    def signal(self, name: str, number: signal.Signals) -> None:
        pid = self.pid(name)
        assert pid is not None, f"{name} does not run"
        os.kill(pid, number)

    def kill(self, osd: int) -> None:
        """kill -9, as if its machine lost power."""
        self.signal(f"osd.{osd}", signal.SIGKILL)
        self.gone(f"osd.{osd}")
        self.children.pop(f"osd.{osd}", None)

    def pause(self, osd: int) -> None:
        self.signal(f"osd.{osd}", signal.SIGSTOP)

    def resume(self, osd: int) -> None:
        self.signal(f"osd.{osd}", signal.SIGCONT)

    def start_osd(self, osd: int) -> None:
        self.start(f"osd.{osd}", "ceph-osd")
        self.wait_for(f"osd.{osd}", START_SECONDS_MAX, lambda: self.serves(osd))

    def serves(self, osd: int) -> bool:
        """Whether an OSD says that it takes part; the monitor may not yet know that it was away."""
        try:
            return json.loads(self.daemon(f"osd.{osd}", "status"))["state"] == "active"
        except AssertionError:
            # Its socket is not there yet, or is that of the process before it.
            return False

    def gone(self, name: str) -> None:
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self.pid(name) is not None:
            assert time.monotonic() < deadline, f"{name} does not end"
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends every daemon of this directory; what does not end when asked is killed."""
        for name in self.names():
            pid = self.pid(name)
            if pid is None:
                continue
            # Nothing is kept, so an OSD need not write out what it holds; a paused one could not.
            os.kill(pid, signal.SIGKILL if name.startswith("osd") else signal.SIGTERM)
            try:
                self.gone(name)
            except AssertionError:
                os.kill(pid, signal.SIGKILL)
                self.gone(name)

    def wipe(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def ceph(self, *arguments: str, input: str | None = None) -> str:
        """A command of the administrator."""
        return self.tool("ceph", "-c", self.conf, "--connect-timeout", "20", *arguments, input=input)

    def ask(self, *arguments: str):
        """The answer of a command, parsed."""
        return json.loads(self.ceph(*arguments, "-f", "json"))

    def rados(self, *arguments: str) -> str:
        return self.tool("rados", "-c", self.conf, *arguments)

    def tool(self, *command, input: str | None = None) -> str:
        words = [str(word) for word in command]
        finished = subprocess.run(words, input=input, capture_output=True, text=True, cwd=self.directory,
                                  timeout=COMMAND_SECONDS_MAX, env=environment())
        assert finished.returncode == 0, f"{' '.join(words)}: status {finished.returncode}\n{finished.stderr}"
        return finished.stdout

    def daemon(self, name: str, *arguments: str) -> str:
        """A command for one daemon, by its socket."""
        return self.tool("ceph", "--admin-daemon", self.directory / f"run/{name}.asok", *arguments)

    def counters(self, name: str) -> dict:
        """The performance counters of a daemon."""
        return json.loads(self.daemon(name, "perf", "dump"))

    def osds_up(self) -> int:
        return self.ask("osd", "stat")["num_up_osds"]

    def health(self) -> dict:
        return self.ask("health", "detail")

    def wait_healthy(self) -> None:
        """All OSDs are up, all placement groups are clean, and nothing is complained of."""
        def healthy():
            if self.osds_up() < OSDS or self.health()["status"] != "HEALTH_OK":
                return False
            summary = self.ask("pg", "stat")["pg_summary"]
            return summary["num_pgs"] and all(state["name"] == "active+clean" for state in summary["num_pg_by_state"])

        try:
            self.wait_for("a healthy cluster", HEALTHY_SECONDS_MAX, healthy)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.ceph('-s')}{self.ceph('health', 'detail')}") from None

    def wait_for(self, what: str, seconds: int, holds) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            for name, child in self.children.items():
                assert child.poll() is None, f"{name} ended by itself"
            assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
            time.sleep(0.5)

    def variables(self) -> dict:
        """How a Rust test finds the cluster."""
        return {"PORTICO_RADOS_CONF": str(self.conf)}

    def memory_bytes(self) -> int:
        """What all daemons have in memory."""
        pids = [pid for pid in map(self.pid, self.names()) if pid]
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
        return pages * os.sysconf("SC_PAGE_SIZE")

    def logs(self) -> str:
        """The end of each log."""
        parts = []
        for path in sorted(self.directory.glob("log/*")):
            lines = path.read_text(errors="replace").splitlines()[-6:]
            parts += [f"--- {path.name}", *lines] if lines else []
        return "\n".join(parts)


def configuration(directory: Path, fsid: str, port: int, grace_seconds: int, osd_bytes: int) -> str:
    """One host, loopback, the second version of the wire protocol, ports of one small range."""
    return f"""[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port}]
mon_initial_members = a
keyring = {directory}/keyring
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
ms_bind_msgr1 = false
ms_bind_port_min = {port + 1}
ms_bind_port_max = {port + PORTS - 1}
osd_crush_chooseleaf_type = 0
mon_osd_reporter_subtree_level = osd
mon_osd_min_down_reporters = 2
osd_heartbeat_grace = {grace_seconds}
osd_heartbeat_interval = {min(6, max(1, grace_seconds // 4))}
mon_osd_adjust_heartbeat_grace = false
osd_pool_default_size = 3
osd_pool_default_min_size = 2
osd_pool_default_pg_autoscale_mode = off
mon_max_pg_per_osd = 1000
mon_allow_pool_delete = true
mon_data_avail_warn = 2
mon_data_avail_crit = 1
mon_osd_down_out_interval = 3600
run_dir = {directory}/run
crash_dir = {directory}/crash
log_file = {directory}/log/$name.log
log_to_stderr = false
mon_cluster_log_file = {directory}/log/cluster.log
debug_ms = 0/0
debug_bluestore = 0/0
debug_bluefs = 0/0
debug_bdev = 0/0
debug_rocksdb = 0/0
debug_objecter = 0/0
debug_osd = 0/0
debug_rgw = 0/0

[mon]
mon_data = {directory}/$name
admin_socket = {directory}/run/$name.asok

[mgr]
mgr_data = {directory}/$name
keyring = {directory}/$name/keyring
admin_socket = {directory}/run/$name.asok
mgr_initial_modules = iostat
mgr_stats_period = 1

[osd]
osd_data = {directory}/$name
keyring = {directory}/$name/keyring
admin_socket = {directory}/run/$name.asok
osd_objectstore = bluestore
bluestore_block_create = true
bluestore_block_size = {osd_bytes}
bluestore_block_db_create = false
bluestore_block_wal_create = false
bluestore_debug_enforce_settings = ssd
osd_memory_target = 1073741824
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 2
osd_delete_sleep = 0
osd_delete_sleep_hdd = 0
osd_recovery_sleep_hdd = 0
osd_snap_trim_sleep_hdd = 0

[client]
log_file =
admin_socket =
"""


def environment() -> dict:
    """Without what would lead Ceph's own Python programs to our modules, or to another cluster."""
    unwanted = ("PYTHONPATH", "CEPH_CONF", "CEPH_ARGS", "CEPH_KEYRING")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that nobody listens on, below those given to clients."""
    for _ in range(100):
        first = random.randrange(10_000, 30_000, count)
        if all(map(is_free, range(first, first + count))):
            return first
    raise AssertionError(f"no {count} free ports beside each other")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="ceph_cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up").add_argument("directory", type=Path)
    commands.add_parser("down").add_argument("directory", type=Path)
    commands.add_parser("status").add_argument("directory", type=Path)
    fault = commands.add_parser("osd")
    fault.add_argument("id", type=int)
    fault.add_argument("action", choices=["kill", "pause", "resume", "start"])
    fault.add_argument("directory", type=Path)
    options = parser.parse_args()
    cluster = Cluster(options.directory)
    if options.command == "up":
        started = time.monotonic()
        cluster.up()
        print(f"healthy after {time.monotonic() - started:.0f} s, {cluster.memory_bytes() >> 20} MiB in memory")
        print(f"conf {cluster.conf}\nkeyring {cluster.keyring}\nclient client.{CLIENT}")
        print(f"meta pool {META_POOL}\ndata pools {DATA_POOL}, {EC_POOL}")
    elif options.command == "down":
        cluster.wipe()
    elif options.command == "status":
        for name in cluster.names():
            print(f"{name:8} {cluster.pid(name) or 'does not run'}")
        print(cluster.ceph("-s"))
    else:
        action = {"kill": cluster.kill, "pause": cluster.pause, "resume": cluster.resume, "start": cluster.start_osd}
        action[options.action](options.id)
    return 0


if __name__ == "__main__":
    sys.exit(main())
