"""Starts servers under test: Portico, and the peers a suite or a measurement is held against.

Each listens on free loopback ports below a directory of its own. A server that doesn't answer in time,
or ends by itself, fails the suite with the end of its log.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import install

START_SECONDS_MAX = 40
STOP_SECONDS_MAX = 40
REGION = "us-east-1"
ACCESS_KEY = "PORTICOCONFORMANCE01"
SECRET_KEY = "conformance/secret+of/forty0characters00"


@dataclass(frozen=True)
class Endpoint:
    """Where a client finds the server, and as whom."""

    url: str
    ca: Path | None = None
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY

    @property
    def transport(self) -> str:
        return self.url.split(":")[0]


@dataclass(frozen=True)
class User:
    """A user of the server, as its owner elements name it."""

    id: str
    display_name: str
    access_key: str
    secret_key: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process and its directory; used as a context: started on entry, ended and wiped on exit."""

    name = "server"

    def __init__(self):
        install.HOME.mkdir(parents=True, exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=install.HOME))
        self.log = self.directory / "log"
        self.process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.wipe()
            raise
        return self

    def __exit__(self, kind, *_):
        try:
            self.stop()
        finally:
            if kind:
                print(self.log_end())
            self.wipe()

    def command(self) -> list:
        raise NotImplementedError

    def environment(self) -> dict:
        return {}

    def endpoints(self) -> list[Endpoint]:
        raise NotImplementedError

    def user(self, name: str, display_name: str) -> User:
        """Makes a further user with a key."""
        raise NotImplementedError

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in self.command()], cwd=self.directory, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=os.environ | self.environment(), start_new_session=True,
            )
        for endpoint in self.endpoints():
            self.wait_for(endpoint)

    def wait_for(self, endpoint: Endpoint) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended by itself\n{self.log_end()}")
            try:
                connection = connect(endpoint, timeout=5)
                connection.request("GET", "/")
                if connection.getresponse().status < 500:
                    return
            except OSError as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise
            except http.client.HTTPException:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} didn't answer in {START_SECONDS_MAX} s\n{self.log_end()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Asks for a graceful end; one that doesn't come is a failure."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            status = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} didn't stop in {STOP_SECONDS_MAX} s\n{self.log_end()}")
        self.process = None
        self.check_stopped(status)

    def check_stopped(self, status: int) -> None:
        assert status in (0, -signal.SIGTERM), f"{self.name} ended with {status}\n{self.log_end()}"

    def kill(self) -> None:
        """kill -9, as a power switch for the process."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def wipe(self) -> None:
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def log_end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def cpu_seconds(self) -> float:
        """User and system time of the process, all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Portico(Server):
    """The program under test, with a plain and a TLS listener; on the local engine unless `tables` say
    otherwise, which are further tables of the configuration.
    """

    name = "portico"

    def __init__(
        self, part_bytes_min: int | None = None, grace_seconds: int = 2, capacity_bytes: int | None = None,
        tables: str = "", interval_seconds: int = 1,
    ):
        super().__init__()
        self.program = install.portico()
        self.plain, self.tls, self.metrics = free_port(), free_port(), free_port()
        self.authority = authority(self.directory)
        minimum = f"multipart_part_bytes_min = {part_bytes_min}\n" if part_bytes_min else ""
        backend = f'[backend]\nkind = "local"\ncapacity_bytes = {capacity_bytes}\n' if capacity_bytes else ""
        self.configuration = self.directory / "portico.toml"
        self.configuration.write_text(
            f'data_dir = "data"\n'
            f"{backend}"
            f"[s3]\n{minimum}"
            f'region = "{REGION}"\n'
            f'listen = [{{ address = "127.0.0.1:{self.plain}" }},\n'
            f'  {{ address = "127.0.0.1:{self.tls}",\n'
            f'    tls = {{ certificate = "server.pem", key = "server.key" }} }}]\n'
            f'[metrics]\naddress = "127.0.0.1:{self.metrics}"\n'
            f"[reclaim]\ngrace_seconds = {grace_seconds}\ninterval_seconds = {interval_seconds}\n"
            f"{tables}"
        )

    def command(self) -> list:
        return [self.program, "serve", "--config", self.configuration]

    def environment(self) -> dict:
        return {"PORTICO_ROOT_ACCESS_KEY": ACCESS_KEY, "PORTICO_ROOT_SECRET_KEY": SECRET_KEY}

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(f"http://127.0.0.1:{self.plain}"),
            Endpoint(f"https://127.0.0.1:{self.tls}", self.authority),
        ]

    def user(self, name: str, display_name: str) -> User:
        made = json.loads(self.ask("user", "create", name, "--display-name", display_name, "--json"))
        key = json.loads(self.ask("user", "key", "create", name, "--json"))
        return User(made["id"], made["display_name"], key["access_key"], key["secret_key"])

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of a page of the metrics listener."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """A figure of the metrics, summed over its labels."""
        status, text = self.page("/metrics")
        assert status == 200, f"/metrics: status {status}"
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        assert found, f"no metric {name}"
        return sum(map(float, found))

    def ask(self, *arguments) -> str:
        """A command of the program against this server, as an operator gives it."""
        command = [str(part) for part in (self.program, *arguments, "--config", self.configuration)]
        finished = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.directory)
        assert finished.returncode == 0, f"{' '.join(arguments)}: {finished.stdout}{finished.stderr}"
        return finished.stdout


class SeaweedFs(Server):
    """A peer: plain HTTP only, identities from a file."""

    name = "seaweedfs"

    def __init__(self):
        super().__init__()
        self.program = install.venv("peers") / "weed"
        self.port = free_port()
        (self.directory / "data").mkdir()
        self.users = []
        self.identities = self.directory / "s3.json"
        self.add("root", "root", ACCESS_KEY, SECRET_KEY)
        self.spare = [User(f"user{n}", f"User {n}", f"SPAREKEY{n:012}", f"secret{n:034}") for n in range(8)]
        for user in self.spare:
            self.add(user.id, user.display_name, user.access_key, user.secret_key)

    def add(self, name: str, display_name: str, access_key: str, secret_key: str) -> None:
        self.users.append({
            "name": name, "account": {"id": name, "displayName": display_name},
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
        })
        accounts = [user["account"] for user in self.users]
        self.identities.write_text(json.dumps({"identities": self.users, "accounts": accounts}))

    def user(self, name: str, display_name: str) -> User:
        """One of those made before the start, when the file is read; under its own name."""
        return self.spare.pop()

    def command(self) -> list:
        ports = [f"-{part}.port={free_port()}" for part in ("master", "volume", "filer")]
        ports += [f"-{part}.port.grpc={free_port()}" for part in ("master", "volume", "filer", "s3")]
        return [
            self.program, "server", f"-dir={self.directory}/data", "-ip=127.0.0.1", "-s3",
            f"-s3.port={self.port}", "-s3.port.iceberg=0", f"-s3.config={self.identities}",
            "-volume.max=2000", "-master.volumeSizeLimitMB=64", *ports,
        ]

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(f"http://127.0.0.1:{self.port}")]

    def check_stopped(self, status: int) -> None:
        """How a peer ends is not our concern."""


class S3sFs(Server):
    """A peer: plain files below a directory."""

    name = "s3s-fs"

    def __init__(self):
        super().__init__()
        self.program = install.cargo_program("s3s-fs")
        self.port = free_port()
        (self.directory / "data").mkdir()

    def command(self) -> list:
        return [
            self.program, "--host", "127.0.0.1", "--port", str(self.port),
            "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY, self.directory / "data",
        ]

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(f"http://127.0.0.1:{self.port}")]

    def check_stopped(self, status: int) -> None:
        """How a peer ends is not our concern."""


SERVERS = {server.name: server for server in (Portico, SeaweedFs, S3sFs)}


def connect(endpoint: Endpoint, timeout: float = 60) -> http.client.HTTPConnection:
    """A connection of the standard library: what a browser or a script would use."""
    address = endpoint.url.split("//")[1]
    if endpoint.transport == "https":
        context = ssl.create_default_context(cafile=str(endpoint.ca))
        return http.client.HTTPSConnection(address, timeout=timeout, context=context)
    return http.client.HTTPConnection(address, timeout=timeout)


def authority(directory: Path) -> Path:
    """Makes server.pem and server.key, signed by an authority of our own; returns its certificate."""
    def openssl(*arguments):
        command = ["openssl", *arguments]
        finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60)
        assert finished.returncode == 0, finished.stderr

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "30",
            "-subj", "/CN=Conformance", "-addext", "keyUsage=critical,keyCertSign",
            "-addext", "basicConstraints=critical,CA:TRUE")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (directory / "extensions").write_text(
        "subjectAltName = DNS:localhost, IP:127.0.0.1\n"
        "basicConstraints = critical, CA:FALSE\nextendedKeyUsage = serverAuth\n"
        "authorityKeyIdentifier = keyid\n"
    )
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "server.pem", "-days", "30", "-extfile", "extensions")
    return directory / "ca.pem"
