//! Which shards are split, when, and by whom.
//!
//! A node notes what it is at and what it saw others at; nothing here is stored. How a split is
//! done stands in [`split`](super::split).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::error::Error;
use super::shard::{Phase, ShardState, Split};
use super::{BucketId, Shared};
use crate::error::ErrorKind;
use crate::object::{Priority, Version};

/// Splits that a node does at a time: each copy takes from what clients get.
pub(super) const SPLITS_AT_ONCE: usize = 4;

/// What this node knows about splitting a shard.
#[derive(Debug)]
pub(super) enum SplitNote {
    Running(Arc<Underway>),
    /// All rows belong to one key.
    Indivisible {
        rows: u64,
    },
    /// Another writer is at it.
    Elsewhere {
        generation: u64,
        /// Versions of the new shards at the last look.
        seen: Option<[Option<Version>; 2]>,
        looked: Instant,
    },
}

/// A split that this node is at.
#[derive(Debug, Default)]
pub(super) struct Underway {
    /// Taken by whoever writes to the shard, so that this node does not compete with itself.
    pub(super) turn: Arc<AsyncMutex<()>>,
    /// Set when changes wait for room.
    is_waited_for: AtomicBool,
}

/// What is to be done about a shard that has grown.
#[derive(Debug)]
enum Start {
    Nothing,
    Split,
    /// Find out whether another node's split makes progress.
    Look(Split),
}

impl Shared {
    /// Starts to split a shard that has grown, in the background.
    pub(super) fn consider_split(self: &Arc<Self>, id: BucketId, number: u64, state: &ShardState) {
        let rows = state.totals.rows;
        // A split that was begun is brought to its end, however many rows went meanwhile.
        if state.phase == Phase::Open && rows < self.split_rows(number) {
            return;
        }
        let start = self.note_growth(id, number, state);
        if matches!(start, Start::Nothing) {
            return;
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            if let Start::Look(split) = start
                && !shared.is_abandoned(id, number, &split).await
            {
                return;
            }
            let Ok(_turn) = shared.splits.acquire().await else {
                return;
            };
            if let Err(error) = shared.run_split(id, number).await {
                tracing::debug!(%error, bucket = id.0, number, "a split ended early");
            }
        });
    }

    /// Whether a shard has no room for `more_rows` and a split is going to make some. Rows of one key
    /// alone can't be split and may be more than a shard should hold.
    pub(super) fn is_room_coming(
        self: &Arc<Self>,
        id: BucketId,
        number: u64,
        state: &ShardState,
        more_rows: u64,
    ) -> bool {
        let rows = state.all_rows().saturating_add(more_rows);
        if rows <= u64::from(self.options.shard_keys_max) {
            return false;
        }
        // A split that nobody is at is begun or taken over.
        self.consider_split(id, number, state);
        if let Some(underway) = self.split_underway(id, number) {
            underway.is_waited_for.store(true, Ordering::Relaxed);
            return true;
        }
        matches!(state.phase, Phase::Splitting(_))
    }

    pub(super) fn split_underway(&self, id: BucketId, number: u64) -> Option<Arc<Underway>> {
        let notes = self.splitting.lock().expect(super::LOCK);
        match notes.get(&(id, number)) {
            Some(SplitNote::Running(underway)) => Some(Arc::clone(underway)),
            Some(SplitNote::Indivisible { .. } | SplitNote::Elsewhere { .. }) | None => None,
        }
    }

    /// Rows at which a shard begins to split: 40 to 60 % of what it may hold, since shards that grow
    /// alike would all be at the same place at the same time.
    fn split_rows(&self, number: u64) -> u64 {
        let max = u64::from(self.options.shard_keys_max);
        // Fibonacci hashing: neighbours lie far from each other.
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        max * 2 / 5 + max * spread / (5 << 10)
    }

    /// Takes over a split that makes no progress while changes wait.
    pub(super) async fn help_split(
        self: &Arc<Self>,
        id: BucketId,
        number: u64,
        state: &ShardState,
        waited: Duration,
    ) -> Result<(), Error> {
        let Phase::Frozen(split) = &state.phase else {
            return Ok(());
        };
        let own = split.writer == self.writer.number;
        if !own && waited < self.takeover() {
            return Ok(());
        }
        self.go_on_with_split(id, number).await
    }

    /// Splits a shard whose split was begun, unless this node is at it.
    pub(super) async fn go_on_with_split(
        self: &Arc<Self>,
        id: BucketId,
        number: u64,
    ) -> Result<(), Error> {
        let is_at_it = {
            let mut notes = self.splitting.lock().expect(super::LOCK);
            let note = notes.get(&(id, number));
            let is_at_it = matches!(note, Some(SplitNote::Running(_)));
            if !is_at_it {
                notes.insert((id, number), SplitNote::running());
            }
            is_at_it
        };
        if is_at_it {
            return Ok(());
        }
        self.run_split(id, number).await
    }

    /// Splits a shard whose note says `Running`, in whatever phase it is.
    async fn run_split(self: &Arc<Self>, id: BucketId, number: u64) -> Result<(), Error> {
        let result = self.split_shard(id, number).await;
        let mut notes = self.splitting.lock().expect(super::LOCK);
        match &result {
            Ok(Some(rows)) => {
                notes.insert((id, number), SplitNote::Indivisible { rows: *rows });
            }
            Ok(None) | Err(_) => {
                notes.remove(&(id, number));
            }
        }
        result.map(drop)
    }

    fn takeover(&self) -> Duration {
        Duration::from_millis(self.options.takeover_ms)
    }

    fn note_growth(&self, id: BucketId, number: u64, state: &ShardState) -> Start {
        let rows = state.totals.rows;
        let mut notes = self.splitting.lock().expect(super::LOCK);
        let elsewhere = match &state.phase {
            Phase::Splitting(split) => (split.writer != self.writer.number).then_some(split),
            Phase::Open | Phase::Frozen(_) | Phase::Moved | Phase::Filling => None,
            Phase::Closing { .. } => return Start::Nothing,
        };
        match (notes.get_mut(&(id, number)), elsewhere) {
            (Some(SplitNote::Running(_)), _) => return Start::Nothing,
            (Some(SplitNote::Indivisible { rows: then }), _) if rows < then.saturating_mul(2) => {
                return Start::Nothing;
            }
            (
                Some(SplitNote::Elsewhere {
                    generation, looked, ..
                }),
                Some(split),
            ) if *generation == state.generation => {
                if looked.elapsed() < self.takeover() {
                    return Start::Nothing;
                }
                *looked = Instant::now();
                return Start::Look(split.clone());
            }
            (_, None) => {
                notes.insert((id, number), SplitNote::running());
                return Start::Split;
            }
            (_, Some(_)) => {}
        }
        let note = SplitNote::Elsewhere {
            generation: state.generation,
            seen: None,
            looked: Instant::now(),
        };
        notes.insert((id, number), note);
        Start::Nothing
    }

    /// Whether another node's split has done nothing since the last look. The note says `Running`
    /// then.
    async fn is_abandoned(&self, id: BucketId, number: u64, split: &Split) -> bool {
        let mut now = [None; 2];
        for (version, child) in now.iter_mut().zip([split.left, split.right]) {
            match self.read_view(&self.shard_object(id, child), []).await {
                Ok(view) => *version = Some(view.version),
                Err(Error::Store(error)) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => return false,
            }
        }
        let mut notes = self.splitting.lock().expect(super::LOCK);
        let Some(SplitNote::Elsewhere { seen, .. }) = notes.get_mut(&(id, number)) else {
            return false;
        };
        if seen.replace(now) != Some(now) {
            return false;
        }
        notes.insert((id, number), SplitNote::running());
        true
    }
}

impl SplitNote {
    fn running() -> Self {
        Self::Running(Arc::default())
    }
}

impl Underway {
    /// What changes wait for is not behind them.
    pub(super) fn priority(&self) -> Priority {
        match self.is_waited_for.load(Ordering::Relaxed) {
            true => Priority::Client,
            false => Priority::Background,
        }
    }
}
