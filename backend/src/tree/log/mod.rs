//! The log of a tree: a change is logged, which commits it, and applied to the objects later.
//!
//! `docs/tree-format.md` says what lies where and what must hold.

pub(super) mod apply;
mod commit;
pub(super) mod overlay;
pub(super) mod record;
mod recover;
pub(super) mod state;
