# What the jobs of the iSCSI suite share: an initiator of its own name, disks found by their session.
set -eu
portal=10.0.2.2:3260
other=10.0.2.3:3260

initiator() { # name
  modprobe -a iscsi_tcp sd_mod sg
  mkdir -p /run/lock/iscsi /etc/iscsi
  rm -rf /etc/iscsi/nodes /etc/iscsi/send_targets
  echo "InitiatorName=$1" > /etc/iscsi/initiatorname.iscsi
  iscsid -f > /run/shared/iscsid.log 2>&1 &
  for attempt in $(seq 50); do iscsiadm -m session > /run/session 2>&1 || true; grep -q "No active" /run/session && return; sleep 0.1; done
  echo "iscsid did not start"; return 1
}

login() { # portal [name value]...
  at=$1; shift
  # A second record of a portal that was discovered would mean a second session.
  iscsiadm -m node -T "$iqn" -p "$at" > /dev/null 2>&1 || iscsiadm -m node -o new -T "$iqn" -p "$at" > /dev/null
  while [ $# -gt 0 ]; do iscsiadm -m node -T "$iqn" -p "$at" -o update -n "$1" -v "$2"; shift 2; done
  iscsiadm -m node -T "$iqn" -p "$at" --login
}

disk() { # lun: prints the device once it is there
  for attempt in $(seq 100); do
    for found in /sys/class/iscsi_session/session*/device/target*/*:"$1"/block/*; do
      [ -e "$found" ] && [ -b "/dev/${found##*/}" ] && { echo "/dev/${found##*/}"; return; }
    done
    sleep 0.1
  done
  echo "no disk with LUN $1" >&2; return 1
}

paths() { # lun: prints all devices that are this LUN
  for found in /sys/class/iscsi_session/session*/device/target*/*:"$1"/block/*; do
    if [ -e "$found" ]; then echo "/dev/${found##*/}"; fi
  done
}

wwid() { # lun: prints what multipath calls it
  /lib/udev/scsi_id -g -u -d "$(disk "$1")"
}

usable() { # lun: prints how many of its paths multipathd uses
  multipathd show paths format "%w %t" | grep "$(wwid "$1") " | grep -c active || true
}

both_usable() { # lun: waits until multipathd uses two paths of it
  end=$((SECONDS + 60))
  until [ "$(usable "$1")" = 2 ]; do
    [ $SECONDS -lt $end ] || { echo "not two usable paths"; multipathd show paths format "%w %d %t"; return 1; }
    sleep 0.25
  done
}
