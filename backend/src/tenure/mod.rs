//! What a node serves from, and for how long: the volumes over one session, until that session is
//! fenced.
//!
//! Fencing ends a session and everything that was built on it: its caches may be old, and what it
//! has on its way may or may not have happened. So whoever answers from a tenure holds on to the
//! one that the answer comes from, and asks it last whether it still lasts. What comes next, if
//! anything does, is a tenure of its own.

mod session;

use std::sync::Arc;

use tokio::sync::watch;

use crate::gate::{Gate, gate};
use crate::object::ObjectStore;
use crate::volumes::Volumes;

/// The volumes over one session.
#[derive(Debug)]
pub struct Tenure {
    pub volumes: Volumes,
    pub store: Arc<dyn ObjectStore>,
    lasts: Lasts,
}

/// Tells whether a session was fenced, as far as this process knows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lasts(Option<Gate>);

/// What a node serves from at the moment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tenures(watch::Receiver<State>);

/// Says what a node serves from.
#[derive(Debug)]
pub struct TenureControl(watch::Sender<State>);

#[derive(Clone, Debug)]
enum State {
    Held(Arc<Tenure>),
    /// A sentence on why there is none.
    Vacant(Arc<str>),
}

/// Watches over a session: the first answer that says that it was fenced ends what is built on it.
/// All use of `store` is to go through what is returned.
#[must_use]
pub fn watched(store: Arc<dyn ObjectStore>) -> (Arc<dyn ObjectStore>, Lasts) {
    let (control, open) = gate(true);
    let store = Arc::new(session::WatchedSession::new(store, control));
    (store, Lasts(Some(open)))
}

/// A node that serves from nothing yet.
#[must_use]
pub fn tenures() -> (TenureControl, Tenures) {
    let starting = Arc::from("the program is starting");
    let (sender, receiver) = watch::channel(State::Vacant(starting));
    (TenureControl(sender), Tenures(receiver))
}

impl Tenure {
    #[must_use]
    pub fn new(volumes: Volumes, store: Arc<dyn ObjectStore>, lasts: Lasts) -> Self {
        Self {
            volumes,
            store,
            lasts,
        }
    }

    /// Whether what comes from this tenure may still be told.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.lasts.holds()
    }

    /// For what outlives its request.
    #[must_use]
    pub fn watch(&self) -> Lasts {
        self.lasts.clone()
    }

    /// Waits until the session is found to be fenced.
    pub async fn ended(&self) {
        self.lasts.ended().await;
    }
}

impl Lasts {
    /// Of a session that nobody can fence.
    #[must_use]
    pub fn forever() -> Self {
        Self(None)
    }

    /// Whether the session is not known to be fenced.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(Gate::is_open)
    }

    /// Waits until the session is known to be fenced.
    pub async fn ended(&self) {
        match &self.0 {
            Some(gate) => gate.closed().await,
            None => std::future::pending().await,
        }
    }
}

impl Tenures {
    /// # Errors
    /// Why there is none at the moment, as a sentence.
    pub fn current(&self) -> Result<Arc<Tenure>, Arc<str>> {
        match &*self.0.borrow() {
            State::Held(tenure) if tenure.lasts() => Ok(Arc::clone(tenure)),
            State::Held(_) => Err(Arc::from("the session on the store was fenced")),
            State::Vacant(why) => Err(Arc::clone(why)),
        }
    }
}

impl TenureControl {
    pub fn begin(&self, tenure: Tenure) {
        self.0.send_replace(State::Held(Arc::new(tenure)));
    }

    /// From now on there is none, for the reason `why`, a sentence. Gives the last one.
    pub fn end(&self, why: &str) -> Option<Arc<Tenure>> {
        match self.0.send_replace(State::Vacant(Arc::from(why))) {
            State::Held(tenure) => Some(tenure),
            State::Vacant(_) => None,
        }
    }

    /// The present one, also if it was found to be fenced.
    #[must_use]
    pub fn last(&self) -> Option<Arc<Tenure>> {
        match &*self.0.borrow() {
            State::Held(tenure) => Some(Arc::clone(tenure)),
            State::Vacant(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryCluster, MemoryOptions};
    use crate::object::{ObjectId, ObjectName, Pool, WriteOp, WriteStep};

    fn object() -> ObjectId {
        ObjectId::new(&Pool::new("meta", ""), ObjectName::new("some"))
    }

    #[tokio::test]
    async fn the_first_answer_of_a_fence_ends_what_is_built_on_the_session() {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let other = cluster.session("other");
        let (store, lasts) = watched(cluster.session("test"));
        let create = || WriteOp::new([WriteStep::Create]);
        store.write(&object(), create()).await.unwrap();
        // An error that is no fence ends nothing.
        let missing = ObjectId::new(&Pool::new("meta", ""), ObjectName::new("missing"));
        store.watch(&missing).await.unwrap_err();
        assert!(lasts.holds());
        other.fence(&store.session()).await.unwrap();
        assert!(lasts.holds(), "nobody has told it");
        store.write(&object(), create()).await.unwrap_err();
        assert!(!lasts.holds());
    }
}
