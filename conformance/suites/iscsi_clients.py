"""Real initiators against Portico: python -m iscsi_clients [--engine local|rados] [--only NAME] [--short]

qemu-img copies a disk image there and back; a real Linux kernel with open-iscsi makes file systems,
verifies what it wrote, loses paths and outlives a `kill -9`. All in a network of its own.
"""

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import time

import guest
import install
from ceph_cluster import Cluster
from iscsi_peers import MIB, IscsiPortico
from rados_server import RadosPortico
from report import Report

DISKS_MIB = [1024, 512, 64]
INITIATOR = "iqn.2024-01.io.portico:guest"
CHAP = {"chap_user": "guest", "chap_secret": "a-secret-of-guest", "mutual_user": "door", "mutual_secret": "a-secret-of-door"}
# Each comes so many bytes of writes after the last start.
KILLS = 3
KILL_AFTER_BYTES = 4 * MIB
# What comes back when a file of this size is removed and trimmed; journals take some meanwhile.
LARGE_MIB = 200
RETURNED_MIB_MIN = 180
# The local engine frees space when it is quiet for some seconds; a cluster's reports come late.
QUIET_SECONDS = 12
STEADY_SECONDS_MAX = 120

# How much the jobs move: as a rule, and in the short form.
SIZES = {"small": "64m", "mixed": "256m", "tree": "/usr/include"}
SIZES_SHORT = {"small": "16m", "mixed": "48m", "tree": "/usr/include/linux"}

START = f"""
initiator {INITIATOR}
"""

DIGESTS = "node.conn[0].iscsi.HeaderDigest CRC32C node.conn[0].iscsi.DataDigest CRC32C"

JOBS = {
    "discovery, login, logout and login again": START + """
iscsiadm -m discovery -t st -p $portal > /run/found
cat /run/found
grep -q "^$portal,.* $iqn\\$" /run/found
grep -q "^$other,.* $iqn\\$" /run/found
login $portal
d=$(disk 1)
dd if=/dev/urandom of=/run/random bs=1M count=16 status=none
dd if=/run/random of=$d bs=1M oflag=direct status=none
iscsiadm -m node --logoutall=all
login $portal
d=$(disk 1)
cmp -n 16777216 /run/random $d
iscsiadm -m session -P 3 | grep -q "SID"
iscsiadm -m node --logoutall=all
""",
    "header and data digests": START + f"""
login $portal {DIGESTS}
d=$(disk 1)
iscsiadm -m session -P 2 | grep -E "HeaderDigest|DataDigest" | tee /run/digests
[ $(grep -c CRC32C /run/digests) = 2 ]
fio --name=digests --filename=$d --rw=randwrite --bsrange=512-256k --size=$small --iodepth=16 --ioengine=libaio --direct=1 \\
  --verify=crc32c --do_verify=1 --verify_fatal=1 --minimal > /dev/null
iscsiadm -m node --logoutall=all
""",
    "CHAP, one-way and mutual": f"""
initiator {IscsiPortico.chap_initiator}
""" + """
auth="node.session.auth.authmethod CHAP node.session.auth.username"
if login $portal; then echo "let in without CHAP"; exit 1; fi
if login $portal $auth $chap_user node.session.auth.password wrong-secret-1; then echo "let in with a wrong secret"; exit 1; fi
login $portal $auth $chap_user node.session.auth.password $chap_secret
disk 3
iscsiadm -m node --logoutall=all
mutual="node.session.auth.username_in $mutual_user node.session.auth.password_in"
if login $portal $auth $chap_user node.session.auth.password $chap_secret $mutual another-secret; then
  echo "took a target that does not know its secret"; exit 1
fi
login $portal $auth $chap_user node.session.auth.password $chap_secret $mutual $mutual_secret
d=$(disk 3)
dd if=$d of=/dev/null bs=1M count=8 iflag=direct status=none
iscsiadm -m node --logoutall=all
""",
    "fio with verify": START + """
login $portal
d=$(disk 1)
fio --name=small --filename=$d --rw=randwrite --bs=4k --size=$small --iodepth=32 --ioengine=libaio --direct=1 \\
  --verify=crc32c --do_verify=1 --verify_fatal=1
fio --name=mixed --filename=$d --rw=randrw --bsrange=512-1m --size=$mixed --iodepth=8 --ioengine=libaio --direct=1 \\
  --verify=crc32c --do_verify=1 --verify_fatal=1
iscsiadm -m node --logoutall=all
""",
    "sg3_utils": START + """
login $portal
d=$(disk 1)
sg_inq $d
for page in 0x00 0x80 0x83 0x86 0xb0 0xb1 0xb2; do sg_vpd --page=$page $d; done
sg_readcap $d; sg_readcap --16 $d; sg_luns $d; sg_opcodes $d > /dev/null; sg_opcodes --tmf $d
sg_modes --all $d; sg_modes --six $d; sg_logs --list $d; sg_turs $d; sg_requests $d
sg_reset --device $d
sg_turs $d || sg_turs $d
dd if=/dev/urandom of=/run/block bs=512 count=1 status=none
dd if=/dev/zero of=/run/zero bs=512 count=1 status=none
sg_write_same --16 --lba=0 --num=2048 --in=/run/zero $d
cat /run/zero /run/block > /run/pair
sg_compare_and_write --in=/run/pair --lba=8 --num=1 $d
if sg_compare_and_write --in=/run/pair --lba=8 --num=1 $d; then echo "no miscompare"; exit 1; fi
dd if=$d of=/run/back bs=512 skip=8 count=1 iflag=direct status=none
cmp /run/block /run/back
sg_verify --lba=8 --count=1 --bpc=1 $d
sg_write_same --16 --unmap --lba=0 --num=8192 $d
sg_unmap --lba=0 --num=8192 --force $d
sg_get_lba_status --lba=0 $d
dd if=$d of=/run/back bs=512 skip=8 count=1 iflag=direct status=none
cmp /run/zero /run/back
sg_sync $d
iscsiadm -m node --logoutall=all
""",
    "two portals with multipath": START + """
modprobe -a dm-multipath dm-round-robin dm-service-time
printf 'defaults {\\n user_friendly_names yes\\n find_multipaths no\\n path_grouping_policy multibus\\n no_path_retry 5\\n}\\n' > /etc/multipath.conf
login $portal
login $other
disk 1
[ $(paths 1 | wc -l) = 2 ]
# Of the rules those for what multipath needs to know; others start programs by the dozen.
mkdir -p /run/udev /run/udev/rules.d
for rule in 85-hdparm.rules 69-lvm.rules; do ln -s /dev/null /run/udev/rules.d/$rule; done
/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add $(paths 1)
udevadm settle -t 60
multipathd -d > /run/shared/multipathd.log 2>&1 &
both_usable 1
multipath -ll
m=/dev/mapper/$(multipath -ll -v1 $(wwid 1))
[ -b $m ] || dmsetup mknodes
fio --name=one-path-lost --filename=$m --rw=randwrite --bs=16k --size=32m --rate_iops=,400 --iodepth=8 --ioengine=libaio --direct=1 \\
  --verify=crc32c --do_verify=1 --verify_fatal=1 --minimal > /dev/null &
writer=$!
sleep 1
iscsiadm -m node -T $iqn -p $other --logout
kill -0 $writer
wait $writer
login $other
both_usable 1
fio --name=both-again --filename=$m --rw=randwrite --bs=16k --size=32m --iodepth=8 --ioengine=libaio --direct=1 \\
  --verify=crc32c --do_verify=1 --verify_fatal=1 --minimal > /dev/null
multipath -f $m
iscsiadm -m node --logoutall=all
""",
}

FILE_SYSTEM = START + """
login $portal
d=$(disk 1)
modprobe $kind 2>/dev/null || true
$make $d
mount $d /mnt
cp -r $tree /mnt/tree
( cd $tree; find . -type f | sort | xargs sha256sum ) > /run/sums
sync
umount /mnt
$check $d
mount $d /mnt
( cd /mnt/tree; sha256sum -c --quiet /run/sums )
dd if=/dev/urandom of=/mnt/large bs=1M count=$large conv=fsync status=none
touch /run/shared/filled
while [ ! -e /run/shared/counted ]; do sleep 0.1; done
rm /mnt/large
# A file system may free the blocks of a removed file later, but before it is gone.
umount /mnt
mount $d /mnt
fstrim -v /mnt
umount /mnt
$check $d
iscsiadm -m node --logoutall=all
"""

# Every block is written once, and read once at the end; what was there before fits no block.
KILLED = START + """
login $portal node.session.timeo.replacement_timeout 120
d=$(disk 2)
job="--name=killed --filename=$d --rw=randwrite --bs=4k --size=24m --rate_iops=,400 --iodepth=16 --ioengine=libaio --direct=1 \\
  --verify=crc32c --verify_fatal=1"
touch /run/shared/ready
fio $job --do_verify=0
touch /run/shared/written
while [ ! -e /run/shared/checked ]; do sleep 0.1; done
fio $job --verify_only
iscsiadm -m session
[ $(iscsiadm -m session | grep -c " $iqn ") = 1 ]
iscsiadm -m node --logoutall=all
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run iscsi-clients")
    parser.add_argument("--engine", choices=["local", "rados"], help="one of them alone")
    parser.add_argument("--only", action="append", help="scenarios whose name contains this, may be repeated")
    parser.add_argument("--short", action="store_true", help="the same with less data")
    options = parser.parse_args()
    # A suite that is stopped at its time limit leaves neither guest nor server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    install.iscsi()
    if options.engine != "local":
        install.ceph()
    install.portico()
    guest.own_network()
    report = Report("iscsi-clients")
    if options.engine != "rados":
        with ClientsPortico() as server:
            scenarios(report, "local", server, options)
    if options.engine != "local":
        with Cluster() as cluster, ClientsRados(cluster, "iscsi") as server:
            scenarios(report, "rados", server, options)
    return report.finish(whole=not options.only and not options.engine)


class ClientsPortico(IscsiPortico):
    """On the addresses that the guest sees; the last disk asks for CHAP under a target of its own."""

    def __init__(self, *arguments, **options):
        super().__init__(DISKS_MIB, *arguments, portals=[f"{address}:3260" for address in guest.ADDRESSES], **options)

    def prepare(self) -> None:
        super().prepare()
        self.secrets(*CHAP.values())

    def allocated_bytes(self) -> int:
        """Once the store says the same twice."""
        deadline = time.monotonic() + STEADY_SECONDS_MAX
        last = super().allocated_bytes()
        while True:
            time.sleep(QUIET_SECONDS)
            now = super().allocated_bytes()
            if abs(now - last) < MIB:
                return now
            assert time.monotonic() < deadline, f"the space in use is not steady: {last}, then {now} bytes"
            last = now


class ClientsRados(RadosPortico, ClientsPortico):
    """The same on a cluster."""


def scenarios(report: Report, engine: str, server: IscsiPortico, options: argparse.Namespace) -> None:
    plain = {"iqn": server.iqn} | (SIZES_SHORT if options.short else SIZES)
    found = [("qemu-img there and back", lambda: qemu_img(server))]
    for name, job in JOBS.items():
        variables = plain | CHAP | {"iqn": server.chap_iqn} if "CHAP" in name else plain
        found.append((name, lambda job=job, variables=variables: print(guest.run(job, **variables))))
    for kind, make, check in (("ext4", "mkfs.ext4 -q -F", "fsck.ext4 -f -n"), ("xfs", "mkfs.xfs -q -f", "xfs_repair -n")):
        variables = plain | {"large": str(LARGE_MIB), "kind": kind, "make": make, "check": check}
        found.append((f"{kind}, fsck and fstrim", lambda variables=variables: file_system(server, variables)))
    found.append(("kill -9 under fio with verify", lambda: killed(server)))
    for name, scenario in found:
        if options.only is None or any(part in name for part in options.only):
            report.run(f"{engine}: {name}", scenario)


def qemu_img(server: IscsiPortico) -> None:
    """A disk image with holes, onto a LUN and back by an initiator in user space."""
    source, back = server.directory / "source.qcow2", server.directory / "back.raw"
    raw = server.directory / "source.raw"
    generator = random.Random(4)
    with raw.open("wb") as file:
        file.truncate(DISKS_MIB[1] * MIB)
        for place in range(0, DISKS_MIB[1] * MIB, 16 * MIB):
            file.seek(place + generator.randrange(0, 8 * MIB, 512))
            file.write(generator.randbytes(generator.randrange(1, 2 * MIB)))
    disk = server.disk(2)
    tool("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, source)
    tool("qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw", source, disk.url)
    tool("qemu-img", "convert", "-f", "raw", "-O", "raw", disk.url, back)
    assert digest(back) == digest(raw), "the disk image differs"
    tool("qemu-img", "compare", "-f", "raw", "-F", "raw", raw, disk.url)


def tool(*command) -> str:
    finished = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, f"{command[0]}: {finished.stdout[-800:]}{finished.stderr[-800:]}"
    return finished.stdout


def digest(path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_system(server: IscsiPortico, variables: dict) -> None:
    """What fstrim discards really comes back to the store."""
    with guest.Guest(FILE_SYSTEM, variables) as machine:
        machine.wait_for("filled", 200)
        before = server.allocated_bytes()
        (machine.shared / "counted").touch()
        print(machine.finish(200))
    freed = before - server.allocated_bytes()
    print(f"{freed / MIB:.0f} MiB came back")
    assert freed >= RETURNED_MIB_MIN * MIB, f"{LARGE_MIB} MiB were removed and trimmed, {freed / MIB:.0f} MiB came back"


def killed(server: IscsiPortico) -> None:
    """The session comes back by itself, and whatever was acknowledged is there."""
    with guest.Guest(KILLED, {"iqn": server.iqn}) as machine:
        machine.wait_for("ready", 60)
        for _ in range(KILLS):
            wait_for_writes(server)
            assert not (machine.shared / "written").exists(), "all was written before it was killed"
            restart(server)
        machine.wait_for("written", 180)
        restart(server)
        (machine.shared / "checked").touch()
        print(machine.finish(120))


def wait_for_writes(server: IscsiPortico) -> None:
    """Until the server has taken in some since its start."""
    deadline = time.monotonic() + 120
    while server.metric("portico_iscsi_received_bytes_total") < KILL_AFTER_BYTES:
        assert time.monotonic() < deadline, f"the initiator doesn't write\n{server.log_end()}"
        time.sleep(0.05)


def restart(server: IscsiPortico) -> None:
    server.kill()
    time.sleep(1)
    server.start()


if __name__ == "__main__":
    sys.exit(main())
