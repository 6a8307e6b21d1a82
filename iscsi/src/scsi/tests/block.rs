//! READ, WRITE, VERIFY and their like.

use portico_backend::image::Image;

use super::bed::*;
use crate::scsi::command::Status;
use crate::scsi::{UnitOptions, WriteCache};

/// READ and WRITE of every length, as (opcode, flags, lba, blocks) -> CDB.
type Maker = fn(u8, u8, u32, u16) -> Vec<u8>;

fn six(opcode: u8, _flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    let [_, high, middle, low] = lba.to_be_bytes();
    let [_, count] = blocks.to_be_bytes();
    vec![opcode, high & 0x1f, middle, low, count, 0]
}

fn twelve(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    cdb_12(opcode, flags, lba, blocks.into())
}

fn sixteen(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    cdb_16(opcode, flags, lba.into(), blocks.into())
}

const READS: [(u8, Maker); 4] = [(0x08, six), (0x28, cdb_10), (0xa8, twelve), (0x88, sixteen)];
const WRITES: [(u8, Maker); 4] = [(0x0a, six), (0x2a, cdb_10), (0xaa, twelve), (0x8a, sixteen)];
const WRITE_VERIFIES: [(u8, Maker); 3] = [(0x2e, cdb_10), (0xae, twelve), (0x8e, sixteen)];
const VERIFIES: [(u8, Maker); 3] = [(0x2f, cdb_10), (0xaf, twelve), (0x8f, sixteen)];

#[tokio::test]
async fn every_write_is_read_by_every_read() {
    let bed = bed().await;
    let mut lba = 100;
    for (seed, (opcode, cdb)) in (1..).zip(WRITES.into_iter().chain(WRITE_VERIFIES)) {
        let data = pattern(200, seed);
        bed.good(&cdb(opcode, 0, lba, 200), &data).await;
        for (opcode, cdb) in READS {
            let read = bed.data(&cdb(opcode, 0, lba, 200)).await;
            assert_eq!(read, data, "{opcode:x}");
        }
        lba += 200;
    }
    assert!(bed.read(0, 100).await.iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn six_bytes_say_256_with_0() {
    let bed = bed().await;
    let data = pattern(256, 9);
    bed.good(&six(0x0a, 0, 7, 0), &data).await;
    assert_eq!(bed.data(&six(0x08, 0, 7, 0)).await, data);
}

#[tokio::test]
async fn ranges_beyond_the_medium_are_refused_with_their_start() {
    let bed = bed().await;
    let end = u32::try_from(BLOCKS).unwrap();
    let both = READS.into_iter().chain(WRITES).chain(VERIFIES);
    for (opcode, cdb) in both.chain(WRITE_VERIFIES) {
        for (lba, count) in [(end, 1), (end - 1, 2), (0x1f_ffff, 1)] {
            let data = pattern(usize::from(count), 1);
            let outcome = bed.run(&cdb(opcode, 0, lba, count), &data, 4_096).await;
            assert_eq!(sense_of(&outcome), OUT_OF_RANGE, "{opcode:x} {lba}");
            assert_eq!(information(&outcome), lba);
        }
    }
    for lba in [u64::MAX, 1 << 63, BLOCKS + 1] {
        for opcode in [0x88, 0x8a, 0x8e, 0x8f, 0x8b, 0x90, 0x91, 0x93] {
            assert_eq!(
                bed.check(&cdb_16(opcode, 0, lba, 0), b"").await,
                OUT_OF_RANGE
            );
        }
    }
}

#[tokio::test]
async fn nothing_moves_with_a_length_of_0() {
    let bed = bed().await;
    for (opcode, cdb) in READS.into_iter().chain(WRITES).chain(VERIFIES).skip(1) {
        if opcode != 0x0a {
            bed.good(&cdb(opcode, 0, 0, 0), b"").await;
        }
    }
}

#[tokio::test]
async fn protection_information_is_refused() {
    let bed = bed().await;
    for (opcode, cdb) in READS.into_iter().chain(WRITES).chain(VERIFIES) {
        if opcode & 0xe0 != 0 {
            for protect in 1..8 {
                let cdb = cdb(opcode, protect << 5, 0, 1);
                assert_eq!(bed.check(&cdb, &pattern(1, 1)).await, INVALID_FIELD);
            }
        }
    }
}

#[tokio::test]
async fn transfers_above_the_limit_are_refused() {
    let new = portico_backend::image::NewImage::new("large", 1 << 30, 1_000);
    let bed = bed_with(new, UnitOptions::default()).await;
    assert_eq!(
        bed.check(&cdb_16(0x88, 0, 0, 32_769), b"").await,
        INVALID_FIELD
    );
    let outcome = bed.run(&cdb_16(0x88, 0, 0, 32_768), b"", 512).await;
    assert_eq!((outcome.status, outcome.data_in.len()), (Status::Good, 512));
    assert_eq!(outcome.data_in_bytes, 16 * 1_024 * 1_024);
}

/// An initiator that has room for less gets less, and is told what there was; one that announced
/// less gets as much written.
#[tokio::test]
async fn residuals_follow_the_cdb() {
    let bed = bed().await;
    bed.write(0, &pattern(2, 1)).await;
    for (blocks, room, moved) in [(1, 0, 0), (1, 10_000, 512), (1, 200, 200), (2, 512, 512)] {
        let outcome = bed.run(&cdb_10(0x28, 0, 0, blocks), b"", room).await;
        assert_eq!(outcome.status, Status::Good);
        assert_eq!(outcome.data_in_bytes, u64::from(blocks) * 512);
        assert_eq!(outcome.data_in.to_bytes(), &pattern(2, 1)[..moved]);
    }
    for (opcode, cdb) in WRITES.into_iter().chain(WRITE_VERIFIES).skip(1) {
        bed.write(0, &pattern(2, 1)).await;
        for (blocks, sent, good) in [
            (1, 0, true),
            (2, 512, true),
            (1, 1_024, true),
            (1, 200, false),
        ] {
            bed.write(0, &pattern(2, 1)).await;
            let sent = &pattern(2, 2)[..sent];
            let outcome = bed.run(&cdb(opcode, 2, 0, blocks), sent, 0).await;
            assert_eq!(outcome.data_out_bytes, u64::from(blocks) * 512);
            assert_eq!(
                outcome.status == Status::Good,
                good,
                "{opcode:x} {outcome:?}"
            );
            let taken = if good { sent.len().min(512) } else { 0 };
            let expected = [&pattern(2, 2)[..taken], &pattern(2, 1)[taken..]].concat();
            assert_eq!(bed.read(0, 2).await, expected, "{opcode:x}");
            if !good {
                assert_eq!(sense_of(&outcome), WRONG_LENGTH);
            }
        }
    }
}

#[tokio::test]
async fn verify_compares_all_or_one_or_nothing() {
    let bed = bed().await;
    bed.write(0, &pattern(4, 1)).await;
    for (opcode, cdb) in VERIFIES {
        bed.good(&cdb(opcode, 0, 0, 4), b"").await;
        bed.good(&cdb(opcode, 0x12, 0, 4), &pattern(4, 1)).await;
        let mut wrong = pattern(4, 1);
        wrong[1_300] ^= 1;
        let outcome = bed.run(&cdb(opcode, 2, 0, 4), &wrong, 0).await;
        assert_eq!(sense_of(&outcome), MISCOMPARE);
        assert_eq!(information(&outcome), 1_300);
        assert_eq!(bed.check(&cdb(opcode, 4, 0, 4), b"").await, INVALID_FIELD);
        // One block for all.
        bed.write(8, &pattern(1, 3).repeat(4)).await;
        bed.good(&cdb(opcode, 6, 8, 4), &pattern(1, 3)).await;
        bed.good(&cdb(opcode, 6, 8, 0), b"").await;
        let outcome = bed.run(&cdb(opcode, 6, 7, 4), &pattern(1, 3), 0).await;
        assert_eq!(sense_of(&outcome), MISCOMPARE);
        assert_eq!(bed.check(&cdb(opcode, 6, 8, 4), b"").await, WRONG_LENGTH);
    }
}

#[tokio::test]
async fn write_and_verify_knows_two_ways_to_verify() {
    let bed = bed().await;
    for (opcode, cdb) in WRITE_VERIFIES {
        for flags in [0, 2, 0x12] {
            bed.good(&cdb(opcode, flags, 0, 2), &pattern(2, flags))
                .await;
            assert_eq!(bed.read(0, 2).await, pattern(2, flags));
        }
        for flags in [4, 6] {
            let code = bed.check(&cdb(opcode, flags, 0, 2), &pattern(2, 9)).await;
            assert_eq!(code, INVALID_FIELD);
        }
    }
}

#[tokio::test]
async fn prefetch_and_synchronize_cover_ranges_of_the_medium() {
    let bed = bed().await;
    for (ten, sixteen) in [(0x34, 0x90), (0x35, 0x91)] {
        let end = u32::try_from(BLOCKS).unwrap();
        for (lba, count) in [(0, 0), (0, 1), (end - 1, 1), (end, 0)] {
            for flags in [0, 2, 4] {
                bed.good(&cdb_10(ten, flags, lba, count), b"").await;
                let cdb = cdb_16(sixteen, flags, lba.into(), count.into());
                bed.good(&cdb, b"").await;
            }
        }
        let code = bed.check(&cdb_10(ten, 0, end, 1), b"").await;
        assert_eq!(code, OUT_OF_RANGE);
    }
}

/// The data of the unit after the machine lost its power.
async fn after_a_crash(bed: &Bed) -> Vec<u8> {
    bed.cluster.crash();
    let store = bed.cluster.session("after");
    let image = Image::open(store, &pools(), "one").await.unwrap();
    image.read(0, 1_024).await.unwrap().to_bytes().to_vec()
}

/// VMFS never flushes: without a cache, every kind of write is stable when it is GOOD.
#[tokio::test]
async fn without_a_cache_every_write_is_durable() {
    let all = WRITES.into_iter().chain(WRITE_VERIFIES);
    for (opcode, cdb) in all.chain([(0x8b, sixteen as Maker), (0x9c, atomic), (0x93, same)]) {
        let bed = bed().await;
        let data = if opcode == 0x93 { 1 } else { 2 };
        bed.good(&cdb(opcode, 0, 0, 2), &pattern(1, 5).repeat(data))
            .await;
        let expected = pattern(1, 5).repeat(2);
        assert_eq!(after_a_crash(&bed).await, expected, "{opcode:x}");
    }
}

fn atomic(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    let mut cdb = cdb_16(opcode, flags, lba.into(), 0);
    cdb[12..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn same(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
    cdb_16(opcode, flags, lba.into(), blocks.into())
}

fn cached() -> UnitOptions {
    UnitOptions {
        write_cache: WriteCache::On,
        ..UnitOptions::default()
    }
}

#[tokio::test]
async fn with_a_cache_a_write_waits_for_its_flush() {
    let zeros = vec![0; 1_024];
    let data = pattern(2, 5);
    for (opcode, cdb) in WRITES.into_iter().chain([(0x8b, sixteen as Maker)]) {
        let bed = bed_with(new_image("one"), cached()).await;
        bed.good(&cdb(opcode, 0, 0, 2), &data).await;
        assert_eq!(after_a_crash(&bed).await, zeros, "{opcode:x}");
        if opcode != 0x0a {
            let bed = bed_with(new_image("one"), cached()).await;
            bed.good(&cdb(opcode, 8, 0, 2), &data).await;
            assert_eq!(after_a_crash(&bed).await, data, "FUA of {opcode:x}");
        }
    }
    for flush in [
        cdb_10(0x35, 0, 0, 0),
        cdb_16(0x91, 0, 0, 0),
        vec![0x1b, 0, 0, 0, 0, 0],
        cdb_10(0x28, 8, 0, 2),
        cdb_10(0x2e, 0, 0, 0),
    ] {
        let bed = bed_with(new_image("one"), cached()).await;
        bed.write(0, &data).await;
        bed.run(&flush, b"", 1_024).await;
        let is_flushed = flush[0] != 0x2e;
        let expected = if is_flushed { &data } else { &zeros };
        assert_eq!(&after_a_crash(&bed).await, expected, "{:x}", flush[0]);
    }
    // What verifies is stable in any case.
    let bed = bed_with(new_image("one"), cached()).await;
    bed.good(&cdb_10(0x2e, 0, 0, 2), &data).await;
    assert_eq!(after_a_crash(&bed).await, data);
}

#[tokio::test]
async fn or_write_sets_bits() {
    let bed = bed().await;
    bed.write(0, &[0xa0; 1_024]).await;
    bed.good(&cdb_16(0x8b, 0x18, 0, 2), &[0x05; 1_024]).await;
    assert_eq!(bed.read(0, 2).await, [0xa5; 1_024]);
    bed.good(&cdb_16(0x8b, 0, 0, 0), b"").await;
    let code = bed.check(&cdb_16(0x8b, 0x20, 0, 1), &[0; 512]).await;
    assert_eq!(code, INVALID_FIELD);
}

fn compare(lba: u64, blocks: u8) -> Vec<u8> {
    let mut cdb = cdb_16(0x89, 0, lba, 0);
    cdb[13] = blocks;
    cdb
}

#[tokio::test]
async fn compare_and_write_says_where_it_differs() {
    let bed = bed().await;
    bed.write(5, &[b'A'; 512]).await;
    let halves = |old: u8, new: u8| [[old; 512], [new; 512]].concat();
    bed.good(&compare(5, 1), &halves(b'A', b'B')).await;
    assert_eq!(bed.read(5, 1).await, [b'B'; 512]);
    for at in [0, 1, 255, 510, 511] {
        let mut data = halves(b'B', b'C');
        data[usize::try_from(at).unwrap()] = b'Z';
        let outcome = bed.run(&compare(5, 1), &data, 0).await;
        assert_eq!(sense_of(&outcome), MISCOMPARE);
        assert_eq!(information(&outcome), at);
        assert_eq!(bed.read(5, 1).await, [b'B'; 512]);
    }
    // Nothing was ever written here.
    let outcome = bed.run(&compare(99, 1), &halves(b'%', b'B'), 0).await;
    assert_eq!((sense_of(&outcome), information(&outcome)), (MISCOMPARE, 0));
    bed.good(&compare(99, 1), &halves(0, b'B')).await;
}

#[tokio::test]
async fn compare_and_write_takes_one_block_and_both_halves() {
    let bed = bed().await;
    bed.good(&compare(0, 0), b"").await;
    for count in [2, 255] {
        let data = vec![0; usize::from(count) * 1_024];
        assert_eq!(bed.check(&compare(0, count), &data).await, INVALID_FIELD);
    }
    for length in [0, 512, 1_023, 1_025, 2_048] {
        let code = bed.check(&compare(0, 1), &vec![0; length]).await;
        assert_eq!(code, WRONG_LENGTH, "{length}");
    }
    let code = bed.check(&compare(BLOCKS, 1), &[0; 1_024]).await;
    assert_eq!(code, OUT_OF_RANGE);
    let mut protected = compare(0, 1);
    protected[1] = 0x20;
    assert_eq!(bed.check(&protected, &[0; 1_024]).await, INVALID_FIELD);
}

#[tokio::test]
async fn write_atomic_stays_within_an_object() {
    let bed = bed().await;
    let object = u16::try_from(OBJECT_BLOCKS).unwrap();
    for (lba, count) in [(0, 1), (0, object), (100, 28), (u32::from(object), object)] {
        let data = pattern(usize::from(count), 7);
        bed.good(&atomic(0x9c, 0x18, lba, count), &data).await;
        assert_eq!(bed.read(lba.into(), count.into()).await, data);
    }
    for (lba, count) in [(100, 29), (0, object + 1)] {
        let data = pattern(usize::from(count), 8);
        let code = bed.check(&atomic(0x9c, 0, lba, count), &data).await;
        assert_eq!(code, INVALID_FIELD);
    }
    bed.good(&atomic(0x9c, 0, 0, 0), b"").await;
    let end = u32::try_from(BLOCKS).unwrap();
    let code = bed.check(&atomic(0x9c, 0, end - 1, 1_000), b"").await;
    assert_eq!(code, OUT_OF_RANGE);
    let mut boundary = atomic(0x9c, 0, 0, 8);
    boundary[11] = 4;
    assert_eq!(bed.check(&boundary, &pattern(8, 1)).await, INVALID_FIELD);
    // Half of it is no atomic write.
    let code = bed.check(&atomic(0x9c, 0, 0, 2), &pattern(1, 1)).await;
    assert_eq!(code, WRONG_LENGTH);
}
