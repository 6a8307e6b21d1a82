//! Damage of a closed store: found and named, never served.

use std::sync::Arc;

use portico_backend::error::ErrorKind;
use portico_backend::local::media::{FileName, Medium};
use portico_backend::local::{LocalStore, PlantedBug, check_on};
use portico_backend::random::Generator;

use super::disk::SimDisk;
use super::tiny_options;
use super::workload::{History, digest};

/// What became of the flips in one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlipTally {
    pub flips: u64,
    /// The store was not opened, or a read answered `Corrupt`.
    pub refused: u64,
    /// `check` named it.
    pub named: u64,
}

/// Flips bits of one file, one place at a time, and reads everything.
///
/// # Errors
/// Wrong data that was served, or damage that was met and that `check` does not name.
pub async fn flip(
    history: &History,
    file: FileName,
    count: u64,
    planted_bug: Option<PlantedBug>,
) -> Result<FlipTally, String> {
    let mut random = Generator::new(count);
    let mut tally = FlipTally::default();
    let len = history.end.get(&file).map_or(0, Vec::len) as u64;
    if len == 0 {
        return Ok(tally);
    }
    for _ in 0..count {
        let at = random.below(len);
        let mut image = history.end.clone();
        let bytes = image.entry(file).or_default();
        let target = &mut bytes[usize::try_from(at).expect("in memory")];
        *target ^= 1 << random.below(8);
        let check_disk: Arc<dyn Medium> = SimDisk::new(image.clone());
        let is_named = !check_on(&check_disk).is_clean();
        let disk: Arc<dyn Medium> = SimDisk::new(image);
        let place = format!("{} byte {at}", file.path());
        let is_refused = match LocalStore::open_on(&disk, tiny_options(planted_bug)) {
            Err(error) if error.kind() == ErrorKind::Corrupt => true,
            Err(error) => return Err(format!("{place}: opening gives {error}")),
            Ok(store) => read_all(history, &store, &place).await?,
        };
        if is_refused && !is_named {
            return Err(format!("{place}: met, but not named by check"));
        }
        tally.flips += 1;
        tally.refused += u64::from(is_refused);
        tally.named += u64::from(is_named);
    }
    Ok(tally)
}

/// Whether a read was refused.
async fn read_all(history: &History, store: &Arc<LocalStore>, place: &str) -> Result<bool, String> {
    let session = store.session("flips");
    let mut is_refused = false;
    for (object, moments) in &history.objects {
        let expected = moments.last().and_then(|moment| moment.digest);
        match digest(&*session, object).await {
            Ok(found) if found == expected => {}
            Ok(_) => return Err(format!("{place}: wrong data of {object} was served")),
            // After damage of the base all of it is refused until it is opened again.
            Err(ErrorKind::Corrupt | ErrorKind::Unavailable) => is_refused = true,
            Err(kind) => return Err(format!("{place}: reading {object} gives {kind:?}")),
        }
    }
    Ok(is_refused)
}
