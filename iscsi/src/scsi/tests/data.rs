//! What a unit says of itself: INQUIRY, READ CAPACITY, MODE, LOG, diagnostics.

use std::sync::Arc;

use bytes::Bytes;

use super::bed::*;
use crate::scsi::command::Status;
use crate::scsi::{LunMap, UnitOptions, WriteCache};
use portico_backend::image::{Image, NewImage};

fn vpd(page: u8) -> Vec<u8> {
    vec![0x12, 1, page, 0x01, 0x00, 0]
}

fn word(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*data[at..].first_chunk().unwrap())
}

#[tokio::test]
async fn standard_inquiry_data() {
    let bed = bed().await;
    let data = bed.data(&[0x12, 0, 0, 1, 4, 0]).await;
    assert_eq!(data[..8], [0, 0, 6, 0x12, 91, 0, 0x10, 2]);
    assert_eq!(&data[8..32], b"PORTICO Volume          ");
    assert_eq!(&data[32..36], b"0.1 ");
    assert_eq!(data[36..58], [0; 22]);
    assert_eq!(data[58..66], [0, 0xa0, 9, 0x60, 4, 0x60, 4, 0xc0]);
    assert_eq!((&data[66..], data.len()), (&[0; 30][..], 96));
    for length in [0, 5, 36, 95, 96, 255] {
        let short = bed.data(&[0x12, 0, 0, 0, length, 0]).await;
        assert_eq!(short, data[..data.len().min(length.into())]);
    }
    assert_eq!(bed.check(&[0x12, 0, 1, 0, 96, 0], b"").await, INVALID_FIELD);
}

#[tokio::test]
async fn supported_vpd_pages_are_there() {
    let bed = bed().await;
    let data = bed.data(&vpd(0)).await;
    let pages = [0, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];
    assert_eq!(data, [&[0, 0, 0, 7][..], &pages].concat());
    for page in 0..=255 {
        if pages.contains(&page) {
            let data = bed.data(&vpd(page)).await;
            let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
            assert_eq!((data[0], data[1], length), (0, page, data.len() - 4));
        } else {
            assert_eq!(bed.check(&vpd(page), b"").await, INVALID_FIELD);
        }
    }
}

/// (code set, association and kind, name) of each designator.
fn designators(mut data: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let mut all = Vec::new();
    while let [set, kind, 0, length, rest @ ..] = data {
        let (name, behind) = rest.split_at(usize::from(*length));
        all.push((*set, *kind, name.to_vec()));
        data = behind;
    }
    assert!(data.is_empty());
    all
}

#[tokio::test]
async fn names_are_those_of_the_image_port_and_target() {
    let bed = bed().await;
    let identity = bed.unit().image().identity().clone();
    let serial = bed.data(&vpd(0x80)).await;
    assert_eq!(&serial[4..], identity.serial.as_bytes());
    let all = designators(&bed.data(&vpd(0x83)).await[4..]);
    let vendor = [b"PORTICO ", identity.serial.as_bytes()].concat();
    let port = b"iqn.2026-01.test:target,t,0x0001\0\0\0\0".to_vec();
    let target = b"iqn.2026-01.test:target\0".to_vec();
    let expected = vec![
        (0x51, 0x03, identity.naa.0.to_vec()),
        (0x52, 0x01, vendor),
        (0x51, 0x94, vec![0, 0, 0, 1]),
        (0x51, 0x95, vec![0, 0, 0, 1]),
        (0x53, 0x98, port),
        (0x53, 0xa8, target),
    ];
    assert_eq!(all, expected);
    assert_eq!(identity.naa.0[0] >> 4, 6);
    // Another port says the same of the unit.
    let far = crate::scsi::NexusId {
        target_portal: 0x0102,
        ..nexus(1)
    };
    bed.settle(&far).await;
    let data = bed.by(&far, &vpd(0x83), b"", 512).await.data_in.to_bytes();
    let others = designators(&data[4..]);
    assert_eq!(others[..2], expected[..2]);
    assert_eq!(others[2].2, [0, 0, 1, 2]);
}

#[tokio::test]
async fn names_stay_over_a_reopening() {
    let bed = bed().await;
    let before = bed.data(&vpd(0x83)).await;
    let store = bed.cluster.session("after");
    let image = Image::open(store, &pools(), "one").await.unwrap();
    let unit = crate::scsi::Unit::new(image, UnitOptions::default());
    let luns = LunMap::new(TARGET, [(0, Arc::new(unit))]);
    let bed = Bed { luns, ..bed };
    bed.settle(&bed.nexus).await;
    assert_eq!(bed.data(&vpd(0x83)).await, before);
}

#[tokio::test]
async fn block_limits_are_in_blocks() {
    for (block_bytes, per_block) in [(512, 1), (4_096, 8)] {
        let new = NewImage {
            block_bytes,
            ..NewImage::new("one", 1 << 30, 1_000)
        };
        let bed = bed_with(new, UnitOptions::default()).await;
        let data = bed.data(&vpd(0xb0)).await;
        let physical = 8 / u8::try_from(per_block).unwrap();
        assert_eq!(data[..8], [0, 0xb0, 0, 0x3c, 1, 1, 0, physical]);
        let expected = [
            32_768,
            2_048,
            0,
            1 << 20,
            0,
            128,
            0,
            0,
            32_768,
            2_048,
            0,
            0,
            0,
            0,
        ];
        for (index, blocks) in expected.into_iter().enumerate() {
            let expected = match index {
                4 => 256,
                6 => 1 << 31,
                _ => blocks / per_block,
            };
            assert_eq!(word(&data, 8 + 4 * index), expected, "field {index}");
        }
    }
    // Smaller objects bound what is atomic.
    let data = bed().await.data(&vpd(0xb0)).await;
    assert_eq!(word(&data, 44), 128);
}

#[tokio::test]
async fn other_pages_of_block_devices() {
    let bed = bed().await;
    let data = bed.data(&vpd(0xb1)).await;
    assert_eq!((&data[4..8], data.len()), (&[0, 1, 0, 0x40][..], 64));
    assert_eq!(bed.data(&vpd(0xb2)).await, [0, 0xb2, 0, 4, 0, 0xe4, 2, 0]);
    let data = bed.data(&vpd(0x86)).await;
    assert_eq!((&data[4..9], data.len()), (&[0, 7, 0, 1, 0][..], 64));
    let cached = bed_with(new_image("two"), cache()).await;
    assert_eq!(cached.data(&vpd(0x86)).await[6], 1);
}

fn cache() -> UnitOptions {
    UnitOptions {
        write_cache: WriteCache::On,
        ..UnitOptions::default()
    }
}

#[tokio::test]
async fn capacity_in_both_lengths() {
    let bed = bed().await;
    let data = bed.data(&cdb_10(0x25, 0, 0, 0)).await;
    assert_eq!(data, [0, 0, 0x3f, 0xff, 0, 0, 2, 0]);
    let mut expected = vec![0, 0, 0, 0, 0, 0, 0x3f, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0];
    expected.resize(32, 0);
    for length in [0, 1, 15, 16, 31, 32, 33] {
        let data = bed.data(&cdb_16(0x9e, 0x10, 0, length)).await;
        assert_eq!(data, expected[..expected.len().min(length as usize)]);
    }
    assert_eq!(bed.check(&cdb_10(0x25, 0, 1, 0), b"").await, INVALID_FIELD);
    let mut partial = cdb_10(0x25, 0, 0, 0);
    partial[8] = 1;
    assert_eq!(bed.check(&partial, b"").await, INVALID_FIELD);
    let code = bed.check(&cdb_16(0x9e, 0x10, 9, 32), b"").await;
    assert_eq!(code, INVALID_FIELD);
}

#[tokio::test]
async fn a_unit_beyond_2_tib_has_capacity_in_64_bits() {
    let new = NewImage::new("large", 1 << 46, 1_000);
    let options = UnitOptions {
        physical_block_bytes: 512,
        ..UnitOptions::default()
    };
    let bed = bed_with(new, options).await;
    let data = bed.data(&cdb_10(0x25, 0, 0, 0)).await;
    assert_eq!(data, [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
    let data = bed.data(&cdb_16(0x9e, 0x10, 0, 32)).await;
    let last = [0, 0, 0, 0x1f, 0xff, 0xff, 0xff, 0xff];
    assert_eq!((&data[..8], data[13]), (&last[..], 0));
    let end = (1 << 37) - 2;
    bed.write(end, &pattern(2, 3)).await;
    assert_eq!(bed.read(end, 2).await, pattern(2, 3));
    assert_eq!(bed.check(&cdb_16(0x88, 0, end, 3), b"").await, OUT_OF_RANGE);
    let data = bed.data(&[0x1a, 0, 0x0a, 0, 255, 0]).await;
    assert_eq!(data[4..12], [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
    let mut long = cdb_10(0x5a, 0x10, 0x0a00_0000, 255);
    let data = bed.data(&long).await;
    assert_eq!(data[4..8], [1, 0, 0, 16]);
    assert_eq!(data[8..16], [0, 0, 0, 0x20, 0, 0, 0, 0]);
    assert_eq!(data[16..24], [0, 0, 0, 0, 0, 0, 2, 0]);
    long[1] = 0x18;
    assert_eq!(bed.data(&long).await[4..8], [1, 0, 0, 0]);
}

#[tokio::test]
async fn there_are_no_defects() {
    let bed = bed().await;
    let mut ten = cdb_10(0x37, 0, 0, 32);
    ten[2] = 0x1d;
    assert_eq!(bed.data(&ten).await, [0, 0x1d, 0, 0]);
    let data = bed.data(&cdb_12(0xb7, 0x0d, 0, 32)).await;
    assert_eq!(data, [0, 0x0d, 0, 0, 0, 0, 0, 0]);
}

const CONTROL: [u8; 12] = [0x0a, 10, 2, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0];

#[tokio::test]
async fn mode_pages_alone_and_together() {
    let bed = bed().await;
    let ask = |page: u8, length: u8| vec![0x1a, 0, page, 0, length, 0];
    let all = bed.data(&ask(0x3f, 255)).await;
    let header = [67, 0, 0x10, 8, 0, 0, 0x40, 0, 0, 0, 2, 0];
    assert_eq!((&all[..12], all.len()), (&header[..], 68));
    let codes: Vec<u8> = [12, 24, 44, 56].iter().map(|at| all[*at]).collect();
    assert_eq!(codes, [0x01, 0x08, 0x0a, 0x1c]);
    assert_eq!(all[44..56], CONTROL);
    assert_eq!(all[24..28], [8, 18, 0, 0]);
    assert_eq!(bed.data(&ask(0x3f, 4)).await, all[..4]);
    let control = bed.data(&ask(0x0a, 255)).await;
    assert_eq!((control[0], &control[12..]), (23, &CONTROL[..]));
    let mut subpages = ask(0x3f, 255);
    subpages[3] = 0xff;
    assert_eq!(bed.data(&subpages).await, all);
    // Without block descriptor, in both lengths.
    let data = bed.data(&[0x1a, 8, 0x0a, 0, 255, 0]).await;
    assert_eq!(data, [&[15, 0, 0x10, 0][..], &CONTROL].concat());
    let data = bed.data(&cdb_10(0x5a, 8, 0x0a00_0000, 255)).await;
    let header = [0, 18, 0, 0x10, 0, 0, 0, 0];
    assert_eq!(data, [&header[..], &CONTROL].concat());
    for (page, subpage) in [(2, 0), (0x0a, 1), (0x3f, 1), (0, 0)] {
        let cdb = [0x1a, 0, page, subpage, 255, 0];
        assert_eq!(bed.check(&cdb, b"").await, INVALID_FIELD);
    }
}

#[tokio::test]
async fn page_control_asks_for_other_values() {
    let bed = bed().await;
    let ask = |control: u8, page: u8| vec![0x1a, 8, (control << 6) | page, 0, 255, 0];
    let changeable = bed.data(&ask(1, 0x0a)).await;
    assert_eq!(changeable[4..], [10, 10, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bed.data(&ask(1, 8)).await[4..7], [8, 18, 0]);
    bed.good(&select(16), &with_control(6, 8)).await;
    assert_eq!(bed.data(&ask(0, 0x0a)).await[4..9], [10, 10, 6, 0x10, 8]);
    assert_eq!(bed.data(&ask(2, 0x0a)).await[4..], CONTROL);
    assert_eq!(bed.check(&ask(3, 0x0a), b"").await, (5, 0x39, 0));
    let cached = bed_with(new_image("two"), cache()).await;
    for (control, byte) in [(0, 4), (1, 4), (2, 4)] {
        assert_eq!(cached.data(&ask(control, 8)).await[4..7], [8, 18, byte]);
    }
}

fn select(length: u8) -> Vec<u8> {
    vec![0x15, 0x10, 0, 0, length, 0]
}

/// A list with the control page, these in its bytes 2 and 4.
fn with_control(sense: u8, protect: u8) -> Vec<u8> {
    let mut page = CONTROL;
    (page[2], page[4]) = (sense, protect);
    [&[0; 4][..], &page].concat()
}

#[tokio::test]
async fn software_write_protect_is_set_and_told_to_others() {
    let bed = bed().await;
    let other = nexus(2);
    bed.settle(&other).await;
    bed.good(&select(16), &with_control(2, 8)).await;
    let outcome = bed.by(&other, &[0; 6], b"", 0).await;
    assert_eq!(sense_of(&outcome), (6, 0x2a, 1));
    bed.good(&[0; 6], b"").await;
    let write = cdb_10(0x2a, 0, 0, 1);
    assert_eq!(bed.check(&write, &pattern(1, 1)).await, (7, 0x27, 2));
    bed.read(0, 1).await;
    assert_eq!(bed.data(&[0x1a, 8, 0x0a, 0, 255, 0]).await[2], 0x90);
    bed.good(&select(16), &with_control(2, 0)).await;
    bed.good(&write, &pattern(1, 1)).await;
    bed.settle(&other).await;
    // Nothing changed: nobody is told.
    bed.good(&select(16), &with_control(2, 0)).await;
    let outcome = bed.by(&other, &[0; 6], b"", 0).await;
    assert_eq!(outcome.status, Status::Good);
}

/// What the image `one` holds from its beginning on.
async fn after_a_crash(bed: &Bed, blocks: u64) -> Bytes {
    bed.cluster.crash();
    let store = bed.cluster.session("after");
    let image = Image::open(store, &pools(), "one").await.unwrap();
    image.read(0, blocks * 512).await.unwrap().to_bytes()
}

/// A list with the caching page, WCE as given.
fn with_cache(cache: u8) -> Vec<u8> {
    [&[0, 0, 0, 0, 8, 18, cache][..], &[0; 17]].concat()
}

#[tokio::test]
async fn what_the_unit_is_offered_as_changes_while_it_is_used() {
    let bed = bed_with(new_image("one"), cache()).await;
    let changed = (6, 0x2a, 1);
    bed.unit().set_write_protected(true);
    assert_eq!(bed.check(&READY, b"").await, changed);
    let write = cdb_10(0x2a, 0, 0, 1);
    assert_eq!(bed.check(&write, &pattern(1, 1)).await, (7, 0x27, 0));
    assert_eq!(bed.data(&[0x1a, 8, 0x0a, 0, 255, 0]).await[2], 0x90);
    bed.unit().set_write_protected(false);
    bed.unit().set_write_protected(false);
    assert_eq!(bed.check(&READY, b"").await, changed);
    bed.write(0, &pattern(1, 1)).await;
    bed.unit().set_write_cache(WriteCache::Off).await.unwrap();
    assert_eq!(bed.check(&READY, b"").await, changed);
    assert_eq!(bed.data(&[0x1a, 8, 8, 0, 255, 0]).await[4..7], [8, 18, 0]);
    assert_eq!(bed.check(&select(24), &with_cache(4)).await, INVALID_LIST);
    assert_eq!(after_a_crash(&bed, 1).await, pattern(1, 1));
}

#[tokio::test]
async fn the_cache_is_switched_only_where_that_is_allowed() {
    let bed = bed().await;
    assert_eq!(bed.check(&select(24), &with_cache(4)).await, INVALID_LIST);
    bed.good(&select(24), &with_cache(0)).await;
    let bed = bed_with(new_image("one"), cache()).await;
    bed.write(0, &pattern(1, 1)).await;
    bed.good(&select(24), &with_cache(0)).await;
    // What was in the cache is stable.
    assert_eq!(after_a_crash(&bed, 1).await, pattern(1, 1));
}

#[tokio::test]
async fn wrong_mode_lists_set_nothing() {
    let bed = bed().await;
    let good = with_control(6, 8);
    let changed = |at: usize, byte: u8| {
        let mut list = good.clone();
        list[at] = byte;
        list
    };
    for (list, code) in [
        (changed(3, 9), INVALID_LIST),
        (changed(3, 8), INVALID_LIST),
        (changed(4, 0x8a), INVALID_LIST),
        (changed(4, 2), INVALID_LIST),
        (changed(5, 9), INVALID_LIST),
        (changed(7, 0), INVALID_LIST),
        (good[..3].to_vec(), LIST_LENGTH),
        (good[..5].to_vec(), LIST_LENGTH),
        (good[..15].to_vec(), LIST_LENGTH),
        ([&good[..], &[0x1c]].concat(), LIST_LENGTH),
        ([&good[..], &[0x1c, 10]].concat(), LIST_LENGTH),
    ] {
        let length = u8::try_from(list.len()).unwrap();
        assert_eq!(bed.check(&select(length), &list).await, code, "{list:?}");
    }
    // Less came than the CDB says.
    assert_eq!(bed.check(&select(17), &good).await, LIST_LENGTH);
    for flags in [0, 1, 0x11] {
        let cdb = [0x15, flags, 0, 0, 16, 0];
        assert_eq!(bed.check(&cdb, &good).await, INVALID_FIELD);
    }
    assert_eq!(bed.data(&[0x1a, 8, 0x0a, 0, 255, 0]).await[4..], CONTROL);
    // The block descriptor as MODE SENSE gave it, and with another block.
    let mut list = bed.data(&[0x1a, 0, 0x0a, 0, 255, 0]).await;
    (list[0], list[2]) = (0, 0);
    bed.good(&select(24), &list).await;
    list[10] = 16;
    assert_eq!(bed.check(&select(24), &list).await, INVALID_LIST);
    let mut long = bed.data(&cdb_10(0x5a, 0x10, 0x0a00_0000, 255)).await;
    (long[1], long[3]) = (0, 0);
    bed.good(&cdb_10(0x55, 0x10, 0, 36), &long).await;
}

#[tokio::test]
async fn logs_name_the_pages_there_are() {
    let bed = bed().await;
    let ask = |page: u8, subpage: u8| {
        let mut cdb = cdb_10(0x4d, 0, 0, 255);
        (cdb[2], cdb[3]) = (page, subpage);
        cdb
    };
    assert_eq!(bed.data(&ask(0x40, 0)).await, [0, 0, 0, 1, 0]);
    let data = bed.data(&ask(0x40, 0xff)).await;
    assert_eq!(data, [0x40, 0xff, 0, 4, 0, 0, 0, 0xff]);
    for (page, subpage) in [(0x40, 1), (0x4c, 0), (0x4d, 0)] {
        assert_eq!(bed.check(&ask(page, subpage), b"").await, INVALID_FIELD);
    }
    let mut saving = ask(0x40, 0);
    saving[1] = 1;
    assert_eq!(bed.check(&saving, b"").await, INVALID_FIELD);
}

#[tokio::test]
async fn diagnostics_pass_by_default() {
    let bed = bed().await;
    bed.good(&[0x1d, 0x04, 0, 0, 0, 0], b"").await;
    bed.good(&[0x1d, 0x10, 0, 0, 4, 0], &[0; 4]).await;
    for code in 1..8 {
        let cdb = [0x1d, code << 5, 0, 0, 0, 0];
        assert_eq!(bed.check(&cdb, b"").await, INVALID_FIELD);
    }
    let send = |length: u8| [0x1d, 0x10, 0, 0, length, 0];
    assert_eq!(bed.check(&send(4), &[1, 0, 0, 0]).await, INVALID_LIST);
    assert_eq!(bed.check(&send(5), &[0; 5]).await, LIST_LENGTH);
    assert_eq!(bed.check(&send(5), &[0; 4]).await, LIST_LENGTH);
    let data = bed.data(&[0x1c, 1, 0, 0, 255, 0]).await;
    assert_eq!(data, [0, 0, 0, 1, 0]);
    assert_eq!(
        bed.check(&[0x1c, 1, 9, 0, 255, 0], b"").await,
        INVALID_FIELD
    );
}

#[tokio::test]
async fn nothing_can_be_ejected() {
    let bed = bed().await;
    for byte in [0x00, 0x01, 0x04, 0x05, 0x10, 0x32] {
        bed.good(&[0x1b, 0, 0, 0, byte, 0], b"").await;
    }
    for byte in [0x02, 0x03] {
        let cdb = [0x1b, 0, 0, 0, byte, 0];
        assert_eq!(bed.check(&cdb, b"").await, INVALID_FIELD);
    }
}
