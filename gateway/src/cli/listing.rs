//! What commands have in common that list things, or delete one.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::{Client, Target};
use super::table::table;
use super::{output, print_json};
use crate::error::Failure;

/// How one kind of things is listed.
pub(super) struct Listing<P, T, const N: usize> {
    /// Ends in `?`.
    pub(super) path: &'static str,
    /// What a page has, and where the next one begins.
    pub(super) open: fn(P) -> (Vec<T>, Option<String>),
    /// A page of everything.
    pub(super) whole: fn(Vec<T>) -> P,
    pub(super) headings: [&'static str; N],
    pub(super) row: fn(T) -> [String; N],
}

impl<P: DeserializeOwned + Serialize, T, const N: usize> Listing<P, T, N> {
    /// Prints all there is.
    ///
    /// # Errors
    /// What portico says.
    pub(super) async fn print(&self, portico: &Target) -> Result<(), Failure> {
        let all = Client::new(portico)?.list(self.path, self.open).await?;
        if portico.json {
            return print_json(&(self.whole)(all));
        }
        let rows: Vec<_> = all.into_iter().map(self.row).collect();
        output::text(&table(self.headings, &rows))
    }
}

/// Deletes what is there.
///
/// # Errors
/// What portico says.
pub(super) async fn delete(path: &str, portico: &Target) -> Result<(), Failure> {
    Client::new(portico)?.delete(path).await?;
    Ok(())
}
