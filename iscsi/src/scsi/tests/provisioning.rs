//! UNMAP, WRITE SAME, GET LBA STATUS, SANITIZE.

use std::time::Duration;

use super::bed::*;
use super::table::unmap_list;
use crate::scsi::command::Status;
use portico_backend::image::NewImage;

fn unmap(list: &[u8]) -> Vec<u8> {
    cdb_10(0x42, 0, 0, u16::try_from(list.len()).unwrap())
}

#[tokio::test]
async fn unmapped_blocks_read_as_zeros_and_their_neighbours_as_before() {
    let bed = bed().await;
    let data = pattern(512, 1);
    bed.write(0, &data).await;
    let list = unmap_list(&[(1, 1), (100, 300), (511, 1), (200, 0)]);
    bed.good(&unmap(&list), &list).await;
    let mut expected = data;
    for (first, last) in [(1, 2), (100, 400), (511, 512)] {
        expected[first * BLOCK..last * BLOCK].fill(0);
    }
    assert_eq!(bed.read(0, 512).await, expected);
}

#[tokio::test]
async fn unmap_gives_space_back() {
    let bed = bed().await;
    bed.write(0, &pattern(512, 1)).await;
    let used = || async {
        let store = bed.cluster.session("usage");
        store.usage(&pools().data).await.unwrap().used_bytes
    };
    let before = used().await;
    let list = unmap_list(&[(0, 256)]);
    bed.good(&unmap(&list), &list).await;
    assert!(used().await + 128 * 1_024 <= before);
}

#[tokio::test]
async fn wrong_unmap_lists_do_nothing() {
    let bed = bed().await;
    let data = pattern(64, 1);
    bed.write(0, &data).await;
    let short = unmap_list(&[(0, 8)]);
    let many: Vec<(u64, u32)> = (0..257).map(|lba| (lba, 1)).collect();
    for (list, code) in [
        (unmap_list(&[(0, 8), (BLOCKS, 1)]), OUT_OF_RANGE),
        (unmap_list(&[(0, 8), (u64::MAX, 2)]), OUT_OF_RANGE),
        (unmap_list(&many), INVALID_LIST),
        (short[..7].to_vec(), LIST_LENGTH),
        (short[..23].to_vec(), LIST_LENGTH),
    ] {
        assert_eq!(bed.check(&unmap(&list), &list).await, code);
    }
    let mut anchored = unmap(&short);
    anchored[1] = 1;
    assert_eq!(bed.check(&anchored, &short).await, INVALID_FIELD);
    assert_eq!(bed.check(&unmap(&short), &short[..16]).await, LIST_LENGTH);
    bed.good(&unmap(b""), b"").await;
    for ranges in [&[][..], &[(0, 0)], &[(BLOCKS, 0)], &many[..256]] {
        let list = unmap_list(&ranges.iter().map(|(lba, _)| (*lba, 0)).collect::<Vec<_>>());
        bed.good(&unmap(&list), &list).await;
    }
    assert_eq!(bed.read(0, 64).await, data);
}

#[tokio::test]
async fn an_unmap_is_bounded() {
    let bed = bed_with(NewImage::new("large", 1 << 31, 1_000), Default::default()).await;
    let most = unmap_list(&[(0, 1 << 19), (1 << 19, 1 << 19)]);
    bed.good(&unmap(&most), &most).await;
    let more = unmap_list(&[(0, 1 << 19), (1 << 19, (1 << 19) + 1)]);
    assert_eq!(bed.check(&unmap(&more), &more).await, INVALID_LIST);
}

#[tokio::test]
async fn write_same_repeats_a_block() {
    let bed = bed().await;
    for (seed, count) in [(1_u8, 1_u16), (2, 5), (3, 4_000)] {
        let block = pattern(1, seed);
        bed.good(&cdb_10(0x41, 0, 3, count), &block).await;
        let expected = block.repeat(usize::from(count));
        assert_eq!(bed.read(3, count.into()).await, expected);
        let lba = BLOCKS - u64::from(count);
        bed.good(&cdb_16(0x93, 0, lba, count.into()), &block).await;
        assert_eq!(bed.read(lba, count.into()).await, expected);
    }
    // Data that is not zeros stays, UNMAP or not.
    bed.good(&cdb_16(0x93, 8, 0, 9), &pattern(1, 7)).await;
    assert_eq!(bed.read(0, 9).await, pattern(1, 7).repeat(9));
}

#[tokio::test]
async fn write_same_of_zeros_needs_no_data() {
    for (cdb, data) in [
        (cdb_10(0x41, 0, 1, 300), vec![0; BLOCK]),
        (cdb_10(0x41, 8, 1, 300), vec![0; BLOCK]),
        (cdb_10(0x41, 8, 1, 300), vec![]),
        (cdb_16(0x93, 0, 1, 300), vec![0; BLOCK]),
        (cdb_16(0x93, 8, 1, 300), vec![0; BLOCK]),
        (cdb_16(0x93, 8, 1, 300), vec![]),
        (cdb_16(0x93, 1, 1, 300), vec![]),
        (cdb_16(0x93, 9, 1, 300), vec![]),
    ] {
        let bed = bed().await;
        bed.write(0, &pattern(400, 1)).await;
        bed.good(&cdb, &data).await;
        let mut expected = pattern(400, 1);
        expected[BLOCK..301 * BLOCK].fill(0);
        assert_eq!(bed.read(0, 400).await, expected, "{cdb:x?}");
    }
}

#[tokio::test]
async fn write_same_has_limits() {
    let bed = bed_with(NewImage::new("large", 1 << 30, 1_000), Default::default()).await;
    let block = vec![0; BLOCK];
    for opcode in [0x41, 0x93] {
        let cdb = |flags: u8, lba: u32, count: u16| match opcode {
            0x41 => cdb_10(opcode, flags, lba, count),
            _ => cdb_16(opcode, flags, lba.into(), count.into()),
        };
        // WSNZ, ANCHOR with and without UNMAP, protection, obsolete bits.
        for flags in [0x10, 0x18, 0x20, 0x02, 0x04] {
            assert_eq!(bed.check(&cdb(flags, 0, 1), &block).await, INVALID_FIELD);
        }
        for flags in [0, 8] {
            assert_eq!(bed.check(&cdb(flags, 0, 0), &block).await, INVALID_FIELD);
            for length in [256, 1_024] {
                let data = vec![1; length];
                assert_eq!(bed.check(&cdb(flags, 0, 1), &data).await, WRONG_LENGTH);
            }
            let code = bed.check(&cdb(flags, 1 << 21, 1), &block).await;
            assert_eq!(code, OUT_OF_RANGE);
        }
        assert_eq!(bed.check(&cdb(0, 0, 1), b"").await, WRONG_LENGTH);
    }
    assert_eq!(
        bed.check(&cdb_10(0x41, 1, 0, 1), &block).await,
        INVALID_FIELD
    );
    bed.good(&cdb_16(0x93, 0, 0, 32_768), &block).await;
    let code = bed.check(&cdb_16(0x93, 8, 0, 32_769), &block).await;
    assert_eq!(code, INVALID_FIELD);
}

/// (LBA, blocks, mapped) of each descriptor.
fn statuses(data: &[u8]) -> Vec<(u64, u32, bool)> {
    let length = u32::from_be_bytes(*data.first_chunk().unwrap());
    assert_eq!(usize::try_from(length).unwrap(), data.len() - 4);
    let of = |row: &[u8]| {
        let lba = u64::from_be_bytes(*row.first_chunk().unwrap());
        let count = u32::from_be_bytes(*row[8..].first_chunk().unwrap());
        assert!(row[12] <= 1 && row[13..] == [0; 3]);
        (lba, count, row[12] == 0)
    };
    data[8..].chunks_exact(16).map(of).collect()
}

#[tokio::test]
async fn the_status_of_blocks_covers_the_medium_in_order() {
    let bed = bed().await;
    let all = |from: u64| cdb_16(0x9e, 0x12, from, 4_096);
    let blocks = u32::try_from(BLOCKS).unwrap();
    assert_eq!(statuses(&bed.data(&all(0)).await), [(0, blocks, false)]);
    bed.write(OBJECT_BLOCKS, &pattern(128, 1)).await;
    bed.write(2 * OBJECT_BLOCKS, &pattern(128, 1)).await;
    let expected = [
        (0, 128, false),
        (128, 256, true),
        (384, blocks - 384, false),
    ];
    assert_eq!(statuses(&bed.data(&all(0)).await), expected);
    assert_eq!(statuses(&bed.data(&all(300)).await)[0], (300, 84, true));
    // Room for one descriptor, and for less.
    let one = bed.data(&cdb_16(0x9e, 0x12, 0, 24)).await;
    assert_eq!(statuses(&one), expected[..1]);
    assert_eq!(bed.data(&cdb_16(0x9e, 0x12, 0, 20)).await, one[..20]);
    for lba in [BLOCKS, BLOCKS + 1, 1 << 63, u64::MAX] {
        assert_eq!(bed.check(&all(lba), b"").await, OUT_OF_RANGE);
    }
    let last = statuses(&bed.data(&all(BLOCKS - 1)).await);
    assert_eq!(last, [(BLOCKS - 1, 1, false)]);
    let list = unmap_list(&[(0, blocks)]);
    bed.good(&unmap(&list), &list).await;
    assert_eq!(statuses(&bed.data(&all(0)).await), [(0, blocks, false)]);
}

#[tokio::test]
async fn sanitize_erases_everything() {
    let bed = bed().await;
    bed.write(0, &pattern(256, 1)).await;
    bed.write(BLOCKS - 256, &pattern(256, 2)).await;
    bed.good(&cdb_10(0x48, 2, 0, 0), b"").await;
    let blocks = u32::try_from(BLOCKS).unwrap();
    assert!(bed.read(0, blocks).await.iter().all(|byte| *byte == 0));
    let data = bed.data(&cdb_16(0x9e, 0x12, 0, 256)).await;
    assert_eq!(statuses(&data), [(0, blocks, false)]);
    let code = bed.check(&cdb_10(0x48, 2, 0, 8), &[0; 8]).await;
    assert_eq!(code, INVALID_FIELD);
}

#[tokio::test(start_paused = true)]
async fn sanitize_overwrites_everything() {
    let bed = bed().await;
    bed.write(0, &pattern(256, 1)).await;
    let blocks = u32::try_from(BLOCKS).unwrap();
    for (head, ip) in [
        (1, vec![0xaa; BLOCK]),
        (1, vec![1, 2, 3]),
        (0x83, vec![7]),
        (0x82, vec![7]),
    ] {
        let list = [
            &[head, 0][..],
            &u16::try_from(ip.len()).unwrap().to_be_bytes(),
            &ip,
        ]
        .concat();
        let cdb = cdb_10(0x48, 1, 0, u16::try_from(list.len()).unwrap());
        bed.good(&cdb, &list).await;
        let mut block: Vec<u8> = ip.iter().copied().cycle().take(BLOCK).collect();
        if head == 0x82 {
            block.fill(!7);
        }
        for lba in [0, 5, BLOCKS - 1] {
            assert_eq!(bed.read(lba, 1).await, block);
        }
        assert_eq!(bed.read(0, blocks).await.len(), BLOCK * 16_384);
    }
}

#[tokio::test]
async fn wrong_sanitize_lists_overwrite_nothing() {
    let bed = bed().await;
    bed.write(0, &pattern(1, 1)).await;
    let list = |head: u8, length: u16, bytes: usize| {
        [&[head, 0][..], &length.to_be_bytes(), &vec![9; bytes]].concat()
    };
    for wrong in [
        list(0, 512, 512),
        list(0x20, 512, 512),
        list(1, 0, 4),
        list(1, 5, 4),
        list(1, 516, 4),
    ] {
        let length = u16::try_from(wrong.len()).unwrap();
        let code = bed.check(&cdb_10(0x48, 1, 0, length), &wrong).await;
        assert_eq!(code, INVALID_LIST);
    }
    for length in [0, 1, 4, 517, 65_535] {
        let data = vec![1; length.into()];
        let code = bed.check(&cdb_10(0x48, 1, 0, length), &data).await;
        assert_eq!(code, INVALID_FIELD);
    }
    // Reserved bits, and an end of a failure with a list.
    for at in 1..7 {
        let mut cdb = cdb_10(0x48, 2, 0, 0);
        cdb[at] |= 0x40;
        assert_eq!(bed.check(&cdb, b"").await, INVALID_FIELD, "byte {at}");
    }
    let code = bed.check(&cdb_10(0x48, 0x1f, 0, 8), &[0; 8]).await;
    assert_eq!(code, INVALID_FIELD);
    assert_eq!(bed.read(0, 1).await, pattern(1, 1));
}

#[tokio::test(start_paused = true)]
async fn sanitize_goes_on_without_who_asked_for_it() {
    let new = NewImage::new("large", 1 << 28, 1_000);
    let bed = bed_with(new, Default::default()).await;
    // With IMMED it answers at once; without, a command that is given up ends nothing.
    for immediate in [true, false] {
        let list = [1, 0, 0, 1, 0xaa];
        let flags = if immediate { 0x81 } else { 0x01 };
        let cdb = cdb_10(0x48, flags, 0, 5);
        if immediate {
            bed.good(&cdb, &list).await;
        } else {
            let asked = bed.run(&cdb, &list, 0);
            let gone = tokio::time::timeout(Duration::from_millis(100), asked).await;
            assert!(gone.is_err());
        }
        bed.luns.target_reset();
        bed.luns.nexus_lost(&bed.nexus);
        assert_eq!(bed.check(&[0; 6], b"").await, (6, 0x29, 7));
        for busy in [
            vec![0; 6],
            cdb_10(0x28, 0, 0, 1),
            vec![0x1b, 0, 0, 0, 1, 0],
            cdb.clone(),
        ] {
            assert_eq!(bed.check(&busy, &list).await, (2, 0x04, 0x1b));
        }
        for done in [
            vec![0x12, 0, 0, 0, 96, 0],
            cdb_12(0xa0, 0, 0, 64),
            cdb_12(0xa3, 0x0c, 0, 64),
        ] {
            bed.data(&done).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let sense = bed.data(&[3, 0, 0, 0, 252, 0]).await;
        assert_eq!(
            (sense[2], sense[12], sense[13], sense[15]),
            (2, 0x04, 0x1b, 0x80)
        );
        let progress = u16::from_be_bytes([sense[16], sense[17]]);
        assert!((20_000..60_000).contains(&progress), "{progress}");
        while bed.run(&[0; 6], b"", 0).await.status != Status::Good {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(bed.read((1 << 19) - 1, 1).await, [0xaa; BLOCK]);
    }
}

/// A reset waits until aborted commands have ended.
#[tokio::test(start_paused = true)]
async fn a_reset_ends_who_waits_for_sanitize_and_not_sanitize() {
    let new = NewImage::new("large", 1 << 28, 1_000);
    let bed = bed_with(new, Default::default()).await;
    let list = [1, 0, 0, 1, 0xaa];
    let cdb = cdb_10(0x48, 0x01, 0, 5);
    let reset = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bed.luns.lun_reset(0)
    };
    let (outcome, found) = tokio::join!(bed.run(&cdb, &list, 0), reset);
    assert!(found);
    assert_eq!(outcome.status, Status::TaskAborted);
    assert!(bed.unit().is_sanitizing());
    while bed.unit().is_sanitizing() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bed.settle(&bed.nexus).await;
    assert_eq!(bed.read((1 << 19) - 1, 1).await, [0xaa; BLOCK]);
}
