//! Who asks, and what a logical unit remembers of everybody who ever asked.
//!
//! Unit attentions belong to an I_T nexus (SAM-5 5.14), and so does the reservation that RESERVE(6)
//! takes.

use std::collections::HashMap;

use super::limits::NEXUSES_MAX;
use super::sense::{Code, Sense, SenseKey};

/// An I_T nexus (RFC 7143 section 4.4.3): it outlives its connections.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NexusId {
    /// The initiator's iSCSI name.
    pub initiator: String,
    pub isid: [u8; 6],
    /// The relative target port identifier.
    pub target_portal: u16,
}

/// What an initiator learns before its next command is done. In the order in which it learns.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Attention {
    /// The nexus is new to the unit.
    PowerOn,
    UnitReset,
    NexusLoss,
    ModeParametersChanged,
    CapacityChanged,
    InquiryDataChanged,
    LunsChanged,
}

impl Attention {
    #[must_use]
    pub fn sense(self) -> Sense {
        let code = match self {
            Self::PowerOn => Code::POWER_ON_OR_RESET,
            Self::UnitReset => Code::UNIT_RESET,
            Self::NexusLoss => Code::NEXUS_LOSS,
            Self::ModeParametersChanged => Code::MODE_PARAMETERS_CHANGED,
            Self::CapacityChanged => Code::CAPACITY_CHANGED,
            Self::InquiryDataChanged => Code::INQUIRY_DATA_CHANGED,
            Self::LunsChanged => Code::LUNS_CHANGED,
        };
        Sense::new(SenseKey::UnitAttention, code)
    }

    /// Whether it says that everything began anew. It is told before a reservation conflict, and
    /// what changed before it is not worth telling (SAM-5 5.3.3, 5.14.3).
    #[must_use]
    pub fn is_reset(self) -> bool {
        matches!(self, Self::PowerOn | Self::UnitReset | Self::NexusLoss)
    }
}

/// What the unit keeps of one nexus.
#[derive(Clone, Debug)]
pub(super) struct Nexus {
    /// In ascending order, each once.
    pending: Vec<Attention>,
    /// The size of the unit when the nexus last asked.
    size_bytes: u64,
    /// Counts losses over all nexuses; 0 while the nexus is in use.
    lost: u64,
}

impl Nexus {
    fn new(size_bytes: u64) -> Self {
        Self {
            pending: vec![Attention::PowerOn],
            size_bytes,
            lost: 0,
        }
    }

    fn raise(&mut self, attention: Attention) {
        if attention.is_reset() {
            self.pending.clear();
        }
        if let Err(at) = self.pending.binary_search(&attention) {
            self.pending.insert(at, attention);
        }
    }

    /// The one to be told next.
    pub(super) fn first(&self) -> Option<Attention> {
        self.pending.first().copied()
    }

    /// Takes the one that was told away.
    pub(super) fn clear(&mut self, told: Attention) {
        self.pending.retain(|pending| *pending != told);
    }
}

/// Every nexus that the unit knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Nexuses {
    known: HashMap<NexusId, Nexus>,
    losses: u64,
}

impl Nexuses {
    /// The nexus that asks; a new one starts with `PowerOn`. A size that differs from what it saw
    /// last raises `CapacityChanged`.
    pub(super) fn asks(&mut self, id: &NexusId, size_bytes: u64) -> &mut Nexus {
        if !self.known.contains_key(id) {
            self.make_room();
            self.known.insert(id.clone(), Nexus::new(size_bytes));
        }
        let nexus = self.known.get_mut(id).expect("it is there or was inserted");
        nexus.lost = 0;
        if nexus.size_bytes != size_bytes {
            nexus.size_bytes = size_bytes;
            nexus.raise(Attention::CapacityChanged);
        }
        nexus
    }

    /// Raises it for all that are known, but not for `except`.
    pub(super) fn raise(&mut self, attention: Attention, except: Option<&NexusId>) {
        for (id, nexus) in &mut self.known {
            if Some(id) != except {
                nexus.raise(attention);
            }
        }
    }

    /// Raises it for one, if it is known: a new one begins with `PowerOn`, which says it all.
    pub(super) fn raise_for(&mut self, id: &NexusId, attention: Attention) {
        if let Some(nexus) = self.known.get_mut(id) {
            nexus.raise(attention);
        }
    }

    pub(super) fn clear(&mut self, id: &NexusId, told: Attention) {
        if let Some(nexus) = self.known.get_mut(id) {
            nexus.clear(told);
        }
    }

    pub(super) fn lost(&mut self, id: &NexusId) {
        self.losses += 1;
        if let Some(nexus) = self.known.get_mut(id) {
            nexus.raise(Attention::NexusLoss);
            nexus.lost = self.losses;
        }
    }

    fn make_room(&mut self) {
        if self.known.len() < NEXUSES_MAX {
            return;
        }
        // A nexus in use is forgotten only if none is lost: it then hears of a reset in vain.
        let rank = |nexus: &Nexus| match nexus.lost {
            0 => u64::MAX,
            lost => lost,
        };
        let oldest = self.known.iter().min_by_key(|(_, nexus)| rank(nexus));
        if let Some(id) = oldest.map(|(id, _)| id.clone()) {
            self.known.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> NexusId {
        NexusId {
            initiator: "iqn.2026-01.test:initiator".to_owned(),
            isid: [0, 0, 0, 0, 0, number],
            target_portal: 1,
        }
    }

    fn told(nexuses: &mut Nexuses, id: &NexusId, size_bytes: u64) -> Vec<Attention> {
        let nexus = nexuses.asks(id, size_bytes);
        let mut all = Vec::new();
        while let Some(attention) = nexus.first() {
            nexus.clear(attention);
            all.push(attention);
        }
        all
    }

    #[test]
    fn attentions_come_in_order_and_once() {
        let mut nexuses = Nexuses::default();
        assert_eq!(told(&mut nexuses, &id(1), 8), [Attention::PowerOn]);
        nexuses.raise(Attention::LunsChanged, None);
        nexuses.raise(Attention::ModeParametersChanged, None);
        nexuses.raise(Attention::LunsChanged, None);
        let expected = [
            Attention::ModeParametersChanged,
            Attention::CapacityChanged,
            Attention::LunsChanged,
        ];
        assert_eq!(told(&mut nexuses, &id(1), 16), expected);
        assert_eq!(told(&mut nexuses, &id(1), 16), []);
    }

    #[test]
    fn a_reset_replaces_what_came_before() {
        let mut nexuses = Nexuses::default();
        assert_eq!(told(&mut nexuses, &id(1), 8), [Attention::PowerOn]);
        nexuses.raise(Attention::CapacityChanged, None);
        nexuses.raise(Attention::UnitReset, None);
        nexuses.raise(Attention::LunsChanged, None);
        let expected = [Attention::UnitReset, Attention::LunsChanged];
        assert_eq!(told(&mut nexuses, &id(1), 8), expected);
    }

    #[test]
    fn who_comes_back_learns_of_the_loss() {
        let mut nexuses = Nexuses::default();
        assert_eq!(told(&mut nexuses, &id(1), 8), [Attention::PowerOn]);
        nexuses.lost(&id(1));
        nexuses.lost(&id(2));
        assert_eq!(told(&mut nexuses, &id(1), 8), [Attention::NexusLoss]);
        assert_eq!(told(&mut nexuses, &id(2), 8), [Attention::PowerOn]);
    }

    #[test]
    fn who_changed_something_is_not_told() {
        let mut nexuses = Nexuses::default();
        told(&mut nexuses, &id(1), 8);
        told(&mut nexuses, &id(2), 8);
        nexuses.raise(Attention::ModeParametersChanged, Some(&id(1)));
        assert_eq!(told(&mut nexuses, &id(1), 8), []);
        let expected = [Attention::ModeParametersChanged];
        assert_eq!(told(&mut nexuses, &id(2), 8), expected);
    }

    #[test]
    fn the_nexus_that_was_lost_first_makes_room() {
        let mut nexuses = Nexuses::default();
        let nth = |number: usize| NexusId {
            target_portal: u16::try_from(number).unwrap(),
            ..id(0)
        };
        for number in 0..NEXUSES_MAX {
            told(&mut nexuses, &nth(number), 8);
        }
        nexuses.lost(&nth(7));
        nexuses.lost(&nth(3));
        told(&mut nexuses, &nth(NEXUSES_MAX), 8);
        assert_eq!(nexuses.known.len(), NEXUSES_MAX);
        assert!(!nexuses.known.contains_key(&nth(7)) && nexuses.known.contains_key(&nth(3)));
    }
}
