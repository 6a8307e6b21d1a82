//! SETATTR (RFC 1813 section 3.3.2).

use super::{Done, early, encode};
use crate::filesystem::Around;
use crate::op::admit::Ask;
use crate::wire::nfs3::Results;
use crate::wire::nfs3::attributes::{SetAttributes, SetTime};
use crate::wire::nfs3::change::{SetAttr, SetAttrDone};
use crate::wire::nfs3::data::FileFailed;
use crate::wire::nfs3::status::{Outcome, Status};

pub(super) async fn setattr(ask: &Ask<'_>, arguments: SetAttr) -> Done<SetAttrDone, FileFailed> {
    let target = ask.admit_change(&arguments.object).map_err(early)?;
    check_times(&arguments.attributes).map_err(early)?;
    let done = |around: &Around| SetAttrDone {
        wcc: (*around).into(),
    };
    let encode = |around: &Around| encode(&Results::SetAttr(Outcome::Done(done(around))));
    let set = target
        .file_system()
        .setattr(
            &target.caller,
            target.id,
            arguments.attributes,
            arguments.guard,
            ask.keep(&encode),
        )
        .await;
    match set {
        Ok(around) => Ok(done(&around)),
        Err(error) => Err((
            error.into(),
            FileFailed {
                wcc: target.wcc().await,
            },
        )),
    }
}

/// Of everything that takes attributes.
pub(super) fn check_times(attributes: &SetAttributes) -> Result<(), Status> {
    let is_valid = |time| match time {
        SetTime::DontChange | SetTime::ToServerTime => true,
        SetTime::ToClientTime(time) => time.is_valid(),
    };
    match is_valid(attributes.atime) && is_valid(attributes.mtime) {
        true => Ok(()),
        false => Err(Status::Invalid),
    }
}
