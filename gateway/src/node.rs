//! One program for each node of a cluster: whoever starts as a node first makes sure that no other
//! program is that node, and that none which was can write any more.
//!
//! A node watches an object of its name and answers whoever asks. A former program that does not
//! answer is fenced, so that what it left behind can be told from what somebody still works on. One
//! that ended cleanly removed the object, and is not fenced: a cluster remembers whom it must refuse.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portico_backend::catalog::Catalog;
use portico_backend::error::{Error, ErrorKind};
use portico_backend::object::{Guard, ObjectId, ObjectName, ObjectStore, Pool, WriteOp, WriteStep};
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
    let object = ObjectId::new(pool, ObjectName::new(&format!("portico_node.{name}")));
    let failed = |error: &Error| {
        Failure::from_source(format!("cannot make sure that node {name} is free"), error)
    };
    let make = WriteOp::new([WriteStep::Create]).guarded(Guard::Absent);
    match store.write(&object, make.forced_when_full()).await {
        Ok(_) => return Ok(answering(store, object)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(&error)),
    }
    let told = store.notify(&object, Bytes::new(), ANSWER_TIMEOUT).await;
    if let Some(other) = told.map_err(|e| failed(&e))?.acks.first() {
        let what = format!(
            "node {name} is another portico, with the session {}",
            other.session
        );
        return Err(Failure::new(Exit::InUse, what)
            .with_help("stop that one, or give this one a name of its own")
            .of_key("backend.node"));
    }
    let nodes = catalog.nodes().await;
    let nodes = nodes.map_err(|e| Failure::from_source("cannot read the list of nodes", &e))?;
    let former = nodes.into_iter().find(|node| node.name == name);
    if let Some(former) = former.filter(|former| former.session != store.session()) {
        store.fence(&former.session).await.map_err(|e| failed(&e))?;
        tracing::info!(node = name, session = %former.session, "the former program is fenced");
    }
    Ok(answering(store, object))
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
            tracing::error!("another program took this node over; this one serves no more");
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
