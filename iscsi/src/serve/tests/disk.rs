//! A disk in memory for tests: TEST UNIT READY, INQUIRY, READ(10), WRITE(10), which can be frozen.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use portico_backend::object::Payload;
use tokio::sync::watch;

use crate::scsi::command::{Command, Outcome, Status};
use crate::units::{Event, UnitId, Units};

pub(crate) const BLOCK: usize = 512;

/// LUNs 0 and 1 are this disk and another; all others are not mapped.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) bytes: Mutex<Vec<u8>>,
    frozen: watch::Sender<bool>,
    pub(crate) events: Mutex<Vec<Event>>,
    /// CDBs in the order in which they were begun.
    pub(crate) begun: Mutex<Vec<u8>>,
    pub(crate) running: AtomicUsize,
}

impl Disk {
    pub(crate) fn new(blocks: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; blocks * BLOCK]),
            frozen: watch::channel(false).0,
            events: Mutex::default(),
            begun: Mutex::default(),
            running: AtomicUsize::new(0),
        })
    }

    /// Holds every command that begins from now on, or lets them all go on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    pub(crate) fn units(self: &Arc<Self>) -> Arc<Units> {
        let (disk, told) = (Arc::clone(self), Arc::clone(self));
        Arc::new(Units {
            execute: Box::new(move |command, _| {
                let disk = Arc::clone(&disk);
                Box::pin(async move { disk.execute(command).await })
            }),
            data_out_bytes_max: Box::new(|cdb, _| match cdb[0] {
                0x2a => blocks(cdb) as u64 * BLOCK as u64,
                _ => 0,
            }),
            unit: Box::new(|lun| match lun >> 48 {
                unit @ 0..2 => Some(UnitId(unit)),
                _ => None,
            }),
            units: Box::new(|| vec![UnitId(0), UnitId(1)]),
            event: Box::new(move |event, _| told.events.lock().unwrap().push(event)),
        })
    }

    async fn execute(&self, command: Command) -> Outcome {
        self.begun.lock().unwrap().push(command.cdb[1]);
        self.running.fetch_add(1, Ordering::Relaxed);
        let mut frozen = self.frozen.subscribe();
        frozen.wait_for(|frozen| !*frozen).await.unwrap();
        self.running.fetch_sub(1, Ordering::Relaxed);
        let good = Outcome::of_status(Status::Good);
        let cdb = &command.cdb;
        let at = u32::from_be_bytes(cdb[2..6].try_into().unwrap()) as usize * BLOCK;
        let length = blocks(cdb) * BLOCK;
        let mut bytes = self.bytes.lock().unwrap();
        match cdb[0] {
            0x00 => good,
            0x12 => Outcome {
                data_in: Bytes::from_static(&[0; 36]).into(),
                data_in_bytes: 36.min(u64::from(cdb[4])),
                ..good
            },
            0x28 => Outcome {
                data_in: Bytes::copy_from_slice(&bytes[at..at + length]).into(),
                data_in_bytes: length as u64,
                ..good
            },
            0x2a => {
                let data = Payload::to_bytes(&command.data_out);
                let length = length.min(data.len());
                bytes[at..at + length].copy_from_slice(&data[..length]);
                Outcome {
                    data_out_bytes: length as u64,
                    ..good
                }
            }
            _ => Outcome {
                sense: Bytes::from_static(&[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0]),
                ..Outcome::of_status(Status::CheckCondition)
            },
        }
    }
}

fn blocks(cdb: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([cdb[7], cdb[8]]))
}
