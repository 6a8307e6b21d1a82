//! Random operations of all kinds on a few objects, from several sessions in turn, compared with
//! the naive model after each one. A failure prints its seed and everything that was done.

use portico_backend::error::Error;
use portico_backend::object::{
    Durability, LockHolder, LockKind, LockName, LockRequest, ReadOp, SnapContext, SnapId, WriteOp,
};
use portico_backend::random::Generator;

use super::bench::{Bench, Opened, Session, State, bytes, shorten};
use super::group;
use crate::model::object::{Model, Refusal, Thing};

mod choice;

group!("random":
    all_agrees_with_the_model,
);

const STEP_COUNT: usize = 250;
const LOCKS: [LockName; 2] = [LockName("one"), LockName("two")];

async fn all_agrees_with_the_model(bench: Bench) {
    for seed in 0..bench.seed_count() {
        Run::new(&bench, seed).go().await;
    }
}

/// Says what led to a panic.
#[derive(Debug)]
struct Trace {
    seed: u64,
    lines: Vec<String>,
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, the last line failed:", self.seed);
            for line in &self.lines {
                eprintln!("  {line}");
            }
        }
    }
}

#[derive(Debug)]
struct Run {
    opened: Option<Opened>,
    sessions: Vec<Session>,
    random: Generator,
    model: Model,
    /// The newest snapshot ever.
    sequence: u64,
    snapshots: bool,
    trace: Trace,
}

impl Run {
    fn new(bench: &Bench, seed: u64) -> Self {
        let opened = bench.open();
        let sessions = vec![opened.session(), opened.session()];
        Self {
            snapshots: sessions[0].limits().snapshots,
            opened: Some(opened),
            sessions,
            random: Generator::new(seed),
            model: Model::default(),
            sequence: 0,
            trace: Trace {
                seed,
                lines: Vec::new(),
            },
        }
    }

    async fn go(mut self) {
        for number in 0..STEP_COUNT {
            let session = self.pick_session();
            match self.random.below(100) {
                0..=59 => self.write(&session).await,
                60..=79 => self.read(&session).await,
                80..=87 => self.lock(&session).await,
                88..=91 => self.unlock(&session).await,
                92..=94 if self.snapshots => self.snapshot(&session).await,
                95..=96 => {
                    self.trace.lines.push("flush".to_owned());
                    session.store.flush().await.expect("a flush works");
                }
                97 => self.replace_session().await,
                98 => {
                    drop(session);
                    self.reopen().await;
                }
                _ => self.check_listing(&session).await,
            }
            if number % 25 == 24 {
                self.check_everything().await;
            }
        }
    }

    fn pick_session(&mut self) -> Session {
        let at = self.random.below(self.sessions.len() as u64);
        self.sessions[usize::try_from(at).expect("a few sessions")].clone()
    }

    fn note(&mut self, session: &Session, what: &str, name: &str, op: &impl std::fmt::Debug) {
        let who = session.store.session();
        self.trace
            .lines
            .push(format!("{who} {what} {name} {}", shorten(op)));
    }

    fn context(&self) -> SnapContext {
        SnapContext {
            sequence: self.sequence,
            snapshots: self
                .model
                .snapshots
                .keys()
                .rev()
                .map(|id| SnapId(*id))
                .collect(),
        }
    }

    async fn write(&mut self, session: &Session) {
        let name = choice::name(&mut self.random);
        let mut op = choice::write(&mut self.random, &self.model, session, name);
        op.snapshots = self.context();
        let plain = op
            .steps
            .iter()
            .all(portico_backend::object::WriteStep::is_plain_data);
        if plain && self.random.chance(400) {
            op.durability = Durability::Buffered;
        }
        self.note(session, "write", name, &op);
        let before = self.model.things.get(name).cloned();
        let expected = self.model.write(name, &op);
        let answer = session.write(name, op.clone()).await;
        match (&expected, &answer) {
            (Ok(()), Ok(version)) => {
                let changed = self.model.things.get(name) != before.as_ref();
                let old = before.map_or(0, |before| before.version);
                let grown = match changed {
                    true => version.0 > old,
                    false => version.0 >= old,
                };
                assert!(grown, "version {} after {old}", version.0);
                self.model.written(name, *version);
            }
            (Err(refusal), Err(error)) => agree(*refusal, error),
            _ => panic!("{answer:?}, but it must be {expected:?}"),
        }
        self.check_object(name, None).await;
    }

    async fn read(&mut self, session: &Session) {
        let name = choice::name(&mut self.random);
        let op = choice::read(&mut self.random, &self.model, name);
        self.note(session, "read", name, &op);
        let expected = self.model.read(name, &op);
        self.compare(name, &op, expected, session.read(name, op.clone()).await);
        if let Some(cached) = session.store.try_read_cached(&session.id(name), &op) {
            self.compare(name, &op, expected, cached);
        }
    }

    fn compare(
        &self,
        name: &str,
        op: &ReadOp,
        expected: Result<u64, Refusal>,
        answer: Result<portico_backend::object::ReadOutput, Error>,
    ) {
        match (expected, answer) {
            (Ok(version), Ok(output)) => {
                assert_eq!(output.version.0, version);
                if let Err(difference) = self.model.compare(name, op, &output.results) {
                    panic!("{}", shorten(&difference));
                }
            }
            (Err(refusal), Err(error)) => agree(refusal, &error),
            (expected, answer) => panic!("{answer:?}, but it must be {expected:?}"),
        }
    }

    async fn lock(&mut self, session: &Session) {
        let name = choice::name(&mut self.random);
        let kinds = [LockKind::Exclusive, LockKind::Shared];
        let request = LockRequest {
            name: choice::pick(&mut self.random, &LOCKS),
            kind: choice::pick(&mut self.random, &kinds),
            cookie: bytes(choice::pick(&mut self.random, &["x", "y"])),
            expiry: None,
            renew: self.random.chance(500),
        };
        self.note(session, "lock", name, &request);
        let expected = self.model.lock(name, &session.store.session(), &request);
        let answer = session.store.lock(&session.id(name), request.clone()).await;
        assert_eq!(answer.map_err(|error| error.kind()), expected);
        self.note_version(session, name).await;
        self.check_locks(session, name).await;
    }

    /// Locks may raise the version of their object.
    async fn note_version(&mut self, session: &Session, name: &str) {
        let Some(thing) = self.model.things.get(name) else {
            return;
        };
        let output = session.read(name, ReadOp::default()).await;
        let version = output.expect("the object exists").version;
        assert!(version.0 >= thing.version, "{version:?} after a lock");
        self.model.locked(name, version);
    }

    async fn unlock(&mut self, session: &Session) {
        let name = choice::name(&mut self.random);
        let lock = choice::pick(&mut self.random, &LOCKS);
        let cookie = choice::pick(&mut self.random, &["x", "y"]);
        self.note(session, "unlock", name, &(lock, cookie));
        let owner = session.store.session();
        let expected = self.model.unlock(name, lock.0, &owner, cookie.as_bytes());
        let answer = session
            .store
            .unlock(&session.id(name), lock, bytes(cookie))
            .await;
        assert_eq!(answer.map_err(|error| error.kind()), expected);
        self.note_version(session, name).await;
        self.check_locks(session, name).await;
    }

    async fn check_locks(&self, session: &Session, name: &str) {
        for lock in LOCKS {
            let holders = session.store.lock_holders(&session.id(name), lock).await;
            let mut holders: Vec<String> = holders.expect("holders").iter().map(show).collect();
            let key = (name.to_owned(), lock.0.to_owned());
            let expected = self.model.locks.get(&key).into_iter().flatten();
            let mut expected: Vec<String> = expected
                .map(|(session, cookie, kind)| {
                    show(&LockHolder {
                        session: session.clone(),
                        cookie: bytes(cookie),
                        kind: *kind,
                    })
                })
                .collect();
            holders.sort();
            expected.sort();
            assert_eq!(holders, expected, "{lock:?} of {name}");
        }
    }

    async fn snapshot(&mut self, session: &Session) {
        let oldest = self.model.snapshots.keys().next().copied();
        if let Some(oldest) = oldest.filter(|_| self.model.snapshots.len() > 3) {
            self.note(session, "snapshot_remove", "", &oldest);
            self.model.snapshots.remove(&oldest);
            let removed = session
                .store
                .snapshot_remove(&session.pool, SnapId(oldest))
                .await;
            removed.expect("it exists");
            return;
        }
        let snapshot = session.store.snapshot_create(&session.pool).await;
        let snapshot = snapshot.expect("a snapshot is made");
        self.note(session, "snapshot_create", "", &snapshot);
        assert!(snapshot.0 > self.sequence);
        self.sequence = snapshot.0;
        let things = self.model.things.clone();
        self.model.snapshots.insert(snapshot.0, things);
    }

    async fn replace_session(&mut self) {
        let opened = self.opened.as_ref().expect("the store is open");
        let victim = std::mem::replace(&mut self.sessions[0], opened.session());
        let name = victim.store.session();
        self.trace.lines.push(format!("fence {name}"));
        let taker = &self.sessions[1];
        taker.store.fence(&name).await.expect("fencing works");
        // An operation of the fencer itself: from here on the victim does nothing to the object.
        taker.state("a").await;
        assert!(victim.write("a", WriteOp::default()).await.is_err());
        self.sessions.swap(0, 1);
    }

    async fn reopen(&mut self) {
        self.trace.lines.push("reopen".to_owned());
        self.sessions.clear();
        let opened = self.opened.take().expect("the store is open");
        let opened = opened.reopen().await;
        self.sessions = vec![opened.session(), opened.session()];
        self.opened = Some(opened);
        self.check_everything().await;
    }

    async fn check_everything(&mut self) {
        let snapshots: Vec<SnapId> = self.model.snapshots.keys().map(|id| SnapId(*id)).collect();
        for name in choice::NAMES {
            self.check_object(name, None).await;
            for at in &snapshots {
                self.check_object(name, Some(*at)).await;
            }
        }
        let session = self.pick_session();
        self.check_listing(&session).await;
    }

    async fn check_object(&mut self, name: &str, at: Option<SnapId>) {
        let session = self.pick_session();
        let seen = session.state_at(name, at).await;
        let expected = self.model.at(name, at).expect("the snapshot exists");
        let expected = expected.map(|thing| (thing.version, state(thing)));
        let seen = seen.map(|(version, state)| (version.0, state));
        assert!(
            seen == expected,
            "{name} at {at:?} is {} instead of {}",
            shorten(&seen),
            shorten(&expected)
        );
    }

    async fn check_listing(&mut self, session: &Session) {
        let mut names = Vec::new();
        let mut cursor = Some(Default::default());
        while let Some(at) = cursor {
            let page = session
                .store
                .list(&session.pool, at, 2)
                .await
                .expect("a listing");
            names.extend(page.names.iter().map(ToString::to_string));
            cursor = page.next;
        }
        names.sort();
        let expected: Vec<String> = self.model.things.keys().cloned().collect();
        assert_eq!(names, expected);
    }
}

fn agree(refusal: Refusal, error: &Error) {
    let seen = (error.kind(), error.mismatch_offset());
    assert_eq!(seen, (refusal.kind, refusal.mismatch_offset), "{error}");
}

fn show(holder: &LockHolder) -> String {
    format!("{holder:?}")
}

fn state(thing: &Thing) -> State {
    let known = super::bench::XATTRS.map(|name| name.as_str());
    let values = known.into_iter().filter_map(|name| {
        let value = thing.attributes.get(name)?;
        Some((name, bytes(value)))
    });
    State {
        data: thing.bytes.clone(),
        xattrs: values.collect(),
        omap: thing
            .map
            .iter()
            .map(|(key, value)| (bytes(key), bytes(value)))
            .collect(),
    }
}
