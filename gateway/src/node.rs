//! One program for each node of a cluster: whoever starts as a node first makes sure that no other
//! program is that node, and that none which was can write any more.
//!
//! A node watches an object of its name and answers whoever asks. A former program that does not
//! answer is fenced, so that what it left behind can be told from what somebody still works on. One
//! that ended cleanly removed the object, and is not fenced: a cluster remembers whom it must refuse.
//!
//! A program whose session was fenced becomes its node again only if nobody else did meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_backend::catalog::Catalog;
use portico_backend::error::{Error, ErrorKind};
use portico_backend::object::{
    Guard, ObjectId, ObjectName, ObjectStore, Pool, SessionId, WriteOp, WriteStep,
};
use tokio::task::JoinHandle;

use crate::error::{Exit, Failure};

/// How long a program that lives may take to say so.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause before a lost watch is made again.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// Answers as the node until dropped.
#[derive(Debug)]
pub(crate) struct Presence {
    task: JoinHandle<()>,
    store: Arc<dyn ObjectStore>,
    object: ObjectId,
}

impl Presence {
    /// Says that this program writes nothing more.
    pub(crate) async fn end(self) {
        let remove = WriteOp::new([WriteStep::Remove]);
        if let Err(error) = self.store.write(&self.object, remove).await {
            tracing::debug!(%error, "the next program of this node will fence this one");
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Becomes the node of this name; to be called before it is registered.
///
/// # Errors
/// `Exit::InUse` if another program answers as this node.
pub(crate) async fn take(
    store: &Arc<dyn ObjectStore>,
    catalog: &Catalog,
    pool: &Pool,
    name: &str,
) -> Result<Presence, Failure> {
    let object = node_object(pool, name);
    let failed = |error: &Error| not_sure(name, error);
    let make = WriteOp::new([WriteStep::Create]).guarded(Guard::Absent);
    match store.write(&object, make.forced_when_full()).await {
        Ok(_) => return Ok(answering(store, object)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(&error)),
    }
    if let Some(other) = who_answers(store, &object, &[])
        .await
        .map_err(|e| failed(&e))?
    {
        let what = format!("node {name} is another portico, with the session {other}");
        return Err(Failure::new(Exit::InUse, what)
            .with_help("stop that one, or give this one a name of its own")
            .of_key("backend.node"));
    }
    let former = on_record(catalog, name).await?;
    if let Some(former) = former.filter(|former| *former != store.session()) {
        store.fence(&former).await.map_err(|e| failed(&e))?;
        tracing::info!(node = name, session = %former, "the former program is fenced");
    }
    Ok(answering(store, object))
}

/// Becomes the node again, whose record names a former session of this program. `own` are all of
/// these, and they are fenced.
///
/// # Errors
/// `Exit::InUse` if another program answers as this node.
pub(crate) async fn take_again(
    store: &Arc<dyn ObjectStore>,
    pool: &Pool,
    name: &str,
    own: &[SessionId],
) -> Result<Presence, Failure> {
    let object = node_object(pool, name);
    let failed = |error: &Error| not_sure(name, error);
    let make = WriteOp::new([WriteStep::Create]).forced_when_full();
    store.write(&object, make).await.map_err(|e| failed(&e))?;
    let other = who_answers(store, &object, own).await;
    match other.map_err(|e| failed(&e))? {
        Some(_) => Err(replaced(name)),
        None => Ok(answering(store, object)),
    }
}

/// The session that the node of this name registered with last.
///
/// # Errors
/// What the store says.
pub(crate) async fn on_record(catalog: &Catalog, name: &str) -> Result<Option<SessionId>, Failure> {
    let nodes = catalog.nodes().await;
    let nodes = nodes.map_err(|e| Failure::from_source("cannot read the list of nodes", &e))?;
    let found = nodes.into_iter().find(|node| node.name == name);
    Ok(found.map(|node| node.session))
}

/// Another program is the node now.
pub(crate) fn replaced(name: &str) -> Failure {
    let what = format!(
        "another portico took over as node {name}, so this one serves no more: stop it, or start it \
         again as a node of its own (backend.node)"
    );
    Failure::new(Exit::InUse, what)
}

/// A session that answers as the node and is none of `own`.
async fn who_answers(
    store: &Arc<dyn ObjectStore>,
    object: &ObjectId,
    own: &[SessionId],
) -> Result<Option<SessionId>, Error> {
    let told = store.notify(object, Bytes::new(), ANSWER_TIMEOUT).await?;
    let mut sessions = told.acks.into_iter().map(|ack| ack.session);
    Ok(sessions.find(|session| !own.contains(session)))
}

fn node_object(pool: &Pool, name: &str) -> ObjectId {
    ObjectId::new(pool, ObjectName::new(&format!("portico_node.{name}")))
}

fn not_sure(name: &str, error: &Error) -> Failure {
    Failure::from_source(format!("cannot make sure that node {name} is free"), error)
}

fn answering(store: &Arc<dyn ObjectStore>, object: ObjectId) -> Presence {
    Presence {
        task: tokio::spawn(answer(Arc::clone(store), object.clone())),
        store: Arc::clone(store),
        object,
    }
}

/// Answers whoever asks, until the session is fenced.
async fn answer(store: Arc<dyn ObjectStore>, object: ObjectId) {
    loop {
        let error = match store.watch(&object).await {
            Err(error) => error,
            Ok(mut watch) => loop {
                match watch.next().await {
                    Ok(asked) => watch.acknowledge(&asked, Bytes::new()),
                    Err(error) => break error,
                }
            },
        };
        if error.kind() == ErrorKind::Fenced {
            return;
        }
        tokio::time::sleep(WATCH_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_backend::catalog::Keyring;
    use portico_backend::clock::SystemClock;
    use portico_backend::memory::{MemoryCluster, MemoryOptions};

    #[tokio::test(start_paused = true)]
    async fn a_node_that_answers_is_left_alone_and_one_that_does_not_is_fenced() {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let pool = Pool::new("meta", "");
        let keyring = Arc::new(Keyring::generate("k1").unwrap());
        let open = async || {
            let store = cluster.session("test");
            let catalog = Catalog::open(
                Arc::clone(&store),
                pool.clone(),
                Arc::new(SystemClock),
                Arc::clone(&keyring),
            );
            (store, catalog.await.unwrap())
        };
        let (first, catalog) = open().await;
        let presence = take(&first, &catalog, &pool, "one").await.unwrap();
        catalog.node_register("one", None).await.unwrap();
        // The watch is made by the task.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (second, catalog) = open().await;
        let refused = take(&second, &catalog, &pool, "one")
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("node one is another portico"), "{refused}");
        let other = take(&second, &catalog, &pool, "two").await.unwrap();
        assert!(second.may_write(&first.session()).await.unwrap());
        drop(other);
        drop(presence);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _presence = take(&second, &catalog, &pool, "one").await.unwrap();
        assert!(
            !second.may_write(&first.session()).await.unwrap(),
            "it is fenced"
        );
    }
}
