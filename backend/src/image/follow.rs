//! Hearing that another session, or one of RBD's tools, changed an image that is open.
//!
//! The header is watched, and any notification means "read it again", as an empty one does in
//! librbd. The answer tells the notifier that Portico serves the image.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::handle::Shared;
use super::header::Header;
use crate::error::{Error, ErrorKind, chain};
use crate::object::Watch;

/// What a session that serves an image answers to a notification.
pub(super) const SERVING: &[u8] = b"portico serves this image";

/// Between two attempts to watch again.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs until the image is dropped or served no more.
pub(super) async fn follow(shared: Arc<Shared>, watch: Box<dyn Watch>) {
    let mut watch = Some(watch);
    while shared.check_served().is_ok() {
        let heard = match &mut watch {
            Some(watch) => watch.next().await,
            None => match shared.store.watch(&shared.place.header()).await {
                Ok(again) => {
                    watch = Some(again);
                    // Something may have changed meanwhile.
                    shared.look_again().await;
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        match heard {
            Ok(notification) => {
                shared.look_again().await;
                if let Some(watch) = &mut watch {
                    watch.acknowledge(&notification, Bytes::from_static(SERVING));
                }
                if let Err(error) = shared.trim_if_noted().await {
                    tracing::warn!(
                        image = %shared.place.name,
                        error = %chain(&error),
                        "space behind a smaller image was not given back yet"
                    );
                }
            }
            Err(error) => {
                watch = None;
                shared.look_again().await;
                if error.kind() == ErrorKind::Fenced {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Shared {
    /// Takes in what the header says now. An image that can't be served any more isn't.
    pub(super) async fn look_again(&self) {
        let header = self.place.header();
        match Header::read(&*self.store, &header, &self.place.name).await {
            Ok(header) if header.layout != self.layout || *header.object_prefix != *self.prefix => {
                self.refuse("its header names other objects".to_owned());
            }
            Ok(header) => self.take_in(header.size).await,
            Err(error) => self.judge(&error),
        }
    }

    pub(super) async fn take_in(&self, size_bytes: u64) {
        if size_bytes < self.size() {
            // No change behind the new end is on its way when this returns.
            let _alone = self.changing.write().await;
            self.set_size(size_bytes);
        } else {
            self.set_size(size_bytes);
        }
    }

    fn judge(&self, error: &Error) {
        match error.kind() {
            ErrorKind::NotFound => self.refuse("it was removed".to_owned()),
            ErrorKind::Unsupported | ErrorKind::Corrupt => self.refuse(chain(error)),
            // The store's trouble shows at each call.
            ErrorKind::AlreadyExists
            | ErrorKind::Busy
            | ErrorKind::Fenced
            | ErrorKind::GuardFailed
            | ErrorKind::Locked
            | ErrorKind::NoSpace
            | ErrorKind::TooLarge
            | ErrorKind::Unavailable => {}
        }
    }
}
