//! Random block commands beside a plain array of bytes.

use portico_backend::random::Generator;

use super::bed::*;
use super::table::unmap_list;
use crate::scsi::command::Status;

const COMMANDS: u32 = 250;
/// A few objects, so that commands meet.
const SPAN: u64 = 600;

#[tokio::test]
async fn random_commands_do_what_they_do_to_an_array() {
    for seed in 0..6 {
        let bed = bed().await;
        let mut random = Generator::new(seed);
        let mut model = vec![0; usize::try_from(SPAN).unwrap() * BLOCK];
        for step in 0..COMMANDS {
            one(&bed, &mut random, &mut model).await;
            if step % 50 == 0 {
                let all = bed.read(0, u32::try_from(SPAN).unwrap()).await;
                assert!(all == model, "seed {seed}, step {step}");
            }
        }
        let all = bed.read(0, u32::try_from(SPAN).unwrap()).await;
        assert!(all == model, "seed {seed}");
    }
}

async fn one(bed: &Bed, random: &mut Generator, model: &mut [u8]) {
    let lba = random.below(SPAN);
    let count = 1 + random.below((SPAN - lba).min(300));
    let short = u16::try_from(count).unwrap();
    let lba_10 = u32::try_from(lba).unwrap();
    let start = usize::try_from(lba).unwrap() * BLOCK;
    let bytes = usize::from(short) * BLOCK;
    let seed = u8::try_from(random.below(256)).unwrap();
    let data = pattern(usize::from(short), seed);
    let block = pattern(1, seed);
    let there = &mut model[start..start + bytes];
    match random.below(11) {
        0 => {
            bed.good(&cdb_10(0x2a, 0, lba_10, short), &data).await;
            there.copy_from_slice(&data);
        }
        1 => {
            bed.good(&cdb_16(0x8e, 2, lba, short.into()), &data).await;
            there.copy_from_slice(&data);
        }
        2 => {
            bed.good(&cdb_10(0x41, 0, lba_10, short), &block).await;
            there.copy_from_slice(&block.repeat(short.into()));
        }
        3 => {
            bed.good(&cdb_16(0x93, 9, lba, short.into()), b"").await;
            there.fill(0);
        }
        4 => {
            let list = unmap_list(&[(lba, short.into())]);
            bed.good(&cdb_10(0x42, 0, 0, 24), &list).await;
            there.fill(0);
        }
        5 => {
            bed.good(&cdb_16(0x8b, 0, lba, short.into()), &data).await;
            there
                .iter_mut()
                .zip(&data)
                .for_each(|(to, from)| *to |= from);
        }
        6 => compare(bed, lba, &mut there[..BLOCK], (random.chance(500), &block)).await,
        7 => {
            let mut cdb = cdb_16(0x9c, 0, lba, 0);
            cdb[12..14].copy_from_slice(&short.to_be_bytes());
            let outcome = bed.run(&cdb, &data, 0).await;
            let crosses = lba / OBJECT_BLOCKS != (lba + count - 1) / OBJECT_BLOCKS;
            assert_eq!(outcome.status != Status::Good, crosses);
            if !crosses {
                there.copy_from_slice(&data);
            }
        }
        8 => bed.good(&cdb_10(0x2f, 2, lba_10, short), there).await,
        9 => {
            let at = usize::try_from(random.below(bytes as u64)).unwrap();
            let mut wrong = there.to_vec();
            wrong[at] ^= 0x40;
            let outcome = bed.run(&cdb_10(0x2f, 2, lba_10, short), &wrong, 0).await;
            assert_eq!(sense_of(&outcome), MISCOMPARE);
            assert_eq!(usize::try_from(information(&outcome)).unwrap(), at);
        }
        _ => assert_eq!(bed.read(lba, short.into()).await, there),
    }
}

/// COMPARE AND WRITE that finds what it expects, or not.
async fn compare(bed: &Bed, lba: u64, there: &mut [u8], (is_right, new): (bool, &[u8])) {
    let mut cdb = cdb_16(0x89, 0, lba, 0);
    cdb[13] = 1;
    let mut data = [&*there, new].concat();
    if !is_right {
        data[77] ^= 1;
    }
    let outcome = bed.run(&cdb, &data, 0).await;
    if is_right {
        assert_eq!(outcome.status, Status::Good);
        there.copy_from_slice(new);
    } else {
        assert_eq!(
            (sense_of(&outcome), information(&outcome)),
            (MISCOMPARE, 77)
        );
    }
}
