"""A real Linux kernel that boots as a process (User-mode Linux), to be the client of a server beside it.

Its root is a copy-on-write view of this machine's own, its network a tap in the network namespace of
the suite: the guest is 10.0.2.15, servers listen on 10.0.2.2 and 10.0.2.3.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import install

KERNEL = "/usr/bin/linux.uml"
ADDRESSES = ("10.0.2.2", "10.0.2.3")
TAP = "portico0"
HERE = Path(__file__).parent / "guest"
CLONE_NEWNET = 0x40000000


def own_network() -> None:
    """Moves this process into a network of its own, with the servers' addresses on a tap."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise SystemExit(f"no network namespace: {os.strerror(ctypes.get_errno())}; run as root")
    ip("link", "set", "lo", "up")
    ip("tuntap", "add", "dev", TAP, "mode", "tap")
    for address in ADDRESSES:
        ip("addr", "add", f"{address}/24", "dev", TAP)
    ip("link", "set", TAP, "up")


def ip(*arguments) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=30)


class Guest:
    """One run of one job; used as a context, in which the job goes on."""

    def __init__(self, job: str, variables: dict[str, str] | None = None, memory_mib: int = 768):
        install.HOME.mkdir(parents=True, exist_ok=True)
        self.shared = Path(tempfile.mkdtemp(prefix="guest-", dir=install.HOME))
        for part in ("init", "enter"):
            shutil.copy(HERE / part, self.shared)
        (self.shared / "init").chmod(0o755)
        settings = "".join(f"{name}='{value}'\n" for name, value in (variables or {}).items())
        (self.shared / "job").write_text(settings + (HERE / "iscsi.sh").read_text() + job)
        self.memory_mib = memory_mib
        self.process = None

    def __enter__(self):
        with (self.shared / "console").open("wb") as console:
            self.process = subprocess.Popen(
                [KERNEL, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"mem={self.memory_mib}M",
                 f"init={self.shared}/init", f"shared={self.shared}", f"vec0:transport=tap,ifname={TAP},depth=128,gro=1",
                 "con=null", "con0=null,fd:1", "quiet"],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
                env=os.environ | {"TMPDIR": "/dev/shm"})
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        if kind is None:
            shutil.rmtree(self.shared, ignore_errors=True)

    def finish(self, seconds: float) -> str:
        """Waits for the job to end well and returns what it printed."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the guest didn't end in {seconds} s:\n{self.tail()}") from None
        status = self.shared / "status"
        assert status.exists(), f"the guest ended without a status:\n{self.tail()}"
        code = status.read_text().strip()
        assert code == "0", f"the job ended with {code}:\n{self.tail()}"
        return self.output()

    def wait_for(self, mark: str, seconds: float) -> None:
        """Waits for the job to make a file of this name in its shared directory."""
        deadline = time.monotonic() + seconds
        while not (self.shared / mark).exists():
            assert self.process.poll() is None, f"the guest ended before {mark}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"no {mark} in {seconds} s:\n{self.tail()}"
            time.sleep(0.05)

    def output(self) -> str:
        path = self.shared / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def tail(self) -> str:
        console = (self.shared / "console").read_text(errors="replace")
        return f"{self.output()[-3000:]}\n-- console --\n{console[-1500:]}"


def run(job: str, seconds: float = 240, **variables) -> str:
    """A job from boot to its end."""
    with Guest(job, variables) as guest:
        return guest.finish(seconds)
