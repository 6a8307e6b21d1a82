//! Following the changes of others: a watch on the root, and a look at it four times a second in
//! case the watch is broken or a change's maker died before it told anybody.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::cache::{BucketCache, Identities};
use super::error::CatalogError;
use super::keyring::Keyring;
use super::root::{Announcement, Change, News, Root, TableKind};
use super::table::{Edit, Table};
use crate::clock::Clock;
use crate::error::{Error, chain};
use crate::object::{ObjectStore, Pool, Watch};

/// Objects of each table. At 50,000 keys each: 3.2 million users, access keys, buckets.
const PARTITIONS: u32 = 64;

/// How often the root is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a change waits for others to have taken note. Who does not, finds out by a look.
const NOTIFY_TIMEOUT: Duration = Duration::from_millis(1_000);

/// After this time without being settled, an announcement's maker is gone, and so is its change.
const ANNOUNCED_MAX: Duration = Duration::from_mins(10);

/// Partitions read at the same time.
const READS_MAX: usize = 16;

/// News that came before their predecessors; with more, everything is read again.
const AHEAD_MAX: usize = 1_024;

/// What the catalog's owner and its follower share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) root: Root,
    pub(super) users: Table,
    pub(super) access_keys: Table,
    pub(super) buckets: Table,
    pub(super) nodes: Table,
    pub(super) luns: Table,
    pub(super) targets: Table,
    pub(super) initiators: Table,
    /// Counts the moments at which LUNs, targets or initiators may have changed.
    block_changes: watch::Sender<u64>,
    keyring: RwLock<Arc<Keyring>>,
    identities: RwLock<Identities>,
    bucket_cache: Mutex<BucketCache>,
    /// Held while the store is read to bring memory up to date, so memory never goes backwards.
    told: tokio::sync::Mutex<Told>,
}

/// What this catalog knows to have happened.
#[derive(Debug, Default)]
struct Told {
    /// Every change up to this sequence is in memory.
    sequence: u64,
    /// So are these.
    ahead: BTreeSet<u64>,
    /// Announcements of others and when they were first seen.
    announced: HashMap<Bytes, Instant>,
}

impl Shared {
    pub(super) async fn open(
        store: Arc<dyn ObjectStore>,
        meta: &Pool,
        clock: Arc<dyn Clock>,
        keyring: Arc<Keyring>,
    ) -> Result<(Self, Option<Box<dyn Watch>>), CatalogError> {
        let table = |name, partitions| Table::new(&store, meta, name, partitions);
        let shared = Self {
            root: Root::open(&store, meta).await?,
            users: table("catalog.user", PARTITIONS),
            access_keys: table("catalog.key", PARTITIONS),
            buckets: table("catalog.bucket", PARTITIONS),
            nodes: table("catalog.node", 1),
            luns: table("catalog.lun", 1),
            targets: table("catalog.target", 1),
            initiators: table("catalog.initiator", 1),
            block_changes: watch::Sender::new(0),
            store: Arc::clone(&store),
            clock,
            keyring: RwLock::new(keyring),
            identities: RwLock::new(Identities::new(PARTITIONS)),
            bucket_cache: Mutex::default(),
            told: tokio::sync::Mutex::default(),
        };
        // Watching before reading leaves no gap. Without a watch, looking will do.
        let watch = shared.store.watch(shared.root.object()).await.ok();
        shared.catch_up().await?;
        Ok((shared, watch))
    }

    pub(super) fn keyring(&self) -> Arc<Keyring> {
        let keyring = self.keyring.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&keyring)
    }

    /// Runs `read` over the users and access keys in memory.
    pub(super) fn identities<T>(&self, read: impl FnOnce(&Identities) -> T) -> T {
        read(
            &self
                .identities
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    pub(super) fn bucket_cache(&self) -> MutexGuard<'_, BucketCache> {
        self.bucket_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses another keyring from now on.
    pub(super) async fn keyring_replace(&self, keyring: Arc<Keyring>) -> Result<(), Error> {
        let _told = self.told.lock().await;
        *self.keyring.write().unwrap_or_else(PoisonError::into_inner) = keyring;
        self.change_identities(Identities::forget_keys);
        self.read_again().await
    }

    /// Makes edits of one partition and tells everybody. `false` if a record was not as expected.
    pub(super) async fn commit(&self, table: TableKind, edits: &[Edit]) -> Result<bool, Error> {
        let key = edits
            .first()
            .expect("a change changes something")
            .key
            .clone();
        let change = Change {
            table,
            partition: self.table(table).partition_of(&key),
            key,
        };
        let announcement = self.root.announce(&change).await?;
        let outcome = self.table(table).edit(edits).await;
        match outcome {
            Ok(true) => {
                self.publish(&announcement, change).await;
                Ok(true)
            }
            Err(error) if error.kind().is_perhaps_applied() => Err(error),
            Ok(false) | Err(_) => {
                if let Err(error) = self.root.withdraw(&announcement).await {
                    tracing::warn!(error = %chain(&error), "an announcement stays for a while");
                }
                outcome
            }
        }
    }

    /// Brings memory up to date with all that was settled or announced before the call.
    pub(super) async fn catch_up(&self) -> Result<(), Error> {
        let mut told = self.told.lock().await;
        let begun = Instant::now();
        let state = self.root.read().await?;
        if state.sequence != told.sequence || state.pending_unclear {
            self.read_again().await?;
            told.sequence = state.sequence;
            told.ahead = told.ahead.split_off(&(state.sequence + 1));
        }
        for (_, change) in &state.pending {
            self.take_in(change).await?;
        }
        let present: HashSet<&Bytes> = state.pending.iter().map(|(key, _)| key).collect();
        told.announced.retain(|key, _| present.contains(key));
        let mut stale = Vec::new();
        for (key, _) in &state.pending {
            let seen = told.announced.entry(key.clone()).or_insert(begun);
            if begun.duration_since(*seen) >= ANNOUNCED_MAX {
                stale.push(key.clone());
            }
        }
        self.bucket_cache().verified_at(begun);
        drop(told);
        for key in stale {
            tracing::info!("settling a catalog change whose maker is gone");
            self.root.settle(&Announcement::found(&key)).await?;
        }
        Ok(())
    }

    /// The change is made: settles it, takes it in, and tells the others. What fails here costs
    /// time only, since the announcement stays.
    async fn publish(&self, announcement: &Announcement, change: Change) {
        let sequence = match self.root.settle(announcement).await {
            Ok(sequence) => sequence,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "a catalog change was not settled");
                return;
            }
        };
        let news = News {
            origin: self.root.origin(),
            sequence,
            change,
        };
        let payload = news.encode();
        if let Err(error) = self.hear(&news).await {
            tracing::warn!(error = %chain(&error), "an own catalog change is taken in later");
        }
        let told = self
            .store
            .notify(self.root.object(), payload, NOTIFY_TIMEOUT);
        match told.await {
            Ok(outcome) if outcome.missed.is_empty() => {}
            Ok(outcome) => tracing::warn!(missed = ?outcome.missed, "a catalog change was missed"),
            Err(error) => tracing::warn!(error = %chain(&error), "a catalog change was not told"),
        }
    }

    async fn hear(&self, news: &News) -> Result<(), Error> {
        let mut told = self.told.lock().await;
        if news.sequence <= told.sequence || told.ahead.contains(&news.sequence) {
            return Ok(());
        }
        self.take_in(&news.change).await?;
        if told.ahead.len() < AHEAD_MAX {
            told.ahead.insert(news.sequence);
        }
        loop {
            let next = told.sequence + 1;
            if !told.ahead.remove(&next) {
                return Ok(());
            }
            told.sequence = next;
        }
    }

    /// Reads the changed place again. The caller holds `told`.
    async fn take_in(&self, change: &Change) -> Result<(), Error> {
        if !self
            .table(change.table)
            .partitions()
            .contains(&change.partition)
        {
            return self.read_again().await;
        }
        match change.table {
            TableKind::AccessKey => self.load_keys(change.partition).await,
            TableKind::User => self.load_users(change.partition).await,
            TableKind::Bucket => {
                self.bucket_cache().forget(&change.key);
                Ok(())
            }
            TableKind::Node => Ok(()),
            TableKind::Initiator | TableKind::Lun | TableKind::Target => {
                self.block_changed();
                Ok(())
            }
        }
    }

    fn block_changed(&self) {
        self.block_changes.send_modify(|count| *count += 1);
    }

    /// Changes whenever LUNs, targets or initiators may have.
    pub(super) fn block_changes(&self) -> watch::Receiver<u64> {
        self.block_changes.subscribe()
    }

    /// Reads all partitions that changed. The caller holds `told`.
    async fn read_again(&self) -> Result<(), Error> {
        self.bucket_cache().forget_all();
        self.block_changed();
        let users = self.users.partitions().map(|partition| async move {
            let known = self.identities(|identities| identities.user_version(partition));
            if self.users.version(partition).await? != known {
                self.load_users(partition).await?;
            }
            Ok::<_, Error>(())
        });
        stream::iter(users)
            .buffer_unordered(READS_MAX)
            .try_collect::<()>()
            .await?;
        let keys = self.access_keys.partitions().map(|partition| async move {
            let known = self.identities(|identities| identities.key_version(partition));
            if self.access_keys.version(partition).await? != known {
                self.load_keys(partition).await?;
            }
            Ok::<_, Error>(())
        });
        stream::iter(keys)
            .buffer_unordered(READS_MAX)
            .try_collect::<()>()
            .await
    }

    async fn load_users(&self, partition: u32) -> Result<(), Error> {
        let loaded = self.users.load(partition).await?;
        self.change_identities(|identities| identities.replace_users(partition, &loaded));
        Ok(())
    }

    async fn load_keys(&self, partition: u32) -> Result<(), Error> {
        let loaded = self.access_keys.load(partition).await?;
        let keyring = self.keyring();
        self.change_identities(|identities| identities.replace_keys(partition, &loaded, &keyring));
        Ok(())
    }

    fn change_identities(&self, change: impl FnOnce(&mut Identities)) {
        change(
            &mut self
                .identities
                .write()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    fn table(&self, kind: TableKind) -> &Table {
        match kind {
            TableKind::AccessKey => &self.access_keys,
            TableKind::Bucket => &self.buckets,
            TableKind::Initiator => &self.initiators,
            TableKind::Lun => &self.luns,
            TableKind::Node => &self.nodes,
            TableKind::Target => &self.targets,
            TableKind::User => &self.users,
        }
    }
}

/// Follows until it is aborted: watches the root, and looks at it at every tick. The first watch
/// may be there already.
pub(super) async fn follow(shared: Arc<Shared>, mut first: Option<Box<dyn Watch>>) {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = Looks::default();
    let mut complained = false;
    loop {
        let watch = match first.take() {
            Some(watch) => Ok(watch),
            None => shared.store.watch(shared.root.object()).await,
        };
        match watch {
            Ok(watch) => {
                complained = false;
                let error = follow_watch(&shared, watch, &mut tick, &mut looks).await;
                tracing::info!(error = %chain(&error), "the watch on the catalog ended");
            }
            Err(error) if complained => {
                tracing::debug!(error = %chain(&error), "still no watch on the catalog");
            }
            Err(error) => {
                complained = true;
                tracing::warn!(error = %chain(&error), "cannot watch the catalog; looking instead");
            }
        }
        // Also the pause between attempts to watch.
        tick.tick().await;
        looks.look(&shared).await;
    }
}

/// Serves one watch until it ends.
async fn follow_watch(
    shared: &Shared,
    mut watch: Box<dyn Watch>,
    tick: &mut tokio::time::Interval,
    looks: &mut Looks,
) -> Error {
    // What happened before the watch was there.
    looks.look(shared).await;
    loop {
        let notification = {
            let mut next = watch.next();
            loop {
                tokio::select! {
                    heard = &mut next => break heard,
                    _ = tick.tick() => looks.look(shared).await,
                }
            }
        };
        let notification = match notification {
            Ok(notification) => notification,
            Err(error) => return error,
        };
        match News::decode(&notification.payload) {
            Ok(news) if news.origin == shared.root.origin() => {}
            Ok(news) => {
                if let Err(error) = shared.hear(&news).await {
                    tracing::warn!(error = %chain(&error), "a catalog change is taken in later");
                }
            }
            // Of a newer program: the next look finds out what it changed.
            Err(error) => tracing::debug!(%error, "news of the catalog not understood"),
        }
        watch.acknowledge(&notification, Bytes::new());
    }
}

/// Looks at the root, and complains once when it begins to fail.
#[derive(Debug, Default)]
struct Looks {
    failing: bool,
}

impl Looks {
    async fn look(&mut self, shared: &Shared) {
        match shared.catch_up().await {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!("follows the catalog again");
            }
            Ok(()) => {}
            Err(error) if self.failing => {
                tracing::debug!(error = %chain(&error), "still cannot follow the catalog");
            }
            Err(error) => {
                self.failing = true;
                tracing::warn!(error = %chain(&error), "cannot follow the catalog");
            }
        }
    }
}
