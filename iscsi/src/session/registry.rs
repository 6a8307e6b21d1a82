//! All sessions of a node: handles, reinstatement (RFC 7143 section 6.3.5), and what one session
//! does to the tasks of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use portico_backend::budget::Budget;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::login::{Admission, Admitted};
use super::management::{Management, ManagementKind};
use super::{ConnectionKey, Session, SessionParts};
use crate::limits::SESSIONS_MAX;
use crate::scsi::NexusId;
use crate::scsi::command::Command;
use crate::stats::Work;
use crate::target::{LocalAddress, Targets};
use crate::units::{Event, Execution, UnitId, Units};
use crate::wire::response::LoginStatus;

/// Sessions by their handle.
#[derive(Debug)]
pub struct Sessions {
    state: Mutex<State>,
    leftovers: Arc<Leftovers>,
    window_budget: Budget,
    window_bytes: u64,
    budget: Budget,
}

#[derive(Debug, Default)]
struct State {
    by_tsih: BTreeMap<u16, Arc<SharedSession>>,
    last_tsih: u16,
}

/// A session that its connections share.
#[derive(Debug)]
pub struct SharedSession {
    tsih: u16,
    nexus: Arc<NexusId>,
    target: Option<String>,
    /// The tag of the portal group that it was begun through.
    group: Option<u16>,
    units: Arc<Units>,
    stats: Work,
    session: Mutex<Session>,
}

/// A connection's place in a session.
#[derive(Debug)]
pub struct Joined {
    pub session: Arc<SharedSession>,
    pub key: ConnectionKey,
    pub wake: Arc<Notify>,
    pub admitted: Admitted,
}

impl SharedSession {
    /// # Panics
    /// If a thread panicked with it: its state is not to be trusted.
    pub fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().expect("no session panics")
    }

    /// Begins a command of this session.
    #[must_use]
    pub fn execute(&self, command: Command) -> Execution {
        (self.units.execute)(command, &self.nexus)
    }

    #[must_use]
    pub fn stats(&self) -> &Work {
        &self.stats
    }

    #[must_use]
    pub fn tsih(&self) -> u16 {
        self.tsih
    }

    #[must_use]
    pub fn nexus(&self) -> &NexusId {
        &self.nexus
    }

    /// What its initiator saw at its login; it may have changed for new ones.
    #[must_use]
    pub fn units(&self) -> &Arc<Units> {
        &self.units
    }

    /// The target's name; none for a discovery session.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }
}

impl Sessions {
    /// `window_budget` bounds what may come unasked, and is for sessions alone; `budget` bounds what
    /// is asked for and read.
    #[must_use]
    pub fn new(window_budget: Budget, budget: Budget) -> Self {
        Self {
            state: Mutex::default(),
            leftovers: Arc::default(),
            window_bytes: window_budget.free_bytes(),
            window_budget,
            budget,
        }
    }

    /// All sessions, by their handle.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<SharedSession>> {
        self.lock().by_tsih.values().cloned().collect()
    }

    /// How many sessions there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lock().by_tsih.len() as u64
    }

    /// A place for a connection whose login has ended well.
    ///
    /// # Errors
    /// The status to refuse the login with.
    pub fn admit(
        &self,
        now: Instant,
        admission: &Admission,
        targets: &Arc<Targets>,
        local: LocalAddress,
    ) -> Result<Joined, LoginStatus> {
        match admission.tsih {
            0 => self.begin(now, admission, targets, local),
            tsih => self.join(now, admission, tsih),
        }
    }

    /// A new session. One of the same nexus ends first (session reinstatement).
    fn begin(
        &self,
        now: Instant,
        admission: &Admission,
        targets: &Arc<Targets>,
        local: LocalAddress,
    ) -> Result<Joined, LoginStatus> {
        let target = admission.target.as_ref();
        let nexus = Arc::new(NexusId {
            initiator: admission.initiator.clone(),
            isid: admission.isid,
            target_portal: target.map_or(0, |(_, portal)| portal.relative_port),
        });
        let name = target.map(|(target, _)| target.name.clone());
        let group = target.map(|(_, portal)| portal.group_tag);
        let is_same = |one: &Arc<SharedSession>| {
            name.is_some()
                && one.target == name
                && one.group == group
                && one.nexus.initiator == nexus.initiator
                && one.nexus.isid == nexus.isid
        };
        let mut state = self.lock();
        // Of two logins at once the later one ends what the other began.
        let old = state.by_tsih.values().find(|one| is_same(one)).cloned();
        if let Some(old) = old {
            old.lock().end();
            state.by_tsih.remove(&old.tsih);
            (old.units.event)(Event::NexusLost, &old.nexus);
        }
        let tsih = state.free_tsih().ok_or(LoginStatus::OutOfResources)?;
        let session = Session::new(SessionParts {
            tsih,
            nexus: Arc::clone(&nexus),
            target: target.map(|(target, _)| Arc::clone(target)),
            targets: Arc::clone(targets),
            local,
            units: Arc::clone(&admission.units),
            parameters: admission.session,
            cmd_sn: admission.cmd_sn,
            window_budget: self.window_budget.clone(),
            window_bytes: self.window_bytes,
            budget: self.budget.clone(),
            leftovers: Arc::clone(&self.leftovers),
        });
        if session.is_window_closed() {
            return Err(LoginStatus::OutOfResources);
        }
        let shared = Arc::new(SharedSession {
            tsih,
            nexus,
            target: name,
            group,
            units: Arc::clone(&admission.units),
            stats: Work::default(),
            session: Mutex::new(session),
        });
        state.by_tsih.insert(tsih, Arc::clone(&shared));
        drop(state);
        let session = shared.lock();
        Ok(joined(now, &shared, session, admission))
    }

    /// A further connection of a session, or a new one in the place of an old one.
    fn join(&self, now: Instant, admission: &Admission, tsih: u16) -> Result<Joined, LoginStatus> {
        let found = self.lock().by_tsih.get(&tsih).cloned();
        let name = admission
            .target
            .as_ref()
            .map(|(target, _)| target.name.as_str());
        let is_same = |one: &Arc<SharedSession>| {
            one.nexus.initiator == admission.initiator
                && one.nexus.isid == admission.isid
                && one.target.as_deref() == name
        };
        let shared = found
            .filter(is_same)
            .ok_or(LoginStatus::SessionDoesNotExist)?;
        // Held until the connection is in: the session does not end meanwhile.
        let session = shared.lock();
        if session.has_ended {
            return Err(LoginStatus::SessionDoesNotExist);
        }
        // RFC 7143 section 4.4.3.2: all connections of a session go to one portal group.
        let joins = admission.target.as_ref();
        if shared.group != joins.map(|(_, portal)| portal.group_tag) {
            return Err(LoginStatus::CannotIncludeInSession);
        }
        let most = session.parts().parameters.max_connections;
        let count = session
            .connections
            .iter()
            .filter(|one| !one.is_closing)
            .count();
        let is_full = count >= usize::try_from(most).expect("32 bits fit");
        if is_full && !session.has_connection(admission.cid) {
            return Err(LoginStatus::TooManyConnections);
        }
        Ok(joined(now, &shared, session, admission))
    }

    /// A connection's stream is gone.
    pub fn leave(&self, session: &Arc<SharedSession>, key: ConnectionKey) {
        if session.lock().remove_connection(key) {
            self.forget(session);
        }
    }

    /// A session is over: its nexus is lost (SAM-5 6.3.4).
    fn forget(&self, session: &Arc<SharedSession>) {
        let removed = {
            let mut state = self.lock();
            let current = state.by_tsih.get(&session.tsih);
            let is_current = current.is_some_and(|one| Arc::ptr_eq(one, session));
            is_current && state.by_tsih.remove(&session.tsih).is_some()
        };
        if removed && session.target.is_some() {
            (session.units.event)(Event::NexusLost, &session.nexus);
        }
    }

    /// Ends a session for an operator. `false` if there is none of this handle.
    pub fn drop_session(&self, tsih: u16) -> bool {
        let found = self.lock().by_tsih.get(&tsih).cloned();
        let Some(session) = found else {
            return false;
        };
        session.lock().drop_session();
        self.forget(&session);
        true
    }

    /// Ends all sessions of a target that is gone.
    pub fn drop_target(&self, name: &str) {
        for session in self.list() {
            if session.target() == Some(name) {
                self.drop_session(session.tsih);
            }
        }
    }

    /// Aborts the tasks of other sessions that a function concerns, and tells the command set. Then
    /// [`Sessions::settled`] has to be waited for.
    pub fn manage(&self, session: &Arc<SharedSession>, management: &Management) {
        for other in self.list() {
            if !Arc::ptr_eq(&other, session) {
                let mut other = other.lock();
                for unit in &management.units {
                    other.abort_unit(*unit);
                }
            }
        }
        (session.units.event)(management.kind.event(), &session.nexus);
    }

    /// After a cold reset: the sessions of the target end.
    pub fn end_target(&self, session: &Arc<SharedSession>, management: &Management) {
        if management.kind == ManagementKind::TargetColdReset
            && let Some(target) = session.target()
        {
            self.drop_target(target);
        }
    }

    /// Waits until no aborted command changes these units any more.
    pub async fn settled(&self, units: &[UnitId]) {
        self.leftovers.none_of(units).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl State {
    /// A handle that is not in use; 0 stands for none.
    fn free_tsih(&mut self) -> Option<u16> {
        if self.by_tsih.len() >= SESSIONS_MAX {
            return None;
        }
        loop {
            self.last_tsih = self.last_tsih.wrapping_add(1);
            if self.last_tsih != 0 && !self.by_tsih.contains_key(&self.last_tsih) {
                return Some(self.last_tsih);
            }
        }
    }
}

fn joined(
    now: Instant,
    shared: &Arc<SharedSession>,
    mut session: MutexGuard<'_, Session>,
    admission: &Admission,
) -> Joined {
    let (key, wake) =
        session.add_connection(now, admission.cid, admission.connection, admission.stat_sn);
    let (exp_cmd_sn, max_cmd_sn) = session.window();
    let admitted = Admitted {
        tsih: shared.tsih,
        exp_cmd_sn,
        max_cmd_sn,
    };
    Joined {
        session: Arc::clone(shared),
        key,
        wake,
        admitted,
    }
}

/// Commands that were aborted and still run, by the unit that they may change.
#[derive(Debug, Default)]
pub struct Leftovers {
    counts: Mutex<BTreeMap<UnitId, usize>>,
    gone: Notify,
}

/// One of them, until dropped.
#[derive(Debug)]
pub(super) struct Leftover {
    all: Arc<Leftovers>,
    unit: UnitId,
}

impl Leftovers {
    pub(super) fn add(self: &Arc<Self>, unit: UnitId) -> Leftover {
        *self.counts().entry(unit).or_default() += 1;
        Leftover {
            all: Arc::clone(self),
            unit,
        }
    }

    async fn none_of(&self, units: &[UnitId]) {
        loop {
            let mut gone = std::pin::pin!(self.gone.notified());
            gone.as_mut().enable();
            if !units.iter().any(|unit| self.counts().contains_key(unit)) {
                return;
            }
            gone.await;
        }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<UnitId, usize>> {
        self.counts.lock().expect("no holder panics")
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let mut counts = self.all.counts();
        if let Some(count) = counts.get_mut(&self.unit) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.unit);
            }
        }
        drop(counts);
        self.all.gone.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use bytes::Bytes;

    use super::*;
    use crate::session::login::{Login, Step};
    use crate::target::{Access, Portal, Target};
    use crate::wire::request::{self, Numbers, Stage};
    use crate::wire::serial::Serial;

    fn admission(targets: &Arc<Targets>, local: LocalAddress) -> Admission {
        let pdu = request::Login {
            transit: true,
            continues: false,
            current_stage: Stage::LoginOperationalNegotiation,
            next_stage: Stage::FullFeaturePhase,
            version_max: 0,
            version_min: 0,
            isid: [1; 6],
            tsih: 0,
            itt: 1,
            cid: 1,
            numbers: Numbers {
                cmd_sn: Serial(1),
                exp_stat_sn: Serial(1),
                immediate: true,
            },
            data: Bytes::from_static(b"InitiatorName=iqn.a:host\0TargetName=iqn.a:disk\0"),
        };
        match Login::new(Arc::clone(targets), local, [0; 33]).handle_pdu(&pdu) {
            Step::Admit(admission) => *admission,
            other @ (Step::Reply(_) | Step::Refuse(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn of_logins_of_one_nexus_at_once_one_session_is_left() {
        const THREADS: usize = 4;
        let local = "10.0.0.1:3260".parse().unwrap();
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
                units: Units::none(),
            }],
        };
        let targets = Arc::new(Targets::new([target]));
        let sessions = Sessions::new(Budget::new(64 << 20), Budget::new(64 << 20));
        let admission = admission(&targets, local);
        let barrier = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..200 {
                        barrier.wait();
                        sessions
                            .admit(Instant::now(), &admission, &targets, local)
                            .unwrap();
                        barrier.wait();
                        assert_eq!(sessions.count(), 1);
                    }
                });
            }
        });
    }
}
