//! SCSI commands of any content: an outcome is well formed, no more is moved than there is room for,
//! and only a command that writes changes the medium.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_backend::image::{Image, ImagePools, NewImage};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{Payload, Pool};
use portico_iscsi::scsi::command::{Command, Outcome, Status};
use portico_iscsi::scsi::opcode::{Moves, Row, TABLE};
use portico_iscsi::scsi::{
    LunMap, NexusId, Unit, UnitOptions, WriteCache, data_out_bytes_max, execute,
};
use portico_iscsi::wire::request::TaskAttribute;
use tokio::runtime::{Builder, Runtime};

const BYTES: u64 = 256 * 1024;
const BLOCK_BYTES: u32 = 512;

/// Commands of one input.
const COMMANDS_MAX: usize = 16;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_current_thread();
    // SANITIZE keeps a pace.
    builder.enable_time().start_paused(true);
    builder.build().expect("a runtime")
});

/// The row of the table that it is made from, if any; the CDB and what is behind 16 bytes of it; who
/// asks and which LUN; Data-Out; room.
type Asked = (Option<u8>, ([u8; 16], Vec<u8>), (bool, u64), Vec<u8>, u32);

async fn luns() -> LunMap {
    let pools = ImagePools {
        data: Pool::new("data", ""),
        meta: Pool::new("meta", ""),
    };
    let new = NewImage {
        object_size: 65_536,
        stripe_unit: 65_536,
        ..NewImage::new("one", BYTES, 1)
    };
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let store = cluster.session("fuzz");
    Image::create(&*store, &pools, &new).await.expect("created");
    let image = Image::open(store, &pools, "one").await.expect("opened");
    let options = UnitOptions {
        write_cache: WriteCache::On,
        ..UnitOptions::default()
    };
    LunMap::new("iqn.t:t", [(0, Arc::new(Unit::new(image, options)))])
}

fn nexus(number: u8) -> NexusId {
    NexusId {
        initiator: "iqn.t:i".to_owned(),
        isid: [0, 0, 0, 0, 0, number],
        target_portal: 1,
    }
}

/// As a session hands it over: 16 bytes of CDB at least, 260 at most, and of the Data-Out buffer no
/// more than the command can use.
fn command((row, (mut cdb, rest), (_, lun), mut data, room): Asked) -> Command {
    if let Some(row) = row.map(|row| &TABLE[usize::from(row) % TABLE.len()]) {
        cdb[0] = row.opcode();
        if let Some(action) = row.service_action {
            cdb[1] = (cdb[1] & 0xe0) | action;
        }
    }
    let rest = &rest[..rest.len().min(244)];
    let cdb = Bytes::from([&cdb[..], rest].concat());
    let most = data_out_bytes_max(&cdb, BLOCK_BYTES);
    data.truncate(usize::try_from(most).expect("bounded"));
    Command {
        lun: if lun % 8 == 0 { lun } else { 0 },
        cdb,
        attribute: TaskAttribute::Simple,
        data_out: Payload::from(Bytes::from(data)),
        data_in_bytes_max: room,
    }
}

fn check(cdb: &[u8], room: u32, outcome: &Outcome) {
    let is_good = outcome.status == Status::Good;
    let in_bytes = outcome.data_in.len();
    assert!(in_bytes <= u64::from(room));
    // What there is and fits is there: a residual says the truth.
    assert_eq!(in_bytes, outcome.data_in_bytes.min(u64::from(room)));
    assert!(is_good || outcome.data_in_bytes == 0);
    let reads = |row: &Row| row.opcode() == cdb[0] && row.moves == Moves::In;
    assert!(outcome.data_in_bytes == 0 || TABLE.iter().any(reads));
    assert!(outcome.data_out_bytes <= data_out_bytes_max(cdb, BLOCK_BYTES));
    if let Some(length) = allocation_length(cdb) {
        assert!(outcome.data_in_bytes <= length, "beyond {length}");
    }
    let statuses = [
        Status::Good,
        Status::CheckCondition,
        Status::ReservationConflict,
    ];
    assert!(statuses.contains(&outcome.status));
    let is_check = outcome.status == Status::CheckCondition;
    assert_eq!(is_check, !outcome.sense.is_empty());
    if is_check {
        check_sense(&outcome.sense);
    }
}

/// Where commands that read anything but blocks have it (SPC-5 4.3.5.6).
fn allocation_length(cdb: &[u8]) -> Option<u64> {
    let field = |at: usize, bytes: usize| {
        let field = cdb[at..at + bytes].iter();
        field.fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    match cdb[0] {
        0x03 | 0x1a => Some(field(4, 1)),
        0x12 | 0x1c => Some(field(3, 2)),
        0x37 | 0x4d | 0x5a => Some(field(7, 2)),
        0x25 => Some(8),
        0x9e => Some(field(10, 4)),
        0xa0 | 0xa3 | 0xb7 => Some(field(6, 4)),
        _ => None,
    }
}

/// SPC-5 4.4: fixed format, or descriptors that fill what is announced.
fn check_sense(sense: &[u8]) {
    assert!(sense.len() <= 252);
    let key = if sense[0] & 0x7f == 0x70 {
        assert_eq!((sense.len(), sense[7]), (18, 10));
        sense[2] & 0x0f
    } else {
        assert_eq!(sense[0], 0x72);
        assert_eq!(sense.len(), 8 + usize::from(sense[7]));
        let mut rest = &sense[8..];
        while let [_, length, ..] = *rest {
            rest = &rest[2 + usize::from(length)..];
        }
        assert!(rest.is_empty());
        sense[1] & 0x0f
    };
    // Neither RECOVERED ERROR nor what is vendor's own, copied or reserved.
    assert!([2, 3, 4, 5, 6, 7, 0xb, 0xe].contains(&key), "{key:x}");
}

async fn content(luns: &LunMap) -> Bytes {
    let unit = luns.unit(0).expect("the unit");
    let data = unit.image().read(0, BYTES).await.expect("read");
    data.to_bytes()
}

async fn run(asked: Vec<Asked>) {
    let luns = luns().await;
    let nexuses = [nexus(1), nexus(2)];
    let mut before = content(&luns).await;
    for asked in asked.into_iter().take(COMMANDS_MAX) {
        let nexus = &nexuses[usize::from(asked.2.0)];
        let command = command(asked);
        let (cdb, room) = (command.cdb.clone(), command.data_in_bytes_max);
        let outcome = execute(command, nexus, &luns).await;
        check(&cdb, room, &outcome);
        // With IMMED it goes on; it ends before the next command.
        while luns.unit(0).is_some_and(|unit| unit.is_sanitizing()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let after = content(&luns).await;
        let writes = |row: &Row| row.opcode() == cdb[0] && row.writes;
        let may_write = outcome.status == Status::Good && TABLE.iter().any(writes);
        assert!(before == after || may_write, "{cdb:x?}");
        before = after;
    }
}

fuzz_target!(|asked: Vec<Asked>| RUNTIME.block_on(run(asked)));
