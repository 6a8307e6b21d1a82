//! Opens what a power cut left and compares it with what was acknowledged.

use std::sync::Arc;

use portico_backend::error::chain;
use portico_backend::local::media::Medium;
use portico_backend::local::{LocalOptions, LocalStore, check_on};

use super::disk::{Cuts, Event, Image, Loss, SimDisk};
use super::tiny_options;
use super::workload::{History, digest};

/// What a suite did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Images that were opened and compared.
    pub cut_points: u64,
    /// Of these, cut in the middle of a recovery.
    pub in_recovery: u64,
    /// Stores whose every invariant was verified.
    pub checks: u64,
}

/// How thorough a suite is.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    pub seed: u64,
    /// Random losses at each cut point beside all and nothing.
    pub losses: u64,
    /// Every how many cut points the recovery is cut too.
    pub recovery_every: u64,
    /// Every how many cut points all invariants are verified before and after opening.
    pub check_every: u64,
    pub planted_bug: Option<portico_backend::local::PlantedBug>,
}

/// Cuts the run at every event.
///
/// # Errors
/// What was lost, half applied or refused, with the cut point to find it again.
pub async fn verify_all(history: &History, depth: Depth) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut cuts = Cuts::new(history.initial.clone(), &history.events);
    loop {
        let position = cuts.position();
        let mut losses = vec![Loss::Nothing];
        if cuts.has_pending() {
            losses.push(Loss::Everything);
            let seeds = (0..depth.losses).map(|number| depth.seed ^ (position << 8) ^ number);
            losses.extend(seeds.map(Loss::Some));
        }
        for loss in losses {
            let image = cuts.image(loss);
            let judge = Judge {
                history,
                position,
                options: tiny_options(depth.planted_bug),
            };
            let with_check = position.is_multiple_of(depth.check_every);
            let with_recovery = position.is_multiple_of(depth.recovery_every);
            judge
                .verify(image, with_check, with_recovery, &mut tally)
                .await
                .map_err(|problem| {
                    format!("cut at event {position}, losing {loss:?}: {problem}")
                })?;
        }
        if !cuts.advance() {
            return Ok(tally);
        }
    }
}

/// Opens the disk as it is at the end of a run.
///
/// # Errors
/// As `verify_all`.
pub async fn verify_end(history: &History) -> Result<(), String> {
    let judge = Judge {
        history,
        position: history.events.len() as u64,
        options: tiny_options(None),
    };
    let (_, after) = judge.open_and_compare(history.end.clone()).await?;
    check_image(&after, "after opening")
}

struct Judge<'a> {
    history: &'a History,
    position: u64,
    options: LocalOptions,
}

impl Judge<'_> {
    async fn verify(
        &self,
        image: Image,
        with_check: bool,
        with_recovery: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        if with_check && image.values().any(|file| !file.is_empty()) {
            check_image(&image, "before opening")?;
            tally.checks += 1;
        }
        let before = with_recovery.then(|| image.clone());
        let (events, after) = self.open_and_compare(image).await?;
        tally.cut_points += 1;
        if with_check {
            check_image(&after, "after opening")?;
            tally.checks += 1;
        }
        let Some(before) = before else {
            return Ok(());
        };
        let mut cuts = Cuts::new(before, &events);
        while cuts.advance() {
            let seed = self.position ^ (cuts.position() << 32);
            for loss in [Loss::Nothing, Loss::Some(seed)] {
                let place = cuts.position();
                self.open_and_compare(cuts.image(loss))
                    .await
                    .map_err(|e| format!("recovery cut at event {place}, losing {loss:?}: {e}"))?;
                tally.cut_points += 1;
                tally.in_recovery += 1;
            }
        }
        Ok(())
    }

    /// Gives what opening did to the disk, and the disk after it.
    async fn open_and_compare(&self, image: Image) -> Result<(Vec<Event>, Image), String> {
        let disk = SimDisk::new(image);
        let medium: Arc<dyn Medium> = Arc::<SimDisk>::clone(&disk);
        let store = LocalStore::open_on(&medium, self.options)
            .map_err(|error| format!("opening failed: {}", chain(&error)))?;
        let session = store.session("judge");
        for (object, moments) in &self.history.objects {
            let found = digest(&*session, object)
                .await
                .map_err(|kind| format!("reading {object} gives {kind:?}"))?;
            let stable = moments
                .iter()
                .rposition(|moment| moment.stable <= self.position)
                .unwrap_or(0);
            // What began later can't show; the last stable state can, whenever it began.
            let mut allowed = moments[stable..]
                .iter()
                .enumerate()
                .filter(|(index, moment)| *index == 0 || moment.began < self.position)
                .map(|(_, moment)| moment);
            if !allowed.clone().any(|moment| moment.digest == found) {
                let expected = allowed.next().map_or("", |moment| &moment.what);
                let known = moments.iter().find(|moment| moment.digest == found);
                let known = known.map_or("a state that never was", |moment| &moment.what);
                return Err(format!(
                    "{object} is not as after [{expected}] or later, but as after [{known}]"
                ));
            }
        }
        drop((session, store));
        Ok((disk.events(), disk.image()))
    }
}

/// # Errors
/// The first broken invariant.
pub fn check_image(image: &Image, when: &str) -> Result<(), String> {
    let medium: Arc<dyn Medium> = SimDisk::new(image.clone());
    match check_on(&medium).problems.first() {
        None => Ok(()),
        Some(problem) => Err(format!("check {when}: {problem}")),
    }
}
