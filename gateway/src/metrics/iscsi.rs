//! What the iSCSI front door, its LUNs and its sessions count.

use portico_iscsi::session::registry::SharedSession;
use portico_iscsi::stats::{Stats, UnitStats, Work};

use super::text::Text;
use crate::block::Block;

/// Sessions told one by one; more would make a page that nobody can store.
const SESSIONS_MAX: usize = 256;

/// What comes behind a name's prefix, the help line, and the value.
type Family = (&'static str, &'static str, fn(&Work) -> u64);

pub(super) fn render(text: &mut Text, block: &Block) {
    let service = block.iscsi();
    totals(text, service.stats());
    text.counter(
        "portico_iscsi_images_reopened_total",
        "Times that all images were opened anew after a fence.",
    )
    .sample(&[], block.reopened().value());
    luns(text, block);
    let sessions = service.sessions().list();
    let with_target: Vec<_> = sessions
        .iter()
        .filter(|session| session.target().is_some())
        .take(SESSIONS_MAX)
        .map(|session| (labels_of(session), session.stats()))
        .collect();
    of_sessions(text, &with_target);
}

fn totals(text: &mut Text, stats: &Stats) {
    for (name, help, gauge) in [
        (
            "connections",
            "iSCSI connections that are open.",
            &stats.connections_open,
        ),
        (
            "sessions",
            "iSCSI sessions, discoveries too.",
            &stats.sessions_open,
        ),
    ] {
        text.gauge(&format!("portico_iscsi_{name}"), help)
            .sample(&[], gauge.value());
    }
    for (name, help, counter) in [
        (
            "connections",
            "iSCSI connections that were served.",
            &stats.connections,
        ),
        (
            "connections_refused",
            "iSCSI connections refused for their number.",
            &stats.connections_refused,
        ),
        (
            "connections_cut",
            "iSCSI connections ended for silence, a digest or a protocol error.",
            &stats.connections_cut,
        ),
        ("sessions", "iSCSI sessions begun.", &stats.sessions),
        (
            "logins_failed",
            "iSCSI logins without success.",
            &stats.logins_failed,
        ),
        ("commands", "SCSI commands answered.", &stats.commands),
        (
            "commands_failed",
            "SCSI commands answered by another status than GOOD.",
            &stats.commands_failed,
        ),
        ("received_bytes", "Bytes from initiators.", &stats.bytes_in),
        ("sent_bytes", "Bytes to initiators.", &stats.bytes_out),
        (
            "task_management",
            "Task management functions.",
            &stats.management,
        ),
        ("rejects", "PDUs that were rejected.", &stats.rejects),
    ] {
        text.counter(&format!("portico_iscsi_{name}_total"), help)
            .sample(&[], counter.value());
    }
    text.histogram(
        "portico_iscsi_service_seconds",
        "Time a SCSI command took, without its data transfer.",
    )
    .latency(&[], &stats.service);
}

fn luns(text: &mut Text, block: &Block) {
    let units = block.units();
    let kinds = |stats: &UnitStats, each: &mut dyn FnMut(&str, &Work)| {
        each("read", &stats.read);
        each("write", &stats.write);
        each("other", &stats.other);
    };
    let mut size = text.gauge("portico_lun_size_bytes", "Size of a LUN.");
    for (name, unit) in &units {
        size.sample(&[("lun", name)], unit.image().size_bytes());
    }
    let families: [Family; 4] = [
        ("commands", "Commands of a LUN.", |work| {
            work.commands.value()
        }),
        (
            "commands_failed",
            "Commands of a LUN answered by another status than GOOD.",
            |work| work.failed.value(),
        ),
        (
            "written_bytes",
            "Bytes that came with commands of a LUN.",
            |work| work.bytes_in.value(),
        ),
        (
            "read_bytes",
            "Bytes that commands of a LUN answered with.",
            |work| work.bytes_out.value(),
        ),
    ];
    for (name, help, value) in families {
        let name = format!("portico_lun_{name}_total");
        let mut family = text.counter(&name, help);
        for (lun, unit) in &units {
            kinds(unit.stats(), &mut |kind, work| {
                family.sample(&[("lun", lun), ("kind", kind)], value(work));
            });
        }
    }
    let mut times = text.histogram(
        "portico_lun_seconds",
        "Time a command of a LUN took, without its data transfer.",
    );
    for (lun, unit) in &units {
        kinds(unit.stats(), &mut |kind, work| {
            times.latency(&[("lun", lun), ("kind", kind)], &work.time);
        });
    }
}

/// Initiator, target and ISID tell sessions apart; the ISID alone those of one initiator.
fn labels_of(session: &SharedSession) -> [(&'static str, String); 3] {
    let nexus = session.nexus();
    let isid = nexus
        .isid
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    [
        ("initiator", nexus.initiator.clone()),
        ("isid", isid),
        ("target", session.target().unwrap_or_default().to_owned()),
    ]
}

fn of_sessions(text: &mut Text, sessions: &[([(&'static str, String); 3], &Work)]) {
    let families: [Family; 3] = [
        ("commands", "Commands of a session.", |work| {
            work.commands.value()
        }),
        (
            "written_bytes",
            "Bytes that came with commands of a session.",
            |work| work.bytes_in.value(),
        ),
        (
            "read_bytes",
            "Bytes that commands of a session were answered with.",
            |work| work.bytes_out.value(),
        ),
    ];
    for (name, help, value) in families {
        let name = format!("portico_iscsi_session_{name}_total");
        let mut family = text.counter(&name, help);
        for (labels, work) in sessions {
            family.sample(&borrowed(labels), value(work));
        }
    }
    let mut times = text.histogram(
        "portico_iscsi_session_seconds",
        "Time a command of a session took, without its data transfer.",
    );
    for (labels, work) in sessions {
        times.latency(&borrowed(labels), &work.time);
    }
}

fn borrowed<'a>(labels: &'a [(&'static str, String); 3]) -> [(&'a str, &'a str); 3] {
    std::array::from_fn(|at| (labels[at].0, labels[at].1.as_str()))
}
