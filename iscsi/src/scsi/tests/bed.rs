//! A unit of 8 MiB and 512-byte blocks in objects of 64 KiB, and somebody who asks.

use std::sync::Arc;

use bytes::Bytes;
use portico_backend::image::{Image, ImagePools, NewImage};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{Payload, Pool};

use crate::scsi::command::{Command, Outcome, Status};
use crate::scsi::{LunMap, NexusId, Unit, UnitOptions, execute};
use crate::wire::request::TaskAttribute;

pub(super) const BLOCK: usize = 512;
pub(super) const BLOCKS: u64 = 16_384;
pub(super) const OBJECT_BLOCKS: u64 = 128;
pub(super) const TARGET: &str = "iqn.2026-01.test:target";

pub(super) struct Bed {
    pub(super) cluster: MemoryCluster,
    pub(super) luns: LunMap,
    pub(super) nexus: NexusId,
}

/// TEST UNIT READY.
pub(super) const READY: [u8; 6] = [0; 6];

pub(super) fn pools() -> ImagePools {
    ImagePools {
        data: Pool::new("data", ""),
        meta: Pool::new("meta", ""),
    }
}

pub(super) fn nexus(number: u8) -> NexusId {
    NexusId {
        initiator: format!("iqn.2026-01.test:initiator{number}"),
        isid: [0, 2, 0x3d, 0, 0, number],
        target_portal: 1,
    }
}

pub(super) fn new_image(name: &str) -> NewImage {
    NewImage {
        object_size: 64 * 1_024,
        stripe_unit: 64 * 1_024,
        ..NewImage::new(name, BLOCKS * BLOCK as u64, 1_000)
    }
}

pub(super) async fn unit(cluster: &MemoryCluster, new: &NewImage, options: UnitOptions) -> Unit {
    let store = cluster.session("test");
    Image::create(&*store, &pools(), new).await.unwrap();
    let image = Image::open(store, &pools(), &new.name).await.unwrap();
    Unit::new(image, options)
}

/// LUN 0 as these options say; the power-on attention is told already.
pub(super) async fn bed_with(new: NewImage, options: UnitOptions) -> Bed {
    let cluster = MemoryCluster::new(MemoryOptions::default());
    let unit = unit(&cluster, &new, options).await;
    let bed = Bed {
        cluster,
        luns: LunMap::new(TARGET, [(0, Arc::new(unit))]),
        nexus: nexus(1),
    };
    bed.settle(&bed.nexus).await;
    bed
}

pub(super) async fn bed() -> Bed {
    bed_with(new_image("one"), UnitOptions::default()).await
}

impl Bed {
    pub(super) fn unit(&self) -> &Arc<Unit> {
        self.luns.unit(0).unwrap()
    }

    /// Everything pending is told.
    pub(super) async fn settle(&self, nexus: &NexusId) {
        while self.by(nexus, &[0; 6], b"", 0).await.status == Status::CheckCondition {}
    }

    pub(super) async fn by(&self, nexus: &NexusId, cdb: &[u8], data: &[u8], room: u32) -> Outcome {
        self.at(0, nexus, (cdb, data, room)).await
    }

    pub(super) async fn at(
        &self,
        lun: u64,
        nexus: &NexusId,
        (cdb, data, room): (&[u8], &[u8], u32),
    ) -> Outcome {
        let command = Command {
            lun,
            cdb: Bytes::copy_from_slice(&padded(cdb)),
            attribute: TaskAttribute::Simple,
            data_out: Payload::from(Bytes::copy_from_slice(data)),
            data_in_bytes_max: room,
        };
        execute(command, nexus, &self.luns).await
    }

    pub(super) async fn run(&self, cdb: &[u8], data: &[u8], room: u32) -> Outcome {
        self.by(&self.nexus, cdb, data, room).await
    }

    /// GOOD, and the data.
    pub(super) async fn data(&self, cdb: &[u8]) -> Vec<u8> {
        let outcome = self.run(cdb, b"", 1 << 25).await;
        assert_eq!(outcome.status, Status::Good, "{cdb:02x?}: {outcome:?}");
        assert_eq!(outcome.data_in.len(), outcome.data_in_bytes);
        outcome.data_in.to_bytes().to_vec()
    }

    /// GOOD with this Data-Out buffer.
    pub(super) async fn good(&self, cdb: &[u8], data: &[u8]) {
        let outcome = self.run(cdb, data, 0).await;
        assert_eq!(outcome.status, Status::Good, "{cdb:02x?}: {outcome:?}");
    }

    /// CHECK CONDITION: sense key, code and qualifier.
    pub(super) async fn check(&self, cdb: &[u8], data: &[u8]) -> (u8, u8, u8) {
        sense_of(&self.run(cdb, data, 1 << 25).await)
    }

    pub(super) async fn read(&self, lba: u64, blocks: u32) -> Vec<u8> {
        self.data(&cdb_16(0x88, 0, lba, blocks)).await
    }

    pub(super) async fn write(&self, lba: u64, data: &[u8]) {
        let blocks = u32::try_from(data.len() / BLOCK).unwrap();
        self.good(&cdb_16(0x8a, 0, lba, blocks), data).await;
    }
}

/// As a session hands it over: 16 bytes at least.
fn padded(cdb: &[u8]) -> Vec<u8> {
    let mut padded = cdb.to_vec();
    padded.resize(padded.len().max(16), 0);
    padded
}

pub(super) fn sense_of(outcome: &Outcome) -> (u8, u8, u8) {
    assert_eq!(outcome.status, Status::CheckCondition, "{outcome:?}");
    match outcome.sense[0] & 0x7f {
        0x70 => (outcome.sense[2], outcome.sense[12], outcome.sense[13]),
        _ => (outcome.sense[1], outcome.sense[2], outcome.sense[3]),
    }
}

/// The INFORMATION field of fixed sense data.
pub(super) fn information(outcome: &Outcome) -> u32 {
    assert_eq!(outcome.sense[0], 0xf0, "VALID: {outcome:?}");
    u32::from_be_bytes(*outcome.sense[3..].first_chunk().unwrap())
}

pub(super) fn cdb_10(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(lba.to_be_bytes());
    cdb.push(0);
    cdb.extend(blocks.to_be_bytes());
    cdb.push(0);
    cdb
}

pub(super) fn cdb_12(opcode: u8, flags: u8, lba: u32, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(lba.to_be_bytes());
    cdb.extend(blocks.to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

pub(super) fn cdb_16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(lba.to_be_bytes());
    cdb.extend(blocks.to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

/// Blocks that differ from each other and from those of other seeds.
pub(super) fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at / BLOCK * 7 + at) % 251).unwrap() ^ seed;
    (0..blocks * BLOCK).map(byte).collect()
}

pub(super) const OUT_OF_RANGE: (u8, u8, u8) = (5, 0x21, 0);
pub(super) const INVALID_FIELD: (u8, u8, u8) = (5, 0x24, 0);
pub(super) const INVALID_LIST: (u8, u8, u8) = (5, 0x26, 0);
pub(super) const LIST_LENGTH: (u8, u8, u8) = (5, 0x1a, 0);
pub(super) const UNKNOWN: (u8, u8, u8) = (5, 0x20, 0);
pub(super) const WRONG_LENGTH: (u8, u8, u8) = (5, 0x0e, 3);
pub(super) const MISCOMPARE: (u8, u8, u8) = (0xe, 0x1d, 0);
