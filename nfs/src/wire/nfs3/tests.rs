//! NFSv3 beside the standard, beside another encoder, and listings beside their bounds.

mod bounds;
mod listing;
mod other;
