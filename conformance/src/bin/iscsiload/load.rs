//! Commands kept in flight, and the figures they leave.

use std::collections::HashMap;
use std::io::Result;
use std::time::Duration;

use bytes::Bytes;
use portico_iscsi::wire::header::RESERVED_TAG;
use portico_iscsi::wire::request::{DataOut, Numbers, Request, ScsiCommand, TaskAttribute};
use portico_iscsi::wire::response::{ReadyToTransfer, Response};
use serde_json::json;
use tokio::time::Instant;

use crate::engine;
use crate::initiator::{Initiator, broken, noise};

const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8A;
const BLOCK_BYTES: u64 = 512;
/// Ticks of the kernel's process accounting in a second, fixed on Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// What runs before anything counts.
pub(crate) const WARM_UP: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One measurement.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) direction: Direction,
    place: Place,
    pub(crate) bytes: u32,
    pub(crate) depth: u32,
    pub(crate) seconds: u64,
    /// Goes on until so many are done; then nothing is done before it counts.
    pub(crate) operations_min: u64,
    is_random: bool,
    /// Without a target: whether writes are answered when they are stable.
    pub(crate) is_durable: bool,
    pub(crate) span_bytes: u64,
}

/// What is put under load.
#[derive(Debug)]
enum Place {
    Target(Target),
    /// A store of the local engine in this directory, without a target.
    Directory(String),
}

#[derive(Debug)]
struct Target {
    address: String,
    iqn: String,
    lun: u64,
    /// The process whose CPU time is told; 0 for none.
    pid: u32,
}

/// What came of a measurement.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) latencies_us: Vec<u64>,
    pub(crate) seconds: f64,
    pub(crate) server_cpu_seconds: f64,
    pub(crate) own_cpu_seconds: f64,
}

impl Load {
    pub(crate) fn new(direction: Direction, settings: &HashMap<String, String>) -> Result<Self> {
        let text = |name: &str| {
            settings
                .get(name)
                .cloned()
                .ok_or_else(|| broken(&format!("{name}= is missing")))
        };
        let number = |name: &str, default: u64| match settings.get(name) {
            None => Ok(default),
            Some(value) => value
                .parse()
                .map_err(|_| broken(&format!("{name}={value} is no number"))),
        };
        let small = |name: &str, default: u64| -> Result<u32> {
            u32::try_from(number(name, default)?)
                .map_err(|_| broken(&format!("{name} is too large")))
        };
        let place = match settings.get("directory") {
            Some(directory) => Place::Directory(directory.clone()),
            None => Place::Target(Target {
                address: text("address")?,
                iqn: text("iqn")?,
                lun: number("lun", 1)?,
                pid: small("pid", 0)?,
            }),
        };
        let made = Self {
            direction,
            place,
            bytes: small("bytes", 4_096)?,
            depth: small("depth", 32)?.max(1),
            seconds: number("seconds", 5)?,
            operations_min: number("operations", 0)?,
            is_random: number("random", 1)? != 0,
            is_durable: number("durable", 1)? != 0,
            span_bytes: number("span_bytes", 256 << 20)?,
        };
        match u64::from(made.bytes) {
            0 => Err(broken("an operation moves at least a block")),
            bytes if made.span_bytes < bytes => Err(broken("the span holds no operation")),
            _ => Ok(made),
        }
    }

    pub(crate) fn run(self) -> Result<serde_json::Value> {
        let figures = match &self.place {
            Place::Target(target) => self.run_on(target)?,
            Place::Directory(directory) => engine::run(&self, directory)?,
        };
        let mut latencies = figures.latencies_us;
        latencies.sort_unstable();
        let at = |share: usize| latencies.get(latencies.len() * share / 1000).copied();
        let operations = latencies.len();
        Ok(json!({
            "operations": operations,
            "bytes": operations as u64 * u64::from(self.bytes),
            "seconds": figures.seconds,
            "p50_us": at(500).unwrap_or(0),
            "p99_us": at(990).unwrap_or(0),
            "server_cpu_seconds": figures.server_cpu_seconds,
            "own_cpu_seconds": figures.own_cpu_seconds,
        }))
    }

    fn run_on(&self, target: &Target) -> Result<Figures> {
        let mut run = Run::new(self, target)?;
        if self.operations_min == 0 {
            run.go_on_for(WARM_UP)?;
            run.latencies_us.clear();
        }
        let cpu = target.cpu_seconds()?;
        let own = cpu_seconds_of(std::process::id())?;
        let started = Instant::now();
        run.go_on_for(Duration::from_secs(self.seconds))?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Figures {
            latencies_us: run.latencies_us,
            seconds,
            server_cpu_seconds: target.cpu_seconds()? - cpu,
            own_cpu_seconds: cpu_seconds_of(std::process::id())? - own,
        })
    }
}

impl Target {
    fn cpu_seconds(&self) -> Result<f64> {
        match self.pid {
            0 => Ok(0.0),
            pid => cpu_seconds_of(pid),
        }
    }
}

/// User and system time of a process, all its threads.
pub(crate) fn cpu_seconds_of(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<f64>().ok())
    };
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS_PER_SECOND),
        _ => Err(broken("the process accounting is strange")),
    }
}

/// Where operations go, one after the other.
#[derive(Debug)]
pub(crate) struct Places {
    bytes: u64,
    slots: u64,
    is_random: bool,
    next: u64,
    stride: u64,
    random: u64,
}

impl Places {
    fn new(load: &Load) -> Self {
        let bytes = u64::from(load.bytes);
        Self {
            bytes,
            slots: load.span_bytes / bytes,
            is_random: load.is_random,
            next: 0,
            stride: 1,
            random: 0x2545_F491_4F6C_DD1D,
        }
    }

    /// Of one of as many tasks as there are operations in flight: together they go in turn too.
    pub(crate) fn of_task(load: &Load, number: u32) -> Self {
        let mut places = Self::new(load);
        places.next = u64::from(number);
        places.stride = u64::from(load.depth);
        places.random ^= u64::from(number) << 32;
        places
    }

    /// In bytes.
    pub(crate) fn next_offset(&mut self) -> u64 {
        let slot = if self.is_random {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % self.slots
        } else {
            let slot = self.next % self.slots;
            self.next += self.stride;
            slot
        };
        slot * self.bytes
    }
}

#[derive(Debug)]
struct Run<'a> {
    load: &'a Load,
    lun: u64,
    initiator: Initiator,
    data: Bytes,
    /// When the command in each place was sent; a place is a task tag.
    sent: Vec<Option<Instant>>,
    in_flight: u32,
    places: Places,
    latencies_us: Vec<u64>,
}

impl<'a> Run<'a> {
    fn new(load: &'a Load, target: &'a Target) -> Result<Self> {
        let initiator = Initiator::login(&target.address, &target.iqn)?;
        let data = noise(usize::try_from(load.bytes).expect("32 bits fit"));
        let depth = usize::try_from(load.depth).expect("32 bits fit");
        let mut run = Self {
            load,
            lun: target.lun,
            initiator,
            data,
            sent: vec![None; depth],
            in_flight: 0,
            places: Places::new(load),
            latencies_us: Vec::new(),
        };
        // A fresh session has unit attentions to tell.
        for _ in 0..4 {
            if run.is_ready()? {
                return Ok(run);
            }
        }
        Err(broken("the disk does not get ready"))
    }

    /// TEST UNIT READY.
    fn is_ready(&mut self) -> Result<bool> {
        self.command(0, [0; 16], None);
        self.initiator.flush()?;
        loop {
            if let Response::Scsi(response) = self.initiator.receive()? {
                self.initiator.exp_stat_sn = response.numbers.stat_sn.next();
                self.initiator.max_cmd_sn = response.numbers.max_cmd_sn;
                return Ok(response.status == 0);
            }
        }
    }

    /// Keeps commands in flight for so long, then waits for the last of them.
    fn go_on_for(&mut self, time: Duration) -> Result<()> {
        let deadline = Instant::now() + time;
        loop {
            let now = Instant::now();
            let done = self.latencies_us.len() as u64 + u64::from(self.in_flight);
            if now < deadline || done < self.load.operations_min {
                self.fill(now);
            } else if self.in_flight == 0 {
                return Ok(());
            }
            self.initiator.flush()?;
            let response = self.initiator.receive()?;
            self.handle(response)?;
            while let Some(response) = self.initiator.take()? {
                self.handle(response)?;
            }
        }
    }

    fn fill(&mut self, now: Instant) {
        for place in 0..self.sent.len() {
            let closed = self.initiator.max_cmd_sn.is_before(self.initiator.cmd_sn);
            if self.sent[place].is_some() || closed {
                continue;
            }
            self.sent[place] = Some(now);
            self.in_flight += 1;
            let itt = u32::try_from(place).expect("places are counted in 32 bits");
            let blocks = self.load.bytes / 512;
            let mut cdb = [0; 16];
            let lba = self.places.next_offset() / BLOCK_BYTES;
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
            cdb[0] = match self.load.direction {
                Direction::Read => READ_16,
                Direction::Write => WRITE_16,
            };
            self.command(itt, cdb, Some(self.load.direction));
        }
    }

    /// Queues a command; without a direction no data moves.
    fn command(&mut self, itt: u32, cdb: [u8; 16], direction: Option<Direction>) {
        let numbers = Numbers {
            cmd_sn: self.initiator.cmd_sn,
            exp_stat_sn: self.initiator.exp_stat_sn,
            immediate: false,
        };
        let first = match direction {
            Some(Direction::Write) => self.initiator.sizes.immediate_bytes_max,
            Some(Direction::Read) | None => 0,
        };
        self.initiator.cmd_sn = self.initiator.cmd_sn.next();
        self.initiator.send(&Request::ScsiCommand(ScsiCommand {
            is_final: true,
            reads: direction == Some(Direction::Read),
            writes: direction == Some(Direction::Write),
            attribute: TaskAttribute::Simple,
            lun: self.lun << 48,
            itt,
            expected_bytes: direction.map_or(0, |_| self.load.bytes),
            numbers,
            cdb: Bytes::copy_from_slice(&cdb),
            expected_read_bytes: None,
            immediate_data: self.data.slice(..self.data.len().min(first)),
        }));
    }

    fn handle(&mut self, response: Response) -> Result<()> {
        match response {
            Response::DataIn(data) => {
                self.initiator.max_cmd_sn = data.numbers.max_cmd_sn;
                if let Some((status, _)) = data.status {
                    self.initiator.exp_stat_sn = data.numbers.stat_sn.next();
                    self.done(data.itt, status)?;
                }
            }
            Response::Scsi(response) => {
                self.initiator.exp_stat_sn = response.numbers.stat_sn.next();
                self.initiator.max_cmd_sn = response.numbers.max_cmd_sn;
                self.done(response.itt, response.status)?;
            }
            Response::ReadyToTransfer(asked) => self.transfer(&asked),
            Response::NopIn(_) => {}
            other @ (Response::TaskManagement(_)
            | Response::Login(_)
            | Response::Text(_)
            | Response::Logout(_)
            | Response::AsyncMessage(_)
            | Response::Reject(_)) => {
                return Err(broken(&format!("an answer that fits nothing: {other:?}")));
            }
        }
        Ok(())
    }

    fn transfer(&mut self, asked: &ReadyToTransfer) {
        let start = usize::try_from(asked.buffer_offset).expect("32 bits fit");
        let end = start + usize::try_from(asked.desired_bytes).expect("32 bits fit");
        let end = end.min(self.data.len());
        let mut at = start;
        let mut data_sn = 0;
        while at < end {
            let next = end.min(at + self.initiator.sizes.segment_bytes_max);
            let pdu = DataOut {
                is_final: next == end,
                lun: asked.lun,
                itt: asked.itt,
                ttt: asked.ttt,
                exp_stat_sn: self.initiator.exp_stat_sn,
                data_sn,
                buffer_offset: u32::try_from(at).expect("within a command's 32 bits"),
                data: self.data.slice(at..next),
                has_wrong_data: false,
            };
            self.initiator.send(&Request::DataOut(pdu));
            data_sn += 1;
            at = next;
        }
    }

    fn done(&mut self, itt: u32, status: u8) -> Result<()> {
        if itt == RESERVED_TAG || status != 0 {
            return Err(broken(&format!(
                "a command ended with status {status:#04x}"
            )));
        }
        let place = usize::try_from(itt).expect("32 bits fit");
        let sent = self.sent.get_mut(place).and_then(Option::take);
        let sent = sent.ok_or_else(|| broken("an answer to no command"))?;
        self.in_flight -= 1;
        let took = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.latencies_us.push(took);
        Ok(())
    }
}
