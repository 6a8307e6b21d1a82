//! Looks how full the cluster's pools are, and tells the operator when that changes. Nothing is refused
//! here: a pool that is nearly full takes writes, and a full one refuses them by itself.

use portico_backend::connection::Stop;
use portico_backend::rados::{Fullness, PoolFullness, RadosStore};

use crate::limits::POOLS_INTERVAL;

/// Looks again and again until the stop.
pub(crate) async fn watch(store: RadosStore, stop: Stop) {
    loop {
        let before = store.fullness();
        let found = tokio::select! {
            () = stop.requested() => return,
            found = store.look_at_fullness() => found,
        };
        match found {
            Ok(now) => changes(&before, &now).for_each(tell),
            Err(error) => tracing::debug!(%error, "cannot tell how full the pools are"),
        }
        tokio::select! {
            () = stop.requested() => return,
            () = tokio::time::sleep(POOLS_INTERVAL) => {}
        }
    }
}

/// What an operator should know of a pool.
pub(crate) fn warning(pool: &PoolFullness) -> Option<String> {
    let name = &pool.ceph_pool;
    match pool.fullness {
        Fullness::Room => None,
        Fullness::NearlyFull => Some(format!(
            "pool {name} is nearly full: writes go on until it is full; add OSDs or delete"
        )),
        Fullness::Full => Some(format!(
            "pool {name} is full: writes are refused, reading and deleting go on; add OSDs, raise its \
             quota or delete"
        )),
    }
}

/// The pools that are not as they were. One that was not seen before had room.
fn changes<'a>(
    before: &'a [PoolFullness],
    now: &'a [PoolFullness],
) -> impl Iterator<Item = &'a PoolFullness> {
    now.iter().filter(|pool| {
        let former = before.iter().find(|one| one.ceph_pool == pool.ceph_pool);
        former.map_or(Fullness::Room, |one| one.fullness) != pool.fullness
    })
}

fn tell(pool: &PoolFullness) {
    match warning(pool) {
        Some(warning) => tracing::warn!("{warning}"),
        None => tracing::info!(pool = pool.ceph_pool, "the pool has room again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, fullness: Fullness) -> PoolFullness {
        PoolFullness {
            ceph_pool: name.to_owned(),
            fullness,
        }
    }

    #[test]
    fn only_changes_are_told() {
        let (room, near) = (Fullness::Room, Fullness::NearlyFull);
        let first = [pool("a", room), pool("b", near)];
        let names = |before: &[PoolFullness], now: &[PoolFullness]| -> Vec<String> {
            let changed = changes(before, now);
            changed.map(|pool| pool.ceph_pool.clone()).collect()
        };
        assert_eq!(names(&[], &first), ["b"]);
        assert!(names(&first, &first).is_empty());
        let later = [pool("a", Fullness::Full), pool("b", room)];
        assert_eq!(names(&first, &later), ["a", "b"]);
        assert!(warning(&later[0]).unwrap().contains("pool a is full"));
        assert_eq!(warning(&later[1]), None);
    }
}
