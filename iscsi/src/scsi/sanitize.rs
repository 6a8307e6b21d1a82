//! SANITIZE (SBC-4 4.11, 5.30): all of the medium is overwritten or erased, whatever becomes of who
//! asked for it.
//!
//! Neither an abort nor a reset nor a lost session ends it, so it runs as a task of its own.
//! Cryptographic erase is not offered: nothing here is encrypted by a key that could be forgotten.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use portico_backend::error::Error;
use portico_backend::object::Durability;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::command::Status;
use super::limits::{CHUNK_BYTES, SANITIZE_BYTES_PER_SECOND};
use super::opcode::Row;
use super::provisioning::repeated;
use super::sense::{Code, Failure, Sense, SenseKey, Specific};
use super::task::{Answer, Reply, Task};
use super::unit::Unit;

const OPCODE: u8 = 0x48;
const OVERWRITE: u8 = 0x01;

/// How far a unit is with it.
#[derive(Debug, Default)]
pub(super) struct Sanitize {
    phase: Mutex<Phase>,
    /// Parts of 65,536.
    progress: AtomicU64,
    /// The unit was reset.
    reset: Notify,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Phase {
    #[default]
    Idle,
    Running,
    /// The medium holds anything; only another SANITIZE helps, or EXIT FAILURE MODE.
    Failed,
}

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Plan {
    Erase,
    /// One block for each pass.
    Overwrite(Vec<Bytes>),
}

impl Sanitize {
    /// That the command may be done now.
    pub(super) fn admit(&self, row: &Row) -> Result<(), Failure> {
        match self.sense() {
            sense if sense.key == SenseKey::NoSense => Ok(()),
            sense if sense.key == SenseKey::MediumError && row.opcode() == OPCODE => Ok(()),
            sense => Err(sense.into()),
        }
    }

    /// What REQUEST SENSE says about it.
    pub(super) fn sense(&self) -> Sense {
        let phase = *self.phase();
        match phase {
            Phase::Idle => Sense::new(SenseKey::NoSense, Code::NONE),
            Phase::Failed => Sense::new(SenseKey::MediumError, Code::SANITIZE_FAILED),
            Phase::Running => {
                let parts = self.progress.load(Ordering::Relaxed);
                let parts = u16::try_from(parts).unwrap_or(u16::MAX);
                let mut sense = Sense::new(SenseKey::NotReady, Code::SANITIZE_IN_PROGRESS);
                sense.specific = Some(Specific::Progress(parts));
                sense
            }
        }
    }

    pub(super) fn is_running(&self) -> bool {
        *self.phase() == Phase::Running
    }

    /// The unit is reset: commands that wait for the end were aborted, and nobody waits for them.
    pub(super) fn reset(&self) {
        self.reset.notify_waiters();
    }

    fn begin(&self) -> Result<(), Failure> {
        let mut phase = self.phase();
        if *phase == Phase::Running {
            drop(phase);
            return Err(self.sense().into());
        }
        self.progress.store(0, Ordering::Relaxed);
        *phase = Phase::Running;
        Ok(())
    }

    fn end(&self, phase: Phase) {
        *self.phase() = phase;
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SANITIZE with OVERWRITE or BLOCK ERASE. With IMMED it answers when it has begun. A reset of the unit
/// waits until aborted commands have ended, so it ends this one, and not what it began.
pub(super) async fn sanitize(task: &Task<'_>) -> Answer {
    const IMMEDIATE: u8 = 0x80;
    let plan = plan(task)?;
    let mut reset = pin!(task.unit().sanitize.reset.notified());
    reset.as_mut().enable();
    let unit = Arc::clone(task.unit());
    unit.sanitize.begin()?;
    let run = tokio::spawn(async move {
        let done = work(&unit, plan).await;
        let phase = match done {
            Ok(()) => Phase::Idle,
            Err(_) => Phase::Failed,
        };
        unit.sanitize.end(phase);
        done
    });
    if task.cdb.flag(1, IMMEDIATE) {
        return Ok(Reply::none());
    }
    let done = tokio::select! {
        done = run => done,
        () = reset => return Err(Failure::Status(Status::TaskAborted)),
    };
    match done {
        Ok(Ok(())) => Ok(Reply::none()),
        _ => Err(Sense::new(SenseKey::MediumError, Code::SANITIZE_FAILED).into()),
    }
}

/// SANITIZE with EXIT FAILURE MODE: a failed one is forgotten.
pub(super) fn exit_failure_mode(task: &Task<'_>) -> Answer {
    if task.cdb.u16(7) != 0 {
        return Err(Sense::cdb_field(7).into());
    }
    task.unit().sanitize.end(Phase::Idle);
    Ok(Reply::none())
}

fn plan(task: &Task<'_>) -> Result<Plan, Failure> {
    const HEADER: usize = 4;
    const INVERT: u8 = 0x80;
    const TEST: u8 = 0x60;
    const COUNT: u8 = 0x1f;
    let length = usize::from(task.cdb.u16(7));
    if task.cdb.u8(1) & 0x1f != OVERWRITE {
        return match length {
            0 => Ok(Plan::Erase),
            _ => Err(Sense::cdb_field(7).into()),
        };
    }
    let block_bytes = usize::try_from(task.unit().block_bytes()).expect("a block is small");
    if length <= HEADER || length > HEADER + block_bytes {
        return Err(Sense::cdb_field(7).into());
    }
    let list = task.list(length as u64)?;
    let passes = list[0] & COUNT;
    if passes == 0 || list[0] & TEST != 0 {
        return Err(Sense::list_field(0).into());
    }
    if usize::from(u16::from_be_bytes([list[2], list[3]])) != length - HEADER {
        return Err(Sense::list_field(2).into());
    }
    let block: Vec<u8> = list[HEADER..]
        .iter()
        .copied()
        .cycle()
        .take(block_bytes)
        .collect();
    let inverted: Vec<u8> = block.iter().map(|byte| !byte).collect();
    let (block, inverted) = (Bytes::from(block), Bytes::from(inverted));
    let blocks = (0..passes).map(|pass| match list[0] & INVERT != 0 && pass % 2 == 1 {
        true => inverted.clone(),
        false => block.clone(),
    });
    Ok(Plan::Overwrite(blocks.collect()))
}

async fn work(unit: &Unit, plan: Plan) -> Result<(), Error> {
    match plan {
        Plan::Erase => pass(unit, None, (0, 1)).await,
        Plan::Overwrite(blocks) => {
            let count = blocks.len() as u64;
            for (nth, block) in (0..).zip(&blocks) {
                pass(unit, Some(block), (nth, count)).await?;
            }
            Ok(())
        }
    }
}

/// One time over the medium, whose size may change on the way.
async fn pass(unit: &Unit, block: Option<&Bytes>, (nth, count): (u64, u64)) -> Result<(), Error> {
    /// Erased at a time: many objects, none of which is written.
    const ERASE_BYTES: u64 = 64 * 1024 * 1024;
    let started = Instant::now();
    let mut at = 0;
    loop {
        let size = unit.block_count() * u64::from(unit.block_bytes());
        if at >= size {
            return Ok(());
        }
        let length = match block {
            None => {
                let length = (size - at).min(ERASE_BYTES);
                let _change = unit.change(at, length).await;
                unit.image().discard(at, length).await?;
                length
            }
            Some(block) => {
                let length = (size - at).min(CHUNK_BYTES);
                let data = repeated(block, length);
                let change = unit.change(at, length).await;
                unit.image().write(at, data, Durability::Durable).await?;
                drop(change);
                let due = started + at_pace(at + length);
                tokio::time::sleep_until(due).await;
                length
            }
        };
        at += length;
        let parts = u128::from(nth * size + at) * 65_536 / u128::from(count * size).max(1);
        let parts = u64::try_from(parts).unwrap_or(u64::MAX);
        unit.sanitize.progress.store(parts, Ordering::Relaxed);
    }
}

/// How long so many bytes take at least.
fn at_pace(bytes: u64) -> Duration {
    Duration::from_millis(bytes / (SANITIZE_BYTES_PER_SECOND / 1_000))
}
