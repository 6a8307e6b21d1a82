//! The data of commands (RFC 7143 sections 11.7, 11.8 and 4.2.5): immediate, unsolicited and
//! solicited Data-Out, Data-In in bursts, and exact residuals.

use bytes::Bytes;
use portico_backend::budget::Permit;
use portico_backend::object::Payload;
use tokio::time::Instant;

use super::task::{DIGEST_FAILED, INCORRECT_AMOUNT, Phase, Task, TaskKey, UNEXPECTED_DATA};
use super::{ConnectionKey, Hold, NUMBERS, Session};
use crate::limits::DATA_OUT_TIMEOUT;
use crate::scsi::command::{Outcome, Status};
use crate::wire::header::{Header, RESERVED_TAG};
use crate::wire::request::DataOut;
use crate::wire::response::{
    DataIn, ReadyToTransfer, RejectReason, Residual, Response, ScsiResponse,
};

/// Pieces of a payload that are shorter on average are joined: each costs a PDU otherwise.
const PIECE_BYTES_MIN: u64 = 4_096;

/// Data that was asked for with an R2T and has not come whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutstandingTransfer {
    ttt: u32,
    end: u64,
    data_sn: u32,
}

impl Session {
    /// Does what a task needs next: bytes reserved, data asked for, its turn.
    pub(super) fn proceed(&mut self, now: Instant, key: TaskKey) {
        let Some(task) = self.task(key) else {
            return;
        };
        if task.is_unsolicited || task.phase != Phase::Receiving {
            return;
        }
        if let Some(codes) = task.failure {
            // What was asked for still comes; the answer waits for it.
            if task.transfers.is_empty() {
                self.complete(key, &aborted_command(codes));
            }
            return;
        }
        if !self.has_reserved(key) {
            return;
        }
        let Some(task) = self.task(key) else {
            return;
        };
        if task.received >= task.needed {
            self.take_turn(key);
        } else {
            self.solicit(now, key);
        }
    }

    /// Reserves what a task is going to hold, at once or in its turn.
    fn has_reserved(&mut self, key: TaskKey) -> bool {
        let budget = self.parts.budget.clone();
        let Some(task) = self.task_mut(key) else {
            return false;
        };
        if task.hold.transfer.is_some() {
            return true;
        }
        let missing = task.needed.saturating_sub(task.received);
        let bytes = task.wanted_bytes + missing;
        if bytes == 0 {
            return true;
        }
        let connection = task.connection;
        let Some(connection) = self.connection(connection) else {
            return false;
        };
        if connection.waiting.contains(&key) {
            return false;
        }
        // Nobody overtakes who waits already.
        let permit = match connection.waiting.is_empty() {
            true => budget.try_take(bytes),
            false => None,
        };
        if permit.is_none() {
            connection.waiting.push_back(key);
        }
        let Some(task) = self.task_mut(key) else {
            return false;
        };
        task.wanted_bytes = if permit.is_some() { 0 } else { bytes };
        task.hold.transfer = permit;
        task.hold.transfer.is_some()
    }

    /// Bytes that a task waited for.
    pub(super) fn reserve(&mut self, now: Instant, key: TaskKey, permit: Permit) {
        for connection in &mut self.connections {
            connection.waiting.retain(|waiting| *waiting != key);
        }
        let Some(task) = self.task_mut(key) else {
            return;
        };
        task.hold.transfer = Some(permit);
        task.wanted_bytes = 0;
        self.proceed(now, key);
    }

    /// Asks for data, as much at once as was negotiated.
    fn solicit(&mut self, now: Instant, key: TaskKey) {
        let parameters = self.parts.parameters;
        loop {
            let ttt = self.next_transfer_tag();
            let Some(task) = self.task_mut(key) else {
                return;
            };
            let outstanding = u32::try_from(task.transfers.len()).expect("bounded");
            if outstanding >= parameters.max_outstanding_r2t || task.requested >= task.needed {
                return;
            }
            let bytes = u64::from(parameters.max_burst_bytes).min(task.needed - task.requested);
            let r2t = ReadyToTransfer {
                lun: task.command.lun,
                itt: key_itt(task),
                ttt,
                numbers: NUMBERS,
                r2t_sn: task.r2t_sn,
                buffer_offset: u32::try_from(task.requested).expect("below the expected length"),
                desired_bytes: u32::try_from(bytes).expect("a burst has 24 bits"),
            };
            task.requested += bytes;
            task.r2t_sn = task.r2t_sn.wrapping_add(1);
            task.moved_at = now;
            task.transfers.push_back(OutstandingTransfer {
                ttt,
                end: task.requested,
                data_sn: 0,
            });
            let connection = task.connection;
            self.send(connection, Response::ReadyToTransfer(r2t), Hold::default());
        }
    }

    pub(super) fn handle_data_out(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        pdu: DataOut,
        header: &Header,
    ) {
        if pdu.has_wrong_data {
            self.reject(connection, RejectReason::DataDigestError, header);
        }
        let parameters = self.parts.parameters;
        // Data of a task that was aborted, or answered because of its data, may still come.
        let task = self.tasks.get_mut(&pdu.itt);
        let Some(task) = task.filter(|task| task.connection == connection) else {
            return;
        };
        let key = task.key;
        match task.take_data(pdu, parameters.first_burst_bytes) {
            Ok(()) => task.moved_at = now,
            Err(codes) => {
                task.failure = task.failure.or(Some(codes));
                task.data.clear();
            }
        }
        self.proceed(now, key);
    }

    /// Whether a task of the connection waits for data that does not come.
    pub(super) fn has_stalled_task(&self, now: Instant, connection: ConnectionKey) -> bool {
        self.tasks.values().any(|task| {
            let awaits = task.is_unsolicited || !task.transfers.is_empty();
            let is_late = now.saturating_duration_since(task.moved_at) >= DATA_OUT_TIMEOUT;
            task.connection == connection && awaits && is_late
        })
    }

    /// Sends data and status of a task.
    pub(super) fn respond(&mut self, task: Task, outcome: &Outcome) {
        let command = &task.command;
        let (residual, read_residual) = residuals(&task, outcome);
        let mut sender = DataSender {
            lun: command.lun,
            itt: command.itt,
            offset: 0,
            data_sn: 0,
        };
        let most = u64::from(task.data_in_bytes_max());
        let connection = task.connection;
        let bytes = outcome.data_in.len().min(most);
        let carries_status = outcome.status == Status::Good && bytes > 0 && !command.writes;
        let status = carries_status.then_some((outcome.status.code(), residual));
        let mut hold = Some(task.hold);
        if bytes > 0 {
            let data = cut_to(&outcome.data_in, bytes);
            let limits = self.burst_limits(connection);
            let mut pdus = sender.pdus(&data, limits);
            if let Some(last) = pdus.last_mut() {
                last.status = status;
            }
            let count = pdus.len();
            for (at, pdu) in pdus.into_iter().enumerate() {
                let is_last = carries_status && at + 1 == count;
                let kept = hold.take_if(|_| is_last).unwrap_or_default();
                self.send(connection, Response::DataIn(pdu), kept);
            }
        }
        if !carries_status {
            let response = ScsiResponse {
                response: 0,
                status: outcome.status.code(),
                residual,
                read_residual,
                itt: task.command.itt,
                numbers: NUMBERS,
                exp_data_sn: sender.data_sn.wrapping_add(task.r2t_sn),
                data: sense_segment(&outcome.sense),
            };
            self.send(
                connection,
                Response::Scsi(response),
                hold.unwrap_or_default(),
            );
        }
    }

    /// Bytes of a PDU and of a burst.
    fn burst_limits(&mut self, connection: ConnectionKey) -> (usize, usize) {
        let burst = self.parts.parameters.max_burst_bytes;
        let segment = self.connection(connection);
        let segment = segment.map_or(burst, |one| one.parameters.send_data_bytes_max);
        [segment.min(burst), burst]
            .map(|bytes| usize::try_from(bytes).expect("32 bits fit"))
            .into()
    }
}

impl Task {
    /// Takes a PDU of data. An error is what the command is answered with.
    fn take_data(&mut self, pdu: DataOut, first_burst_bytes: u32) -> Result<(), (u8, u8)> {
        let bytes = pdu.data.len() as u64;
        if pdu.ttt == RESERVED_TAG {
            if !self.is_unsolicited {
                return Err(UNEXPECTED_DATA);
            }
            self.is_unsolicited = !pdu.is_final;
            let data_sn = self.unsolicited_sn;
            self.unsolicited_sn = data_sn.wrapping_add(1);
            if pdu.data_sn != data_sn {
                return Err(INCORRECT_AMOUNT);
            }
            let most = first_burst_bytes.min(self.command.expected_bytes);
            self.check(&pdu)?;
            if self.received + bytes > u64::from(most) {
                return Err(UNEXPECTED_DATA);
            }
            self.requested = self.received + bytes;
        } else {
            // Sequences come in order, and so does what is in them.
            let first = self.transfers.front_mut();
            let Some(transfer) = first.filter(|transfer| transfer.ttt == pdu.ttt) else {
                return Err(INCORRECT_AMOUNT);
            };
            let (end, data_sn) = (transfer.end, transfer.data_sn);
            transfer.data_sn = data_sn.wrapping_add(1);
            if pdu.is_final {
                self.transfers.pop_front();
            }
            self.check(&pdu)?;
            let now_at = self.received + bytes;
            if pdu.data_sn != data_sn || now_at > end || (pdu.is_final && now_at != end) {
                return Err(INCORRECT_AMOUNT);
            }
        }
        self.received += bytes;
        // What a command cannot use is taken and dropped.
        if bytes > 0 {
            self.data.push(pdu.data);
        }
        Ok(())
    }

    fn check(&self, pdu: &DataOut) -> Result<(), (u8, u8)> {
        if pdu.has_wrong_data {
            return Err(DIGEST_FAILED);
        }
        match u64::from(pdu.buffer_offset) == self.received {
            true => Ok(()),
            false => Err(INCORRECT_AMOUNT),
        }
    }
}

fn key_itt(task: &Task) -> u32 {
    task.command.itt
}

/// Cuts Data-In into PDUs.
struct DataSender {
    lun: u64,
    itt: u32,
    offset: usize,
    data_sn: u32,
}

impl DataSender {
    fn pdus(&mut self, data: &Payload, (segment, burst): (usize, usize)) -> Vec<DataIn> {
        let mut pdus = Vec::new();
        let mut burst_left = burst;
        for piece in data.pieces() {
            let mut piece = piece.clone();
            while !piece.is_empty() {
                let bytes = piece.len().min(segment).min(burst_left);
                burst_left -= bytes;
                pdus.push(self.pdu(piece.split_to(bytes), burst_left == 0));
                if burst_left == 0 {
                    burst_left = burst;
                }
            }
        }
        if let Some(last) = pdus.last_mut() {
            last.is_final = true;
        }
        pdus
    }

    fn pdu(&mut self, data: Bytes, is_final: bool) -> DataIn {
        let pdu = DataIn {
            is_final,
            acknowledge: false,
            status: None,
            lun: self.lun,
            itt: self.itt,
            ttt: RESERVED_TAG,
            numbers: NUMBERS,
            data_sn: self.data_sn,
            buffer_offset: u32::try_from(self.offset).expect("below the expected length"),
            data,
        };
        self.offset += pdu.data.len();
        self.data_sn = self.data_sn.wrapping_add(1);
        pdu
    }
}

/// The first bytes of a payload, small pieces joined.
fn cut_to(data: &Payload, bytes: u64) -> Payload {
    let count = data.pieces().count() as u64;
    let length = usize::try_from(bytes).expect("32 bits fit");
    if count > 1 && data.len() / count < PIECE_BYTES_MIN {
        return data.to_bytes().slice(..length).into();
    }
    let mut left = length;
    let mut pieces = Vec::new();
    for piece in data.pieces() {
        let taken = piece.len().min(left);
        left -= taken;
        pieces.push(piece.slice(..taken));
    }
    pieces.into()
}

/// What was moved beside what the initiator expected: of the command, and of the read half of a
/// bidirectional one (section 11.4.5).
fn residuals(task: &Task, outcome: &Outcome) -> (Residual, Residual) {
    let command = &task.command;
    let expected = u64::from(command.expected_bytes);
    match (command.reads, command.writes) {
        (true, true) => {
            let read = u64::from(command.expected_read_bytes.unwrap_or(0));
            (
                residual(expected, outcome.data_out_bytes),
                residual(read, outcome.data_in_bytes),
            )
        }
        (false, true) => (residual(expected, outcome.data_out_bytes), Residual::None),
        (true, false) => (residual(expected, outcome.data_in_bytes), Residual::None),
        // An initiator that expects nothing is told what there was.
        (false, false) => {
            let moved = outcome.data_in_bytes.max(outcome.data_out_bytes);
            (residual(0, moved), Residual::None)
        }
    }
}

fn residual(expected: u64, moved: u64) -> Residual {
    let count = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    match moved {
        _ if moved > expected => Residual::Overflow(count(moved - expected)),
        _ if moved < expected => Residual::Underflow(count(expected - moved)),
        _ => Residual::None,
    }
}

/// Sense data behind its length (section 11.4.7).
fn sense_segment(sense: &Bytes) -> Bytes {
    let Ok(length) = u16::try_from(sense.len()) else {
        return Bytes::new();
    };
    match length {
        0 => Bytes::new(),
        _ => [&length.to_be_bytes()[..], sense].concat().into(),
    }
}

/// ABORTED COMMAND in fixed format (SPC-5 4.4.3), for what failed on the way to the unit.
fn aborted_command((code, qualifier): (u8, u8)) -> Outcome {
    const ABORTED_COMMAND: u8 = 0x0b;
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7]) = (0x70, ABORTED_COMMAND, 10);
    (sense[12], sense[13]) = (code, qualifier);
    Outcome {
        sense: Bytes::copy_from_slice(&sense),
        ..Outcome::of_status(Status::CheckCondition)
    }
}
