//! The command window (RFC 7143 section 4.2.2.1): order of commands, and the only back-pressure.
//!
//! A place in the window is a permit for the unsolicited data of one command, so `MaxCmdSN` goes up
//! only after those bytes are reserved, and never down.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use portico_backend::budget::Permit;

use crate::limits::{HELD_PDUS_MAX, WINDOW_IDLE, WINDOW_MAX};
use crate::wire::serial::Serial;

/// Numbers of commands, places for them, and what came before its turn.
#[derive(Debug)]
pub(super) struct Window<T> {
    exp_cmd_sn: Serial,
    places: VecDeque<Permit>,
    held: BTreeMap<u32, Option<T>>,
}

/// What becomes of a command that arrived.
#[derive(Debug)]
pub(super) enum Arrival<T> {
    /// It is its turn; the permit of its place.
    Now(T, Option<Permit>),
    /// Commands before it are missing.
    Later,
    /// Outside of the window, or a second one of its number: ignored.
    Never,
}

impl<T> Window<T> {
    pub(super) fn new(exp_cmd_sn: Serial) -> Self {
        Self {
            exp_cmd_sn,
            places: VecDeque::new(),
            held: BTreeMap::new(),
        }
    }

    pub(super) fn exp_cmd_sn(&self) -> Serial {
        self.exp_cmd_sn
    }

    pub(super) fn max_cmd_sn(&self) -> Serial {
        let places = u32::try_from(self.places.len()).expect("at most WINDOW_MAX");
        Serial(self.exp_cmd_sn.0.wrapping_add(places).wrapping_sub(1))
    }

    pub(super) fn contains(&self, number: Serial) -> bool {
        number.is_within(self.exp_cmd_sn, self.max_cmd_sn())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.places.is_empty()
    }

    /// How many more places are wanted with so many commands in work: half as many again, so that a
    /// busy initiator finds room and an idle one keeps little. As many would not do: who sends as
    /// much as it may and is answered at once would never get more.
    pub(super) fn places_wanted(&self, in_work: usize) -> usize {
        let wanted = (in_work + in_work / 2)
            .max(WINDOW_IDLE)
            .min(WINDOW_MAX.saturating_sub(in_work));
        wanted.saturating_sub(self.places.len())
    }

    pub(super) fn add_place(&mut self, permit: Permit) {
        self.places.push_back(permit);
    }

    pub(super) fn arrive(&mut self, number: Serial, command: T) -> Arrival<T> {
        if !self.contains(number) {
            return Arrival::Never;
        }
        if number == self.exp_cmd_sn {
            return Arrival::Now(command, self.advance());
        }
        if self.held.contains_key(&number.0) || self.held.len() == HELD_PDUS_MAX {
            return Arrival::Never;
        }
        self.held.insert(number.0, Some(command));
        Arrival::Later
    }

    /// The command whose turn it is, if it came before.
    pub(super) fn next(&mut self) -> Option<(T, Option<Permit>)> {
        while let Some(held) = self.held.remove(&self.exp_cmd_sn.0) {
            let permit = self.advance();
            // A number that was cancelled is passed over.
            if let Some(command) = held {
                return Some((command, permit));
            }
        }
        None
    }

    /// Takes a number that never comes, or has come and is held, as done (section 11.5.1). `false`
    /// if it is outside of the window.
    pub(super) fn cancel(&mut self, number: Serial) -> bool {
        if !self.contains(number) {
            return false;
        }
        self.held.insert(number.0, None);
        true
    }

    /// Removes what a connection left behind: its numbers count as done.
    pub(super) fn cancel_where(&mut self, is_gone: impl Fn(&T) -> bool) {
        for held in self.held.values_mut() {
            if held.as_ref().is_some_and(&is_gone) {
                *held = None;
            }
        }
    }

    /// Gives all places back: nothing is taken any more.
    pub(super) fn close(&mut self) {
        self.places.clear();
        self.held.clear();
    }

    fn advance(&mut self) -> Option<Permit> {
        self.exp_cmd_sn = self.exp_cmd_sn.next();
        self.places.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use portico_backend::budget::Budget;

    use super::*;

    fn window(places: usize) -> Window<u32> {
        let budget = Budget::new(1 << 20);
        let mut window = Window::new(Serial(u32::MAX));
        for _ in 0..places {
            window.add_place(budget.try_take(1).unwrap());
        }
        window
    }

    #[test]
    fn commands_are_taken_in_order_and_only_from_the_window() {
        let mut window = window(3);
        assert_eq!(window.max_cmd_sn(), Serial(1));
        assert!(matches!(window.arrive(Serial(2), 2), Arrival::Never));
        assert!(matches!(window.arrive(Serial(1), 1), Arrival::Later));
        assert!(matches!(window.arrive(Serial(1), 9), Arrival::Never));
        assert!(window.next().is_none());
        assert!(matches!(
            window.arrive(Serial(u32::MAX), 7),
            Arrival::Now(7, Some(_))
        ));
        assert!(window.next().is_none());
        assert!(matches!(window.arrive(Serial(u32::MAX), 7), Arrival::Never));
        assert!(matches!(
            window.arrive(Serial(0), 0),
            Arrival::Now(0, Some(_))
        ));
        assert!(matches!(window.next(), Some((1, Some(_)))));
        assert!(window.is_closed());
        assert_eq!(window.max_cmd_sn(), Serial(1));
        assert_eq!(window.exp_cmd_sn(), Serial(2));
    }

    #[test]
    fn a_cancelled_number_is_passed_over() {
        let mut window = window(4);
        assert!(matches!(window.arrive(Serial(0), 0), Arrival::Later));
        assert!(matches!(window.arrive(Serial(2), 2), Arrival::Later));
        assert!(window.cancel(Serial(0)) && window.cancel(Serial(1)));
        assert!(!window.cancel(Serial(3)));
        assert!(matches!(
            window.arrive(Serial(u32::MAX), 7),
            Arrival::Now(7, _)
        ));
        assert!(matches!(window.next(), Some((2, Some(_)))));
    }

    #[test]
    fn busy_sessions_get_more_places() {
        let window = window(2);
        assert_eq!(window.places_wanted(0), WINDOW_IDLE - 2);
        assert_eq!(window.places_wanted(40), 58);
        assert_eq!(
            window.places_wanted(WINDOW_IDLE),
            WINDOW_IDLE + WINDOW_IDLE / 2 - 2
        );
        assert_eq!(window.places_wanted(WINDOW_MAX - 3), 1);
        assert_eq!(window.places_wanted(WINDOW_MAX), 0);
    }
}
