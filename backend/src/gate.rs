//! The serving gate: may this node answer at all?
//!
//! A reply is authority too. A node that lost its right to serve must not let a finished reply
//! leave, since its partner may already serve newer data. So every `serve` asks the gate last,
//! before the first byte of a reply is written.

use tokio::sync::watch;

/// Asked before a reply leaves. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate(watch::Receiver<bool>);

/// Opens and closes a gate. Dropping it closes the gate for good.
#[derive(Debug)]
pub struct GateControl(watch::Sender<bool>);

/// A gate and its control; closed unless `open`.
#[must_use]
pub fn gate(open: bool) -> (GateControl, Gate) {
    let (sender, receiver) = watch::channel(open);
    (GateControl(sender), Gate(receiver))
}

impl GateControl {
    pub fn set_open(&self, open: bool) {
        self.0.send_replace(open);
    }
}

impl Gate {
    /// Whether a reply may leave now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.has_changed().is_ok() && *self.0.borrow()
    }

    /// Waits until the gate is open; `false` if it never will be.
    pub async fn opened(&self) -> bool {
        self.0.clone().wait_for(|open| *open).await.is_ok()
    }

    /// Waits until the gate is closed.
    pub async fn closed(&self) {
        // A control that is gone has closed it.
        drop(self.0.clone().wait_for(|open| !*open).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_gate_without_its_control_is_closed() {
        let (control, gate) = gate(true);
        assert!(gate.is_open());
        control.set_open(false);
        assert!(!gate.is_open());
        control.set_open(true);
        assert!(gate.opened().await);
        drop(control);
        assert!(!gate.is_open());
    }
}
