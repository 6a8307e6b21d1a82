//! What stands between a command and its handler: unit attentions, reservations, missing units,
//! the format of sense data.

use std::sync::Arc;

use super::bed::*;
use crate::scsi::command::Status;
use crate::scsi::{Attention, LunMap, UnitOptions};

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE: [u8; 6] = [0x17, 0, 0, 0, 0, 0];

#[tokio::test]
async fn a_new_nexus_learns_of_power_on_once() {
    let bed = bed().await;
    let other = nexus(2);
    let outcome = bed.by(&other, &INQUIRY, b"", 96).await;
    assert_eq!(outcome.status, Status::Good);
    let outcome = bed.by(&other, &cdb_12(0xa0, 0, 0, 64), b"", 64).await;
    assert_eq!(outcome.status, Status::Good);
    let outcome = bed.by(&other, &cdb_10(0x28, 0, 0, 1), b"", 512).await;
    assert_eq!(
        (sense_of(&outcome), outcome.data_in_bytes),
        ((6, 0x29, 0), 0)
    );
    assert_eq!(bed.by(&other, &READY, b"", 0).await.status, Status::Good);
}

#[tokio::test]
async fn request_sense_tells_and_clears_an_attention() {
    let bed = bed().await;
    let other = nexus(2);
    let ask = |descriptor: u8| vec![3, descriptor, 0, 0, 252, 0];
    let outcome = bed.by(&other, &ask(0), b"", 252).await;
    let sense = outcome.data_in.to_bytes();
    assert_eq!((sense[0], sense[2], sense[12]), (0x70, 6, 0x29));
    let sense = bed.by(&other, &ask(1), b"", 252).await.data_in.to_bytes();
    assert_eq!(sense[..], [0x72, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bed.by(&other, &READY, b"", 0).await.status, Status::Good);
}

#[tokio::test]
async fn a_resize_is_told_to_everybody() {
    let bed = bed().await;
    let other = nexus(2);
    bed.settle(&other).await;
    let unit = bed.unit();
    unit.image().resize(16 * 1_024 * 1_024).await.unwrap();
    for nexus in [&bed.nexus, &other] {
        let outcome = bed.by(nexus, &READY, b"", 0).await;
        assert_eq!(sense_of(&outcome), (6, 0x2a, 0x09));
        assert_eq!(bed.by(nexus, &READY, b"", 0).await.status, Status::Good);
    }
    let capacity = bed.data(&cdb_10(0x25, 0, 0, 0)).await;
    assert_eq!(capacity, [0, 0, 0x7f, 0xff, 0, 0, 2, 0]);
    assert!(bed.read(32_767, 1).await.iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn a_reset_is_told_to_everybody_and_ends_a_reservation() {
    let bed = bed().await;
    let other = nexus(2);
    bed.settle(&other).await;
    for reset in [
        |luns: &LunMap| assert!(luns.lun_reset(0) && !luns.lun_reset(1 << 48)),
        LunMap::target_reset,
    ] {
        bed.good(&RESERVE, b"").await;
        bed.unit().raise(Attention::CapacityChanged);
        reset(&bed.luns);
        for nexus in [&bed.nexus, &other] {
            let outcome = bed.by(nexus, &READY, b"", 0).await;
            assert_eq!(sense_of(&outcome), (6, 0x29, 3));
            assert_eq!(bed.by(nexus, &READY, b"", 0).await.status, Status::Good);
        }
        let outcome = bed.by(&other, &RESERVE, b"", 0).await;
        assert_eq!(outcome.status, Status::Good);
        bed.by(&other, &RELEASE, b"", 0).await;
    }
}

#[tokio::test]
async fn a_reservation_keeps_others_out() {
    let bed = bed().await;
    let other = nexus(2);
    bed.settle(&other).await;
    bed.good(&RESERVE, b"").await;
    bed.good(&RESERVE, b"").await;
    for cdb in [
        &READY[..],
        &RESERVE,
        &cdb_10(0x28, 0, 0, 1),
        &cdb_10(0x2a, 0, 0, 1),
        &[0x1a, 0, 0x3f, 0, 255, 0],
        &cdb_10(0x48, 2, 0, 0),
        &cdb_10(0x25, 0, 0, 0),
    ] {
        let outcome = bed.by(&other, cdb, &pattern(1, 1), 512).await;
        assert_eq!(outcome.status, Status::ReservationConflict, "{cdb:02x?}");
        assert!(outcome.sense.is_empty() && outcome.data_in.is_empty());
    }
    for cdb in [
        &INQUIRY[..],
        &[3, 0, 0, 0, 252, 0],
        &cdb_12(0xa0, 0, 0, 64),
        &cdb_12(0xa3, 0x0c, 0, 64),
        &RELEASE,
    ] {
        let outcome = bed.by(&other, cdb, b"", 252).await;
        assert_eq!(outcome.status, Status::Good, "{cdb:02x?}");
    }
    // The RELEASE of another had no effect.
    let outcome = bed.by(&other, &RESERVE, b"", 0).await;
    assert_eq!(outcome.status, Status::ReservationConflict);
    bed.write(0, &pattern(1, 1)).await;
    bed.good(&RELEASE, b"").await;
    let outcome = bed.by(&other, &RESERVE, b"", 0).await;
    assert_eq!(outcome.status, Status::Good);
    for cdb in [[0x16, 0x10, 0, 0, 0, 0], [0x17, 1, 0, 0, 0, 0]] {
        let outcome = bed.by(&other, &cdb, b"", 0).await;
        assert_eq!(sense_of(&outcome), INVALID_FIELD);
    }
}

#[tokio::test]
async fn the_end_of_a_nexus_ends_its_reservation() {
    let bed = bed().await;
    let other = nexus(2);
    bed.settle(&other).await;
    bed.good(&RESERVE, b"").await;
    bed.luns.nexus_lost(&other);
    let outcome = bed.by(&other, &READY, b"", 0).await;
    assert_eq!(sense_of(&outcome), (6, 0x29, 7));
    let outcome = bed.by(&other, &RESERVE, b"", 0).await;
    assert_eq!(outcome.status, Status::ReservationConflict);
    bed.luns.nexus_lost(&bed.nexus);
    let outcome = bed.by(&other, &RESERVE, b"", 0).await;
    assert_eq!(outcome.status, Status::Good);
    // A reset is told before the conflict, what is only changed after it (SAM-5 5.3.3).
    assert_eq!(bed.check(&READY, b"").await, (6, 0x29, 7));
    bed.unit().raise(Attention::ModeParametersChanged);
    let outcome = bed.run(&READY, b"", 0).await;
    assert_eq!(outcome.status, Status::ReservationConflict);
    bed.by(&other, &READY, b"", 0).await;
    bed.by(&other, &RELEASE, b"", 0).await;
    assert_eq!(bed.check(&READY, b"").await, (6, 0x2a, 1));
}

#[tokio::test]
async fn a_changed_map_is_told_until_the_luns_are_reported() {
    let bed = bed().await;
    bed.luns.changed_for(&bed.nexus);
    assert_eq!(bed.check(&READY, b"").await, (6, 0x3f, 0x0e));
    bed.luns.changed_for(&bed.nexus);
    let data = bed.data(&cdb_12(0xa0, 0, 0, 64)).await;
    assert_eq!(data.len(), 16);
    bed.good(&READY, b"").await;
}

#[tokio::test]
async fn a_lun_without_a_unit_answers_fast_and_counts() {
    let bed = bed().await;
    for lun in [1 << 48, u64::MAX, 0x4001 << 48] {
        let at = |cdb: &'static [u8]| bed.at(lun, &bed.nexus, (cdb, b"", 252));
        let outcome = at(&INQUIRY).await;
        assert_eq!(outcome.status, Status::Good);
        assert_eq!(outcome.data_in.to_bytes()[0], 0x7f);
        assert_eq!(outcome.data_in_bytes, 96);
        let outcome = at(&[0x12, 1, 0, 0, 96, 0]).await;
        assert_eq!(sense_of(&outcome), INVALID_FIELD);
        let sense = at(&[3, 0, 0, 0, 252, 0]).await.data_in.to_bytes();
        assert_eq!((sense[2], sense[12], sense[13]), (5, 0x25, 0));
        let outcome = at(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 252, 0, 0]).await;
        assert_eq!(outcome.data_in_bytes, 16);
        for cdb in [&READY[..], &[0x28], &[0xff]] {
            assert_eq!(sense_of(&at(cdb).await), (5, 0x25, 0), "{cdb:x?}");
        }
    }
    assert_eq!(bed.luns.misses(), 9);
}

#[tokio::test]
async fn luns_are_reported_without_lun_0() {
    let bed = bed().await;
    let unit = bed.unit();
    let luns = LunMap::new(TARGET, [(300, Arc::clone(unit)), (2, Arc::clone(unit))]);
    let bed = Bed { luns, ..bed };
    let report = |select: u8| {
        let mut cdb = cdb_12(0xa0, 0, 0, 64);
        cdb[2] = select;
        cdb
    };
    let mut expected = vec![0, 0, 0, 16, 0, 0, 0, 0];
    expected.extend([0, 2, 0, 0, 0, 0, 0, 0, 0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bed.data(&report(0)).await, expected);
    assert_eq!(bed.data(&report(2)).await, expected);
    assert_eq!(bed.data(&report(1)).await, [0; 8]);
    assert_eq!(bed.check(&report(3), b"").await, INVALID_FIELD);
}

#[tokio::test]
async fn d_sense_chooses_the_format() {
    let bed = bed().await;
    let far = cdb_16(0x88, 0, u64::MAX, 1);
    let outcome = bed.run(&far, b"", 512).await;
    // 64 bits do not fit into the fixed format.
    assert_eq!((outcome.sense[0], outcome.sense.len()), (0x70, 18));
    let mut page = vec![0, 0, 0, 0, 0x0a, 10, 0x06, 0x10, 0, 0];
    page.extend([0, 0, 0xff, 0xff, 0, 0]);
    bed.good(&[0x15, 0x10, 0, 0, 16, 0], &page).await;
    let outcome = bed.run(&far, b"", 512).await;
    let expected = [0x72, 5, 0x21, 0, 0, 0, 0, 12, 0, 10, 0x80, 0];
    assert_eq!(outcome.sense[..12], expected);
    assert_eq!(outcome.sense[12..], [0xff; 8]);
    // A reset makes it as it was.
    bed.unit().reset();
    assert_eq!(bed.run(&READY, b"", 0).await.sense[0], 0x70);
}

/// The way of READ and WRITE is what everybody waits for.
#[tokio::test]
async fn a_command_on_its_way_is_small() {
    let bed = bed_with(new_image("one"), UnitOptions::default()).await;
    let command = crate::scsi::command::Command {
        lun: 0,
        cdb: bytes::Bytes::new(),
        attribute: crate::wire::request::TaskAttribute::Simple,
        data_out: portico_backend::object::Payload::default(),
        data_in_bytes_max: 0,
    };
    let future = crate::scsi::execute(command, &bed.nexus, &bed.luns);
    let bytes = size_of_val(&future);
    assert!(bytes <= 4_096, "{bytes} bytes");
}
