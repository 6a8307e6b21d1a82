//! What goes wrong and when: plain options, and the dice that follow them.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::random::Generator;

/// The kinds of calls that faults are set for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CallKind {
    Flush,
    List,
    /// `lock`, `unlock`, `lock_holders`, `lock_break`.
    Lock,
    Notify,
    Read,
    /// `open_session`, `fence`, `may_write`.
    Session,
    Snapshot,
    Usage,
    /// Starting a watch; a lost reply also loses notifications.
    Watch,
    Write,
}

impl CallKind {
    pub const ALL: [Self; 10] = [
        Self::Flush,
        Self::List,
        Self::Lock,
        Self::Notify,
        Self::Read,
        Self::Session,
        Self::Snapshot,
        Self::Usage,
        Self::Watch,
        Self::Write,
    ];
}

/// What happens to calls of one kind. By default nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Faults {
    /// Each call waits from zero to this long before it reaches the store.
    pub delay_max: Duration,
    /// Of 1,000 calls, how many never reach the store: `Unavailable`.
    pub unavailable_per_mille: u16,
    /// Of 1,000 calls, how many the store has no time for: `Busy`.
    pub busy_per_mille: u16,
    /// Of 1,000 calls, how many happen but are answered with `Unavailable`.
    pub lost_reply_per_mille: u16,
}

/// How a session ends for good.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum End {
    /// The process died: later calls are `Unavailable`.
    Crash,
    /// Somebody fenced it: later calls are `Fenced`.
    Fence,
}

/// What goes wrong. Equal options make equal runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FaultyOptions {
    pub seed: u64,
    /// The last entry of a kind counts.
    pub faults: Vec<(CallKind, Faults)>,
    /// The call, counted from 1 over all kinds, with which everything ends. That call itself is
    /// done or not, as the seed decides.
    pub end: Option<(u64, End)>,
}

impl FaultyOptions {
    /// No faults but those that a test asks for.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    #[must_use]
    pub fn with(mut self, kind: CallKind, faults: Faults) -> Self {
        self.faults.push((kind, faults));
        self
    }

    #[must_use]
    pub fn with_all(mut self, faults: Faults) -> Self {
        self.faults.extend(CallKind::ALL.map(|kind| (kind, faults)));
        self
    }

    #[must_use]
    pub fn ending(mut self, at_call: u64, end: End) -> Self {
        self.end = Some((at_call, end));
        self
    }
}

/// What happens to one call that is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Reach,
    Refuse(ErrorKind),
    LoseReply(ErrorKind),
}

#[derive(Debug)]
pub(super) struct Plan {
    options: FaultyOptions,
    random: Generator,
    call_count: u64,
}

impl Plan {
    pub(super) fn new(options: FaultyOptions) -> Self {
        Self {
            random: Generator::new(options.seed),
            options,
            call_count: 0,
        }
    }

    pub(super) fn call_count(&self) -> u64 {
        self.call_count
    }

    pub(super) fn has_ended(&self) -> bool {
        let end = self.options.end;
        end.is_some_and(|(at_call, _)| at_call <= self.call_count)
    }

    /// How long the next call takes to the store and what happens then.
    pub(super) fn decide(&mut self, kind: CallKind) -> Result<(Duration, Fate), Error> {
        self.call_count += 1;
        if let Some((at_call, end)) = self.options.end {
            let error = match end {
                End::Crash => ErrorKind::Unavailable,
                End::Fence => ErrorKind::Fenced,
            };
            if self.call_count > at_call {
                return Err(Error::new(error, "using a session that ended"));
            }
            if self.call_count == at_call {
                return Ok((Duration::ZERO, self.last_fate(error)));
            }
        }
        let faults = self.faults(kind);
        let micros = u64::try_from(faults.delay_max.as_micros()).unwrap_or(u64::MAX - 1);
        let delay = Duration::from_micros(self.random.below(micros + 1));
        let fate = if self.random.chance(faults.unavailable_per_mille) {
            Fate::Refuse(ErrorKind::Unavailable)
        } else if self.random.chance(faults.busy_per_mille) {
            Fate::Refuse(ErrorKind::Busy)
        } else if self.random.chance(faults.lost_reply_per_mille) {
            Fate::LoseReply(ErrorKind::Unavailable)
        } else {
            Fate::Reach
        };
        Ok((delay, fate))
    }

    pub(super) fn loses_notification(&mut self) -> bool {
        let faults = self.faults(CallKind::Watch);
        self.has_ended() || self.random.chance(faults.lost_reply_per_mille)
    }

    fn last_fate(&mut self, error: ErrorKind) -> Fate {
        match self.random.chance(500) {
            true => Fate::LoseReply(error),
            false => Fate::Refuse(error),
        }
    }

    fn faults(&self, kind: CallKind) -> Faults {
        let of_kind = self.options.faults.iter().rev().find(|(of, _)| *of == kind);
        of_kind.map(|(_, faults)| *faults).unwrap_or_default()
    }
}
