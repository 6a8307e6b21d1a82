"""iSCSI targets under test: Portico, and tgt to measure it against. Each serves disks of one size by
number, read and written by anybody.
"""

import json
import subprocess
import time
from dataclasses import dataclass

from server import START_SECONDS_MAX, Portico, Server, free_port

MIB = 1 << 20


@dataclass(frozen=True)
class Disk:
    """One logical unit as an initiator finds it."""

    portal: str
    iqn: str
    lun: int

    @property
    def url(self) -> str:
        return f"iscsi://{self.portal}/{self.iqn}/{self.lun}"


class Tgt(Server):
    """A peer: the user-space target of Debian, on sparse files."""

    name = "tgt"
    iqn = "iqn.2024-01.io.portico:tgt"

    def __init__(self, sizes_mib: list[int], write_cache: bool = True):
        super().__init__()
        self.sizes_mib = sizes_mib
        self.write_cache = write_cache
        self.ports = [free_port(), free_port()]
        # Names a socket of its own beside those of other instances; 32,767 at most.
        self.control = free_port() % 32_768

    def command(self) -> list:
        portals = ",".join(f"portal=127.0.0.1:{port}" for port in self.ports)
        return ["tgtd", "-f", "-C", self.control, "--iscsi", portals]

    def endpoints(self) -> list:
        return []

    def start(self) -> None:
        super().start()
        deadline = time.monotonic() + START_SECONDS_MAX
        while self.admin("--op", "show", "--mode", "sys").returncode:
            assert time.monotonic() < deadline, f"tgtd didn't answer\n{self.log_end()}"
            time.sleep(0.1)
        self.must("--lld", "iscsi", "--op", "new", "--mode", "target", "--tid", "1", "-T", self.iqn)
        for lun, size_mib in enumerate(self.sizes_mib, 1):
            self.add(lun, size_mib)
        self.must("--lld", "iscsi", "--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")

    def add(self, lun: int, size_mib: int, block_bytes: int = 512) -> None:
        store = self.directory / f"disk{lun}"
        with store.open("wb") as file:
            file.truncate(size_mib * MIB)
        unit = ["--lld", "iscsi", "--mode", "logicalunit", "--tid", "1", "--lun", str(lun)]
        flags = [] if self.write_cache else ["--bsoflags", "sync"]
        self.must(*unit, "--op", "new", "-b", str(store), "--blocksize", str(block_bytes), *flags)
        self.must(*unit, "--op", "update", "--params", "thin_provisioning=1")
        if not self.write_cache:
            # The caching page with WCE clear: bytes 0 to 2 of page 08h.
            page = ["0x08", "0x00", "0x12", "0x10"] + ["0"] * 16
            self.must(*unit, "--op", "update", "--params", f"mode_page={':'.join(page)}")

    def protect(self, lun: int) -> None:
        """Lets nobody write a disk that is there."""
        unit = ["--lld", "iscsi", "--mode", "logicalunit", "--tid", "1", "--lun", str(lun)]
        self.must(*unit, "--op", "update", "--params", "readonly=1")

    def admin(self, *arguments) -> subprocess.CompletedProcess:
        command = ["tgtadm", "-C", str(self.control), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    def must(self, *arguments) -> None:
        finished = self.admin(*arguments)
        assert finished.returncode == 0, f"tgtadm {' '.join(arguments)}: {finished.stderr}"

    def disk(self, lun: int, portal: int = 0) -> Disk:
        return Disk(f"127.0.0.1:{self.ports[portal]}", self.iqn, lun)

    def stop(self) -> None:
        """tgtd with targets doesn't end when it is asked to."""
        if self.process is not None:
            self.kill()


class IscsiPortico(Portico):
    """The program under test with two iSCSI portals. All disks lie under one target that lets anybody
    in; the last one lies under another too, which asks for CHAP.
    """

    iqn = "iqn.2024-01.io.portico:conformance"
    chap_iqn = "iqn.2024-01.io.portico:chap"
    chap_initiator = "iqn.2024-01.io.portico:chap-guest"

    def __init__(
        self, sizes_mib: list[int], *arguments, write_cache: bool = False, portals: list[str] | None = None,
        tables: str = "", **options,
    ):
        self.sizes_mib = sizes_mib
        self.write_cache = write_cache
        self.portals = portals or [f"127.0.0.1:{free_port()}" for _ in range(2)]
        listen = ", ".join(f'{{ address = "{portal}" }}' for portal in self.portals)
        super().__init__(*arguments, tables=f"[iscsi]\nlisten = [{listen}]\n{tables}", **options)

    def start(self) -> None:
        super().start()
        if not json.loads(self.ask("target", "list", "--json"))["targets"]:
            self.prepare()

    def prepare(self) -> None:
        """Everything that an operator sets up once."""
        self.ask("target", "create", self.iqn)
        cache = ["--write-cache"] if self.write_cache else []
        for lun, size_mib in enumerate(self.sizes_mib, 1):
            self.add(lun, size_mib, *cache)
        self.ask("target", "create", self.chap_iqn)
        self.map(len(self.sizes_mib), self.chap_iqn, self.chap_initiator)

    def map(self, lun: int, iqn: str, initiator: str) -> None:
        self.ask("lun", "map", f"disk{lun}", "--target", iqn, "--lun", lun, "--initiator", initiator)

    def add(self, lun: int, size_mib: int, *options: str) -> None:
        self.ask("lun", "create", f"disk{lun}", "--size", f"{size_mib}MiB", *options)
        self.map(lun, self.iqn, "any")

    def protect(self, lun: int) -> None:
        """Puts a disk that nobody can write in the place of this one."""
        self.ask("lun", "unmap", f"disk{lun}", "--target", self.iqn)
        self.ask("lun", "create", "protected", "--size", f"{self.sizes_mib[lun - 1]}MiB", "--read-only")
        self.ask("lun", "map", "protected", "--target", self.iqn, "--lun", lun, "--initiator", "any")

    def secrets(self, user: str, secret: str, mutual_user: str, mutual_secret: str) -> None:
        """What the initiator of the CHAP target proves itself with, and the target to it."""
        files = []
        for name, text in (("chap", secret), ("mutual", mutual_secret)):
            path = self.directory / f"{name}.secret"
            path.touch(mode=0o600)
            path.write_text(text)
            files.append(path)
        self.ask("initiator", "create", self.chap_initiator, "--chap-user", user, "--chap-secret-file", files[0],
                 "--mutual-user", mutual_user, "--mutual-secret-file", files[1])

    def allocated_bytes(self) -> int:
        """What the store holds altogether."""
        return int(self.metric("portico_store_used_bytes"))

    def disk(self, lun: int, portal: int = 0) -> Disk:
        return Disk(self.portals[portal], self.iqn, lun)
