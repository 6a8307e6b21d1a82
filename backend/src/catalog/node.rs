//! Nodes: the programs that serve this store, each with a number that stays.

use bytes::Bytes;

use super::error::CatalogError;
use super::follow::Shared;
use super::name::{NodeId, check_user_name};
use super::record::NodeRecord;
use super::root::{Counter, TableKind};
use super::table::{Edit, corrupt};
use super::{ATTEMPTS_MAX, Catalog};
use crate::error::Error;
use crate::object::SessionId;

impl Catalog {
    /// Registers this session as the node of this id, which takes the name, or as the node of this
    /// name, which is made if it is not there. Two programs that register as the same node at a
    /// time are a fault of configuration: the later one is on record.
    ///
    /// # Errors
    /// `NoSuchNode` for an id that nobody has, `Invalid` for a bad name or one that another node
    /// has.
    pub async fn node_register(
        &self,
        name: &str,
        id: Option<NodeId>,
    ) -> Result<NodeRecord, CatalogError> {
        let invalid = |problem| CatalogError::Invalid {
            field: "node name",
            value: name.to_owned(),
            problem,
        };
        check_user_name(name).map_err(|error| invalid(error.0))?;
        for _ in 0..ATTEMPTS_MAX {
            let nodes = self.shared.nodes_read().await?;
            let named = nodes.iter().find(|(node, _)| node.name == name);
            let before = match id {
                None => named,
                Some(id) => Some(
                    nodes
                        .iter()
                        .find(|(node, _)| node.id == id)
                        .ok_or(CatalogError::NoSuchNode(id))?,
                ),
            };
            if named.is_some_and(|(node, _)| Some(node.id) != before.map(|(node, _)| node.id)) {
                return Err(invalid("is that of another node"));
            }
            let node = NodeRecord {
                id: match before {
                    Some((node, _)) => node.id,
                    None => NodeId(self.shared.root.count(Counter::Node).await?),
                },
                name: name.to_owned(),
                session: self.shared.store.session(),
                registered_ms: self.shared.clock.now_ms(),
            };
            if self
                .shared
                .commit(TableKind::Node, &edits(before, &node))
                .await?
            {
                return Ok(node);
            }
        }
        Err(CatalogError::Conflict)
    }

    /// Registers this session as the node of this name in place of one of the sessions `former`,
    /// which are the caller's own. `None` if the node is another session by now.
    ///
    /// # Errors
    /// What the store says; `Conflict` if others keep changing the record.
    pub async fn node_succeed(
        &self,
        name: &str,
        former: &[SessionId],
    ) -> Result<Option<NodeRecord>, CatalogError> {
        for _ in 0..ATTEMPTS_MAX {
            let nodes = self.shared.nodes_read().await?;
            let Some(before) = nodes.iter().find(|(node, _)| node.name == name) else {
                return Ok(None);
            };
            let session = self.shared.store.session();
            if before.0.session != session && !former.contains(&before.0.session) {
                return Ok(None);
            }
            let node = NodeRecord {
                session,
                registered_ms: self.shared.clock.now_ms(),
                ..before.0.clone()
            };
            let edits = edits(Some(before), &node);
            if self.shared.commit(TableKind::Node, &edits).await? {
                return Ok(Some(node));
            }
        }
        Err(CatalogError::Conflict)
    }

    /// All nodes that ever registered, by name.
    ///
    /// # Errors
    /// What the store says.
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>, CatalogError> {
        let nodes = self.shared.nodes_read().await?;
        Ok(nodes.into_iter().map(|(node, _)| node).collect())
    }
}

impl Shared {
    async fn nodes_read(&self) -> Result<Vec<(NodeRecord, Bytes)>, Error> {
        let partition = self.nodes.load(0).await?;
        let mut nodes = Vec::with_capacity(partition.entries.len());
        for (key, record) in partition.entries {
            let node = NodeRecord::decode(&record).map_err(|error| corrupt("node", &key, error))?;
            nodes.push((node, record));
        }
        Ok(nodes)
    }
}

/// Records are kept by name, so a new name moves the record.
fn edits(before: Option<&(NodeRecord, Bytes)>, node: &NodeRecord) -> Vec<Edit> {
    let key = |name: &str| Bytes::copy_from_slice(name.as_bytes());
    let new = Some(node.encode());
    match before {
        Some((before, record)) if before.name == node.name => vec![Edit {
            key: key(&node.name),
            old: Some(record.clone()),
            new,
        }],
        Some((before, record)) => vec![
            Edit {
                key: key(&before.name),
                old: Some(record.clone()),
                new: None,
            },
            Edit {
                key: key(&node.name),
                old: None,
                new,
            },
        ],
        None => vec![Edit {
            key: key(&node.name),
            old: None,
            new,
        }],
    }
}
