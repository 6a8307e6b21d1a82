//! A session by operation: whatever two connections send and whenever commands end, status numbers
//! come one by one, nothing is executed twice, and in the end no byte of a budget is held and no reset
//! waits for anything.
#![no_main]

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_backend::budget::Budget;
use portico_iscsi::scsi::command::{Outcome, Status};
use portico_iscsi::session::login::{Login, Step};
use portico_iscsi::session::negotiate::SessionParameters;
use portico_iscsi::session::registry::{Joined, Sessions};
use portico_iscsi::session::{Action, TaskKey};
use portico_iscsi::target::{Access, Portal, Target, Targets};
use portico_iscsi::units::{UnitId, Units};
use portico_iscsi::wire::header::RESERVED_TAG;
use portico_iscsi::wire::request::{
    self, DataOut, Logout, LogoutReason, NopOut, Numbers, Request, ScsiCommand, Stage,
    TaskAttribute, TaskFunction, TaskManagement, Text,
};
use portico_iscsi::wire::response::{Response, TaskOutcome};
use portico_iscsi::wire::serial::Serial;
use tokio::time::Instant;

const BUDGET: u64 = 1 << 20;

/// Small numbers, so that tags and offsets meet.
type Operation = (u8, u8, u8, u8, u8);

struct World {
    sessions: Sessions,
    joined: Vec<Option<Joined>>,
    numbers: Vec<Option<Serial>>,
    running: Vec<TaskKey>,
    executed: BTreeSet<TaskKey>,
    tags: Vec<u32>,
    now: Instant,
    cmd_sn: Serial,
}

fn units() -> Arc<Units> {
    Arc::new(Units {
        execute: Box::new(|_, _| Box::pin(std::future::ready(Outcome::busy()))),
        data_out_bytes_max: Box::new(|cdb, _| u64::from(cdb[0]) * 512),
        unit: Box::new(|lun| (lun < 2).then_some(UnitId(lun))),
        units: Box::new(|| vec![UnitId(0), UnitId(1)]),
        event: Box::new(|_, _| {}),
    })
}

fn login(
    parameters: &SessionParameters,
    tsih: u16,
    cid: u16,
) -> Option<Box<portico_iscsi::session::login::Admission>> {
    let local = "10.0.0.1:3260".parse().expect("an address");
    let target = Target {
        name: "iqn.a:disk".to_owned(),
        alias: None,
        portals: vec![Portal {
            address: local,
            group_tag: 1,
            relative_port: 1,
        }],
        access: vec![Access {
            initiator: None,
            users: Vec::new(),
            identity: None,
            units: units(),
        }],
    };
    let mut login = Login::new(Arc::new(Targets::new([target])), local, [9; 33]);
    let yes = |value: bool| if value { "Yes" } else { "No" };
    let text = format!(
        "InitiatorName=iqn.a:host\0TargetName=iqn.a:disk\0InitialR2T={}\0ImmediateData={}\0\
         FirstBurstLength={}\0MaxBurstLength={}\0MaxOutstandingR2T={}\0MaxConnections=2\0",
        yes(parameters.initial_r2t),
        yes(parameters.immediate_data),
        parameters.first_burst_bytes,
        parameters.max_burst_bytes,
        parameters.max_outstanding_r2t,
    );
    let pdu = request::Login {
        transit: true,
        continues: false,
        current_stage: Stage::LoginOperationalNegotiation,
        next_stage: Stage::FullFeaturePhase,
        version_max: 0,
        version_min: 0,
        isid: [1; 6],
        tsih,
        itt: 1,
        cid,
        numbers: Numbers {
            cmd_sn: Serial(5),
            exp_stat_sn: Serial(1),
            immediate: true,
        },
        data: Bytes::from(text),
    };
    match login.handle_pdu(&pdu) {
        Step::Admit(admission) => Some(admission),
        Step::Reply(_) | Step::Refuse(_) => None,
    }
}

impl World {
    fn join(&mut self, parameters: &SessionParameters, tsih: u16, cid: u16) {
        let Some(admission) = login(parameters, tsih, cid) else {
            return;
        };
        let targets = Arc::default();
        let local = "10.0.0.1:3260".parse().expect("an address");
        if let Ok(joined) = self.sessions.admit(self.now, &admission, &targets, local) {
            self.joined.push(Some(joined));
            self.numbers.push(None);
        }
    }

    fn step(&mut self, (kind, a, b, c, d): Operation) {
        let at = usize::from(a) % self.joined.len();
        let Some(joined) = &self.joined[at] else {
            return;
        };
        let (session, key) = (Arc::clone(&joined.session), joined.key);
        let immediate = b & 0x80 != 0;
        let cmd_sn = self.cmd_sn.plus(u32::from(b & 0x70 == 0x70));
        let numbers = Numbers {
            cmd_sn,
            exp_stat_sn: Serial(0),
            immediate,
        };
        let itt = u32::from(b & 0x07);
        let request = match kind % 8 {
            0 | 1 => Request::ScsiCommand(self.command(itt, numbers, (c, d))),
            2 => {
                let tag = self.tags.get(usize::from(b >> 3) % self.tags.len().max(1));
                Request::DataOut(DataOut {
                    is_final: c & 1 != 0,
                    lun: 0,
                    itt,
                    ttt: tag.copied().filter(|_| c & 2 == 0).unwrap_or(RESERVED_TAG),
                    exp_stat_sn: Serial(0),
                    data_sn: u32::from(c >> 6),
                    buffer_offset: u32::from(d & 0x0f) * 512,
                    data: Bytes::from(vec![1; usize::from(d >> 4) * 512]),
                    has_wrong_data: c & 0x3c == 0x3c,
                })
            }
            3 => Request::TaskManagement(TaskManagement {
                function: match c % 7 {
                    0 => TaskFunction::AbortTask,
                    1 => TaskFunction::AbortTaskSet,
                    2 => TaskFunction::ClearTaskSet,
                    3 => TaskFunction::LogicalUnitReset,
                    4 => TaskFunction::TargetWarmReset,
                    5 => TaskFunction::TaskReassign,
                    _ => TaskFunction::Other(77),
                },
                lun: u64::from(c >> 6),
                itt: 1_000,
                referenced_itt: u32::from(d & 7),
                numbers,
                ref_cmd_sn: Serial(u32::from(d >> 3)),
                exp_data_sn: 0,
            }),
            4 if c & 1 == 0 => Request::NopOut(NopOut {
                lun: 0,
                itt,
                ttt: RESERVED_TAG,
                numbers,
                data: Bytes::new(),
            }),
            4 => Request::Text(Text {
                is_final: c & 2 != 0,
                continues: c & 4 != 0,
                lun: 0,
                itt,
                ttt: if d & 1 == 0 {
                    RESERVED_TAG
                } else {
                    u32::from(d)
                },
                numbers,
                data: Bytes::from_static(b"SendTargets=\0"),
            }),
            5 => return self.finish(c),
            6 => {
                self.now += Duration::from_secs(u64::from(c) / 8);
                session.lock().handle_timeout(self.now, key);
                return self.drain();
            }
            _ if c < 16 => {
                self.joined[at] = None;
                self.sessions.leave(&session, key);
                return self.drain();
            }
            _ => Request::Logout(Logout {
                reason: if c < 24 {
                    LogoutReason::CloseSession
                } else {
                    LogoutReason::CloseConnection
                },
                itt,
                cid: u16::from(d & 3),
                numbers,
            }),
        };
        let takes = !immediate && !matches!(request, Request::DataOut(_));
        let mut frame = request.encode();
        if let Request::DataOut(pdu) = &request {
            frame.has_wrong_data = pdu.has_wrong_data;
        }
        session.lock().handle_pdu(self.now, key, frame);
        if takes && session.lock().window().0 != self.cmd_sn {
            self.cmd_sn = session.lock().window().0;
        }
        self.drain();
    }

    fn command(&self, itt: u32, numbers: Numbers, (c, d): (u8, u8)) -> ScsiCommand {
        let writes = c & 1 != 0;
        ScsiCommand {
            is_final: c & 2 == 0,
            reads: c & 4 != 0,
            writes,
            attribute: match c >> 6 {
                0 | 1 => TaskAttribute::Simple,
                2 => TaskAttribute::Ordered,
                _ => TaskAttribute::HeadOfQueue,
            },
            lun: u64::from(c >> 3 & 1),
            itt,
            expected_bytes: u32::from(d >> 2) * 512,
            numbers,
            cdb: Bytes::from(vec![d >> 3; 16]),
            expected_read_bytes: None,
            immediate_data: Bytes::from(vec![2; usize::from(d & 3) * 512]),
        }
    }

    /// Ends a command that runs.
    fn finish(&mut self, which: u8) {
        if self.running.is_empty() {
            return;
        }
        let key = self
            .running
            .swap_remove(usize::from(which) % self.running.len());
        let outcome = Outcome {
            data_in: Bytes::from(vec![3; usize::from(which) * 64]).into(),
            data_in_bytes: u64::from(which) * 64,
            ..Outcome::of_status(Status::Good)
        };
        if let Some(joined) = self.joined.iter().flatten().next() {
            joined.session.lock().handle_outcome(key, &outcome);
        }
        self.drain();
    }

    /// Takes all actions, and gives what is wanted as far as it is free.
    fn drain(&mut self) {
        loop {
            let mut has_moved = false;
            for at in 0..self.joined.len() {
                let Some(joined) = &self.joined[at] else {
                    continue;
                };
                let (session, key) = (Arc::clone(&joined.session), joined.key);
                let mut session = session.lock();
                while let Some(action) = session.poll_action(key) {
                    has_moved = true;
                    match action {
                        Action::Send(response, _) => self.sent(at, &response),
                        Action::Execute(task, _) => {
                            assert!(self.executed.insert(task), "executed twice");
                            self.running.push(task);
                        }
                        Action::Manage(management) => {
                            session.handle_managed(key, &management, TaskOutcome::Complete);
                        }
                        Action::Close(_) => {}
                    }
                }
                if let Some(want) = session.poll_want(key)
                    && let Some(permit) = want.budget.try_take(want.bytes)
                {
                    has_moved = true;
                    session.handle_permit(self.now, want.purpose, permit);
                }
            }
            if !has_moved {
                return;
            }
        }
    }

    fn sent(&mut self, at: usize, response: &Response) {
        let number = match response {
            Response::Scsi(pdu) => pdu.numbers.stat_sn,
            Response::TaskManagement(pdu) => pdu.numbers.stat_sn,
            Response::Text(pdu) => pdu.numbers.stat_sn,
            Response::Logout(pdu) => pdu.numbers.stat_sn,
            Response::Reject(pdu) => pdu.numbers.stat_sn,
            Response::AsyncMessage(pdu) => pdu.numbers.stat_sn,
            Response::DataIn(pdu) if pdu.status.is_some() => pdu.numbers.stat_sn,
            Response::NopIn(pdu) if pdu.itt != RESERVED_TAG => pdu.numbers.stat_sn,
            Response::ReadyToTransfer(pdu) => {
                self.tags.push(pdu.ttt);
                return;
            }
            Response::DataIn(_) | Response::NopIn(_) | Response::Login(_) => return,
        };
        let last = self.numbers[at].replace(number);
        assert!(
            last.is_none_or(|last| last.next() == number),
            "a status number is missing"
        );
    }
}

fuzz_target!(|input: (u8, Vec<Operation>)| {
    let (flags, operations) = input;
    let (window, budget) = (Budget::new(BUDGET), Budget::new(BUDGET));
    let parameters = SessionParameters {
        initial_r2t: flags & 1 != 0,
        immediate_data: flags & 2 != 0,
        first_burst_bytes: 1_024 << (flags >> 2 & 3),
        max_burst_bytes: 2_048 << (flags >> 4 & 3),
        max_outstanding_r2t: u32::from(flags >> 6) + 1,
        ..SessionParameters::default()
    };
    let mut world = World {
        sessions: Sessions::new(window.clone(), budget.clone()),
        joined: Vec::new(),
        numbers: Vec::new(),
        running: Vec::new(),
        executed: BTreeSet::new(),
        tags: Vec::new(),
        // The one reading of a clock: all else is added to it.
        now: Instant::now(),
        cmd_sn: Serial(5),
    };
    world.join(&parameters, 0, 1);
    let tsih = world.joined[0]
        .as_ref()
        .expect("a first session")
        .admitted
        .tsih;
    world.join(&parameters, tsih, 2);
    for operation in operations.into_iter().take(400) {
        world.step(operation);
    }
    let sessions: Vec<_> = world
        .joined
        .iter()
        .flatten()
        .map(|one| Arc::clone(&one.session))
        .collect();
    for joined in world.joined.drain(..).flatten() {
        world.sessions.leave(&joined.session, joined.key);
    }
    for key in world.running.drain(..) {
        if let Some(session) = sessions.first() {
            session.lock().handle_outcome(key, &Outcome::busy());
        }
    }
    {
        let settled = pin!(world.sessions.settled(&[UnitId(0), UnitId(1)]));
        let polled = settled.poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "a reset would wait for nothing");
    }
    drop((sessions, world));
    assert_eq!((window.free_bytes(), budget.free_bytes()), (BUDGET, BUDGET));
});
