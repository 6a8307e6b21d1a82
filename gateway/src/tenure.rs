//! Opens what this node serves from, and opens it anew when its session was fenced, while listeners
//! and connections stay as they are.
//!
//! Whoever fences a session means all that it still has on its way, so nothing of it is used again:
//! no handle, no cache, no number as a writer. The new session fences the former ones of this
//! program itself before it reads anything, since the fence may have been lifted meanwhile.
//!
//! A program that was replaced as its node does not come back: two that fence one another serve
//! nobody.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use portico_backend::bucket::{BucketOptions, BucketStats, Buckets};
use portico_backend::catalog::{Catalog, Keyring};
use portico_backend::clock::Clock;
use portico_backend::connection::Stop;
use portico_backend::object::{ObjectStore, SessionId};
use portico_backend::stats::Counter;
use portico_backend::tenure::{Lasts, Tenure, TenureControl, watched};
use portico_backend::volumes::Volumes;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::assemble::{Engine, Pools};
use crate::error::{Exit, Failure};
use crate::limits::{REOPEN_PAUSE_MAX, REOPEN_PAUSE_MIN};
use crate::node::{self, Presence};

/// Where sessions come from.
#[derive(Debug)]
pub(crate) enum Sessions {
    Engine(Engine),
    /// One after the other, as far as there are any.
    #[cfg(test)]
    Waiting(tests::Waiting),
}

/// All that a tenure is made of but its session.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) sessions: Sessions,
    pub(crate) pools: Pools,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keyring: Arc<Keyring>,
    /// The name of this node.
    pub(crate) name: String,
    /// Whether another program may take this one for dead and become the node.
    pub(crate) has_rivals: bool,
    pub(crate) options: BucketOptions,
    pub(crate) stats: Arc<BucketStats>,
}

/// Keeps a tenure as long as the node lives.
#[derive(Debug)]
pub(crate) struct Keeper {
    plan: Plan,
    control: TenureControl,
    presence: Option<Presence>,
    /// Sessions of this program that the node is, or may be, on record with.
    own: Vec<SessionId>,
}

impl Sessions {
    async fn open(&self) -> Result<(Arc<dyn ObjectStore>, Lasts), Failure> {
        const PURPOSE: &str = "s3";
        match self {
            // Its only session is its own, and the way to it is short.
            Self::Engine(engine @ Engine::Local(_)) => {
                Ok((engine.session(PURPOSE).await?, Lasts::forever()))
            }
            Self::Engine(engine) => Ok(watched(engine.session(PURPOSE).await?)),
            #[cfg(test)]
            Self::Waiting(sessions) => sessions.next().map(watched),
        }
    }
}

impl Keeper {
    pub(crate) fn new(plan: Plan, control: TenureControl) -> Self {
        Self {
            plan,
            control,
            presence: None,
            own: Vec::new(),
        }
    }

    /// Opens a session and all that is built on it, and begins the tenure.
    ///
    /// # Errors
    /// `Exit::InUse` if another program is this node; what the store says.
    pub(crate) async fn open(&mut self) -> Result<(), Failure> {
        let (store, lasts) = self.plan.sessions.open().await?;
        for former in &self.own {
            store.fence(former).await.map_err(|error| {
                Failure::from_source("cannot fence the former session of this node", &error)
            })?;
        }
        let plan = &self.plan;
        let catalog = Catalog::open(
            Arc::clone(&store),
            plan.pools.meta.clone(),
            Arc::clone(&plan.clock),
            Arc::clone(&plan.keyring),
        )
        .await
        .map_err(|error| Failure::from_source("cannot open the catalog", &error))?;
        let presence = self.become_node(&store, &catalog).await?;
        let plan = &self.plan;
        let buckets = Buckets::open_counting(
            Arc::clone(&store),
            plan.pools.meta.clone(),
            plan.pools.data.clone(),
            Arc::clone(&plan.clock),
            plan.options.clone(),
            Arc::clone(&plan.stats),
        )
        .await
        .map_err(|error| Failure::from_source("cannot open the buckets", &error))?;
        self.presence = presence;
        let volumes = Volumes { catalog, buckets };
        self.control.begin(Tenure::new(volumes, store, lasts));
        Ok(())
    }

    /// Registers the session as this node; what it finds there is nobody, a dead program, or a
    /// former session of this one.
    async fn become_node(
        &mut self,
        store: &Arc<dyn ObjectStore>,
        catalog: &Catalog,
    ) -> Result<Option<Presence>, Failure> {
        let name = self.plan.name.clone();
        let meta = &self.plan.pools.meta;
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot register node {name}: {error}");
        if self.own.is_empty() {
            let presence = match self.plan.has_rivals {
                true => Some(node::take(store, catalog, meta, &name).await?),
                false => None,
            };
            self.own.push(store.session());
            let registered = catalog.node_register(&name, None).await;
            registered.map_err(|error| Failure::new(Exit::Failed, failed(&error)))?;
            return Ok(presence);
        }
        let former = self.own.clone();
        let on_record = node::on_record(catalog, &name).await?;
        match on_record.filter(|session| former.contains(session)) {
            // The others are fenced, and the record was read after that: they never come on it.
            Some(session) => self.own = vec![session, store.session()],
            None => return Err(node::replaced(&name)),
        }
        let presence = match self.plan.has_rivals {
            true => Some(node::take_again(store, meta, &name, &former).await?),
            false => None,
        };
        let registered = catalog.node_succeed(&name, &self.own).await;
        let registered = registered.map_err(|error| Failure::new(Exit::Failed, failed(&error)))?;
        match registered {
            Some(node) => self.own = vec![node.session],
            None => return Err(node::replaced(&name)),
        }
        Ok(presence)
    }

    /// Serves from nothing, for the reason `why`.
    async fn leave(&mut self, why: &str) {
        self.presence = None;
        if let Some(tenure) = self.control.end(why) {
            tenure.volumes.catalog.close().await;
        }
    }

    /// Waits for the end of each tenure and begins the next one.
    async fn keep(&mut self, reopened: &Counter) -> Infallible {
        let mut pause = Duration::ZERO;
        loop {
            let begun = Instant::now();
            if let Some(tenure) = self.control.last() {
                tenure.ended().await;
            }
            // One that is fenced again at once is left alone for longer each time.
            if begun.elapsed() >= REOPEN_PAUSE_MAX {
                pause = Duration::ZERO;
            }
            const FENCED: &str = "the session on the store was fenced; a new one is being opened";
            tracing::warn!(node = self.plan.name, "{FENCED}");
            self.leave(FENCED).await;
            self.reopen(&mut pause).await;
            reopened.add(1);
            tracing::info!(node = self.plan.name, "serving with a new session");
        }
    }

    /// Tries until it succeeds. One that was replaced never tries again.
    async fn reopen(&mut self, pause: &mut Duration) {
        let mut complained = false;
        loop {
            sleep(*pause).await;
            *pause = (*pause * 2).clamp(REOPEN_PAUSE_MIN, REOPEN_PAUSE_MAX);
            let Err(failure) = self.open().await else {
                return;
            };
            if failure.exit() == Exit::InUse {
                tracing::error!("{failure}");
                self.leave(&failure.to_string()).await;
                std::future::pending::<Infallible>().await;
            }
            let why = format!(
                "the session on the store was fenced, and no new one can be opened yet: {failure}"
            );
            if complained {
                tracing::debug!("{why}");
            } else {
                complained = true;
                tracing::warn!("{why}");
            }
            self.leave(&why).await;
        }
    }

    /// Ends the tenure in good order. One that a fence ended has nothing left to be closed.
    ///
    /// # Errors
    /// The first failure; the rest is closed all the same.
    pub(crate) async fn close(&mut self) -> Result<(), Failure> {
        let Some(tenure) = self.control.last().filter(|tenure| tenure.lasts()) else {
            return Ok(());
        };
        let closed = tenure.volumes.buckets.close().await;
        let buckets = closed
            .map_err(|error| Failure::from_source("the buckets did not close cleanly", &error));
        tenure.volumes.catalog.close().await;
        let flushed = tenure.store.flush().await.map_err(|error| {
            Failure::from_source("the store did not take the last writes", &error)
        });
        if let Some(presence) = self.presence.take()
            && buckets.is_ok()
            && flushed.is_ok()
        {
            presence.end().await;
        }
        buckets.and(flushed)
    }
}

/// Keeps a tenure until the stop is requested.
pub(crate) async fn keep(keeper: Arc<Mutex<Keeper>>, reopened: Arc<Counter>, stop: Stop) {
    let mut keeper = keeper.lock().await;
    tokio::select! {
        () = stop.requested() => {}
        never = keeper.keep(&reopened) => match never {},
    }
}

#[cfg(test)]
mod tests;
