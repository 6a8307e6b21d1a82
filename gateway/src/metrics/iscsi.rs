//! What the iSCSI front door, its LUNs and its sessions count.

use portico_iscsi::session::registry::SharedSession;
use portico_iscsi::stats::{Stats, UnitStats, Work};

use super::text::Text;
use crate::block::Block;

/// Sessions told one by one; more would make a page that nobody can store.
const SESSIONS_MAX: usize = 256;

/// What comes behind a name's prefix, the help line, and the value.
type Family = (&'static str, &'static str, fn(&Work) -> u64);

/// Counted for each LUN and each session; the braces stand for that.
const FAMILIES: [Family; 4] = [
    ("commands", "Commands of {}.", |work| work.commands.value()),
    (
        "commands_failed",
        "Commands of {} answered by another status than GOOD.",
        |work| work.failed.value(),
    ),
    (
        "written_bytes",
        "Bytes that came with commands of {}.",
        |work| work.bytes_in.value(),
    ),
    (
        "read_bytes",
        "Bytes that commands of {} answered with.",
        |work| work.bytes_out.value(),
    ),
];

pub(super) fn render(text: &mut Text, block: &Block) {
    let service = block.iscsi();
    totals(text, service.stats());
    let windows = service.window_budget();
    text.gauge(
        "portico_iscsi_window_budget_bytes",
        "Bytes that initiators may send unasked.",
    )
    .sample(&[], windows.bytes());
    text.gauge(
        "portico_iscsi_window_budget_free_bytes",
        "Bytes of those that no session keeps.",
    )
    .sample(&[], windows.free_bytes());
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
    let rows: Vec<_> = with_target
        .iter()
        .map(|(labels, work)| {
            (
                labels
                    .each_ref()
                    .map(|(name, value)| (*name, value.as_str())),
                *work,
            )
        })
        .collect();
    works(text, "portico_iscsi_session", "a session", &rows);
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

fn kinds(stats: &UnitStats) -> [(&'static str, &Work); 3] {
    let UnitStats { read, write, other } = stats;
    [("read", read), ("write", write), ("other", other)]
}

fn luns(text: &mut Text, block: &Block) {
    let units = block.units();
    let mut size = text.gauge("portico_lun_size_bytes", "Size of a LUN.");
    for (name, unit) in &units {
        size.sample(&[("lun", name)], unit.image().size_bytes());
    }
    let rows: Vec<_> = units
        .iter()
        .flat_map(|(name, unit)| {
            let of_unit = kinds(unit.stats()).into_iter();
            of_unit.map(|(kind, work)| ([("lun", name.as_str()), ("kind", kind)], work))
        })
        .collect();
    works(text, "portico_lun", "a LUN", &rows);
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

/// What was done, by labels.
fn works<const N: usize>(
    text: &mut Text,
    prefix: &str,
    whose: &str,
    rows: &[([(&str, &str); N], &Work)],
) {
    for (name, help, value) in FAMILIES {
        let (name, help) = (format!("{prefix}_{name}_total"), help.replace("{}", whose));
        let mut family = text.counter(&name, &help);
        for (labels, work) in rows {
            family.sample(labels, value(work));
        }
    }
    let help = format!("Time a command of {whose} took, without its data transfer.");
    let name = format!("{prefix}_seconds");
    let mut times = text.histogram(&name, &help);
    for (labels, work) in rows {
        times.latency(labels, &work.time);
    }
}
