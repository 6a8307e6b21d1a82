//! Who may still do something: sessions of this opening of the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind};
use crate::object::SessionId;

/// All sessions since the store was opened.
#[derive(Debug)]
pub(super) struct Sessions {
    store_id: u128,
    open_counter: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    standings: HashMap<SessionId, Standing>,
    all_ended: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Open,
    Ended,
    Fenced,
}

impl Sessions {
    pub(super) fn new(store_id: u128, open_counter: u64) -> Self {
        Self {
            store_id,
            open_counter,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name that no session of this store ever had.
    pub(super) fn open(&self) -> SessionId {
        let mut state = self.state();
        state.count += 1;
        let name = format!("{}{}", self.prefix(self.open_counter), state.count);
        let id = SessionId(Arc::from(name));
        state.standings.insert(id.clone(), Standing::Open);
        id
    }

    pub(super) fn end(&self, id: &SessionId) {
        let mut state = self.state();
        if let Some(standing) = state.standings.get_mut(id)
            && *standing == Standing::Open
        {
            *standing = Standing::Ended;
        }
    }

    pub(super) fn end_all(&self) {
        self.state().all_ended = true;
    }

    pub(super) fn fence(&self, id: &SessionId) {
        let mut state = self.state();
        state.standings.insert(id.clone(), Standing::Fenced);
    }

    pub(super) fn admit(&self, id: &SessionId) -> Result<(), Error> {
        let state = self.state();
        match state.standings.get(id) {
            Some(Standing::Fenced) => Err(Error::new(ErrorKind::Fenced, id.to_string())),
            Some(Standing::Open) if !state.all_ended => Ok(()),
            Some(Standing::Ended | Standing::Open) | None => Err(Error::new(
                ErrorKind::Unavailable,
                format!("session {id} has ended"),
            )),
        }
    }

    /// `None`: nobody here knows it.
    pub(super) fn may_write(&self, id: &SessionId) -> Option<bool> {
        if let Some(standing) = self.state().standings.get(id) {
            return Some(*standing == Standing::Open);
        }
        let of_store = id.0.strip_prefix(&*format!("{:032x}.", self.store_id))?;
        let (open_counter, _) = of_store.split_once('.')?;
        let open_counter: u64 = open_counter.parse().ok()?;
        (open_counter < self.open_counter).then_some(false)
    }

    fn prefix(&self, open_counter: u64) -> String {
        format!("{:032x}.{open_counter}.", self.store_id)
    }
}
