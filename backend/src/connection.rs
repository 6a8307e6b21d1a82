//! What a protocol gets beside a stream: who is at its other end, and when to stop.

use std::fmt;
use std::net::SocketAddr;

use tokio::sync::watch;

/// The other end of a connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Peer {
    /// Unknown for streams in memory.
    pub address: Option<SocketAddr>,
    /// Whether the stream came through TLS.
    pub secure: bool,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("-"),
        }
    }
}

/// Tells a connection to finish what it has begun and to end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Requests the stop. Dropping it does so too.
#[derive(Debug)]
pub struct StopControl(watch::Sender<bool>);

/// A stop that is not yet requested, and its control.
#[must_use]
pub fn stop() -> (StopControl, Stop) {
    let (sender, receiver) = watch::channel(false);
    (StopControl(sender), Stop(receiver))
}

impl StopControl {
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns once the stop is requested.
    pub async fn requested(&self) {
        // An error means that the control is gone, which is a request as well.
        drop(self.0.clone().wait_for(|requested| *requested).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_is_requested_once_and_for_all_clones() {
        let (control, stop) = stop();
        let other = stop.clone();
        assert!(!stop.is_requested());
        control.request();
        other.requested().await;
        drop(control);
        assert!(stop.is_requested());
    }

    #[tokio::test]
    async fn dropping_the_control_requests_the_stop() {
        let (control, stop) = stop();
        drop(control);
        stop.requested().await;
        assert!(stop.is_requested());
    }
}
