use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::memory::{MemoryCluster, MemoryOptions};
use crate::object::{Durability, ListCursor, Payload, ReadOp, ReadStep, Usage, WriteOp, WriteStep};

const KIB: u64 = 1_024;

fn pools() -> ImagePools {
    ImagePools {
        data: Pool::new("data", ""),
        meta: Pool::new("meta", ""),
    }
}

fn cluster() -> MemoryCluster {
    MemoryCluster::new(MemoryOptions::default())
}

/// Objects of 16 KiB, striped over two by 8 KiB.
fn small(name: &str, size_bytes: u64) -> NewImage {
    NewImage {
        object_size: 16 * 1_024,
        stripe_unit: 8 * 1_024,
        stripe_count: 2,
        ..NewImage::new(name, size_bytes, 1_000)
    }
}

async fn image(store: &Arc<dyn ObjectStore>, new: &NewImage) -> Image {
    Image::create(&**store, &pools(), new).await.unwrap();
    open(store, &new.name).await.unwrap()
}

async fn open(store: &Arc<dyn ObjectStore>, name: &str) -> Result<Image, Error> {
    Image::open(Arc::clone(store), &pools(), name).await
}

fn filled(length: u64, byte: u8) -> Bytes {
    Bytes::from(vec![byte; usize::try_from(length).unwrap()])
}

async fn write(image: &Image, offset: u64, data: Bytes) -> Result<(), Error> {
    image
        .write(offset, Payload::from(data), Durability::Durable)
        .await
}

async fn content(image: &Image) -> Vec<u8> {
    let all = image.read(0, image.size_bytes()).await.unwrap();
    all.to_bytes().to_vec()
}

fn mark(initiator: &str) -> CompareMark {
    CompareMark {
        initiator: Arc::from(initiator),
        lba: 8,
    }
}

async fn swap(image: &Image, expect: u8, data: u8, initiator: &str) -> Result<(), Error> {
    let (expect, data) = (filled(512, expect), filled(512, data));
    image
        .compare_and_write(4_096, expect, data, mark(initiator))
        .await
}

#[tokio::test]
async fn what_is_written_reads_back_across_objects_and_holes_are_zeros() {
    let store = cluster().session("a");
    let image = image(&store, &small("one", 100 * KIB)).await;
    let mut expected = vec![0; 100 * 1_024];
    for (offset, length, byte) in [
        (5_000, 40_000, 1),
        (0, 1, 2),
        (102_399, 1, 3),
        (20_000, 10, 4),
    ] {
        write(&image, offset, filled(length, byte)).await.unwrap();
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
        expected[range].fill(byte);
    }
    assert!(content(&image).await == expected);
    let cached = image.try_read_cached(4_990, 40_020).unwrap().unwrap();
    assert!(cached.to_bytes() == expected[4_990..45_010]);
    let beyond = write(&image, 102_399, filled(2, 0)).await.unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::TooLarge);
    assert!(image.read(u64::MAX, 2).await.is_err());
}

/// A deletion that went on late finds the name with another image.
#[tokio::test]
async fn removing_an_image_by_id_leaves_another_one_of_its_name() {
    let store = cluster().session("a");
    let new = small("disk", 64 * KIB);
    let gone = Image::create(&*store, &pools(), &new).await.unwrap();
    Image::remove(&*store, &pools(), "disk").await.unwrap();
    let other = Image::create(&*store, &pools(), &new).await.unwrap();
    let removed = Image::remove_id(&*store, &pools(), "disk", &gone.id).await;
    removed.unwrap();
    let found = Image::stat(&*store, &pools(), "disk").await.unwrap();
    assert_eq!(found.id, other.id);
    let listed = Image::list(&*store, &pools()).await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&other));
    Image::remove_id(&*store, &pools(), "disk", &other.id)
        .await
        .unwrap();
    assert_eq!(Image::list(&*store, &pools()).await.unwrap(), []);
}

#[tokio::test]
async fn names_are_taken_once_and_listed_and_free_after_removal() {
    let store = cluster().session("a");
    let new = small("disk 1", 64 * KIB);
    let opened = image(&store, &new).await;
    write(&opened, 0, filled(64 * KIB, 9)).await.unwrap();
    let again = Image::create(&*store, &pools(), &new).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let listed = Image::list(&*store, &pools()).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].name, &*listed[0].id), ("disk 1", opened.id()));

    let busy = Image::remove(&*store, &pools(), "disk 1")
        .await
        .unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    opened.close().await.unwrap();
    Image::remove(&*store, &pools(), "disk 1").await.unwrap();
    let gone = Image::remove(&*store, &pools(), "disk 1")
        .await
        .unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    for pool in [pools().data, pools().meta] {
        let left = store.list(&pool, ListCursor::start(), 100).await.unwrap();
        let kept = ["rbd_directory", "portico_naa"].map(ObjectName::new);
        assert!(
            left.names.iter().all(|name| kept.contains(name)),
            "{left:?}"
        );
    }
    assert!(content(&image(&store, &new).await).await == vec![0; 64 * 1_024]);
}

#[tokio::test]
async fn what_makes_no_image_is_refused() {
    let store = cluster().session("a");
    let good = small("x", 64 * KIB);
    let bad = [
        NewImage {
            name: "a/b".to_owned(),
            ..good.clone()
        },
        NewImage {
            name: String::new(),
            ..good.clone()
        },
        NewImage {
            size_bytes: 0,
            ..good.clone()
        },
        NewImage {
            size_bytes: 1_000,
            ..good.clone()
        },
        NewImage {
            size_bytes: IMAGE_BYTES_MAX + 4_096,
            ..good.clone()
        },
        NewImage {
            object_size: 24 * 1_024,
            ..good.clone()
        },
        NewImage {
            object_size: 64 << 20,
            ..good.clone()
        },
        NewImage {
            stripe_unit: 512,
            ..good.clone()
        },
        NewImage {
            stripe_count: 0,
            ..good.clone()
        },
        NewImage {
            block_bytes: 1_024,
            ..good.clone()
        },
    ];
    for new in bad {
        let error = Image::create(&*store, &pools(), &new).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{new:?}");
    }
    assert_eq!(Image::list(&*store, &pools()).await.unwrap(), []);
}

#[tokio::test]
async fn zeroing_is_exact_and_gives_space_back() {
    let store = cluster().session("a");
    let image = image(&store, &NewImage::new("z", 16 << 20, 0)).await;
    write(&image, 0, filled(16 << 20, 7)).await.unwrap();
    let used = |usage: Usage| usage.used_bytes;
    let full = used(store.usage(&pools().data).await.unwrap());
    image.discard(64 * KIB, 64 * KIB).await.unwrap();
    assert_eq!(
        used(store.usage(&pools().data).await.unwrap()),
        full - 64 * KIB
    );
    image.discard(4 << 20, 4 << 20).await.unwrap();
    let data = pools().data;
    let names = store.list(&data, ListCursor::start(), 100);
    let count = |prefix: &str, names: &[ObjectName]| {
        names
            .iter()
            .filter(|name| name.prefix().starts_with(prefix))
            .count()
    };
    assert_eq!(count("rbd_data.", &names.await.unwrap().names), 3);
    image.discard(8_000_000, 1_000).await.unwrap();
    image
        .zero(9_000_001, 999, Durability::Buffered)
        .await
        .unwrap();
    let mut expected = vec![7; 16 << 20];
    for range in [65_536..131_072, 4 << 20..8 << 20, 9_000_001..9_001_000] {
        expected[range].fill(0);
    }
    expected[8_000_000..8_001_000].fill(0);
    assert!(content(&image).await == expected);
}

async fn data_objects(store: &Arc<dyn ObjectStore>) -> Vec<u64> {
    let data = pools().data;
    let page = store.list(&data, ListCursor::start(), 1_000).await;
    let names = page.unwrap().names;
    let of_images = names
        .iter()
        .filter(|name| name.prefix().starts_with("rbd_data."));
    let mut numbers: Vec<u64> = of_images.filter_map(ObjectName::number).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn discarding_what_was_never_written_makes_nothing() {
    let store = cluster().session("a");
    for new in [small("s", 256 * KIB), NewImage::new("z", 16 << 20, 0)] {
        let image = image(&store, &new).await;
        for (offset, length) in [(0, 256 * KIB), (4 * KIB, 4 * KIB), (12 * KIB, 8 * KIB)] {
            image.discard(offset, length).await.unwrap();
            image
                .zero(offset, length, Durability::Buffered)
                .await
                .unwrap();
        }
        assert_eq!(data_objects(&store).await, Vec::<u64>::new());
        assert!(content(&image).await.iter().all(|byte| *byte == 0));
    }
}

#[tokio::test]
async fn objects_of_a_striped_image_go_when_all_of_them_is_discarded() {
    let store = cluster().session("a");
    let image = image(&store, &small("s", 128 * KIB)).await;
    write(&image, 0, filled(128 * KIB, 7)).await.unwrap();
    assert_eq!(data_objects(&store).await, [0, 1, 2, 3, 4, 5, 6, 7]);
    let mut expected = vec![7; 128 * 1_024];
    let mut discard = async |offset: u64, length: u64| {
        image.discard(offset, length).await.unwrap();
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
        expected[range].fill(0);
        assert!(content(&image).await == expected, "{length} at {offset}");
    };
    // All of 2 and 3, and a part of 0, 1, 4 and 5.
    discard(20 * KIB, 50 * KIB).await;
    assert_eq!(data_objects(&store).await, [0, 1, 4, 5, 6, 7]);
    // All of 6, half of 7.
    discard(96 * KIB, 24 * KIB).await;
    assert_eq!(data_objects(&store).await, [0, 1, 4, 5, 7]);
    discard(0, 128 * KIB).await;
    assert_eq!(data_objects(&store).await, Vec::<u64>::new());
}

/// A note of the same content may be another's: who lost a race takes back its own alone.
#[tokio::test]
async fn who_lost_a_race_leaves_the_note_of_another_shrinking() {
    let store = cluster().session("a");
    let image = image(&store, &small("r", 64 * KIB)).await;
    let (place, claim) = (&image.shared.place, &image.shared.claim);
    let noted = async || {
        facts::read(&*store, &place.facts())
            .await
            .unwrap()
            .trim_from
    };
    let own = resize::note_trim(&*store, place, 64 * KIB, Some(claim))
        .await
        .unwrap();
    // Whoever serves the image finds it and clears it; then another one begins.
    image.shared.trim_if_noted().await.unwrap();
    let other = resize::note_trim(&*store, place, 64 * KIB, None)
        .await
        .unwrap();
    resize::take_back(&*store, place, own, Some(claim))
        .await
        .unwrap();
    assert_eq!(noted().await, Some(64 * KIB));
    resize::take_back(&*store, place, other, None)
        .await
        .unwrap();
    assert_eq!(noted().await, None);
}

#[tokio::test]
async fn the_allocation_tells_holes_from_data() {
    let store = cluster().session("a");
    let image = image(&store, &NewImage::new("m", 64 << 20, 0)).await;
    write(&image, 10 << 20, filled(128 * KIB, 1)).await.unwrap();
    let at = async |offset| {
        let (is_mapped, length) = image.allocation(offset, (64 << 20) - offset).await.unwrap();
        assert!(length > 0 || offset == 64 << 20);
        (is_mapped, length)
    };
    // Summed up, the runs say where the data is.
    let (mut offset, mut mapped) = (0, Vec::new());
    while offset < 64 << 20 {
        let (is_mapped, length) = at(offset).await;
        if is_mapped {
            mapped.push((offset, length));
        }
        offset += length;
    }
    assert_eq!(mapped, [(10 << 20, 128 * KIB)]);
}

#[tokio::test]
async fn comparing_tells_where_the_first_difference_is() {
    let store = cluster().session("a");
    let image = image(&store, &small("c", 64 * KIB)).await;
    // Of nothing, and of zeros that are there.
    let missing = swap(&image, 1, 2, "a").await.unwrap_err();
    assert_eq!(missing.mismatch_offset(), Some(0));
    swap(&image, 0, 1, "a").await.unwrap();
    write(&image, 4_096 + 100, filled(1, 9)).await.unwrap();
    let differs = swap(&image, 1, 2, "a").await.unwrap_err();
    assert_eq!(differs.kind(), ErrorKind::GuardFailed);
    assert_eq!(differs.mismatch_offset(), Some(100));
    let crosses = image
        .compare_and_write(8_000, filled(512, 0), filled(512, 0), mark("a"))
        .await
        .unwrap_err();
    assert_eq!(crosses.kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn a_retry_after_a_takeover_is_recognised_once_and_only_its_own() {
    let cluster = cluster();
    let (a, b) = (cluster.session("a"), cluster.session("b"));
    let first = image(&a, &small("c", 64 * KIB)).await;
    swap(&first, 0, 1, "host").await.unwrap();
    // Under the same claim it is a new command.
    assert!(swap(&first, 0, 1, "host").await.is_err());
    let second = open(&b, "c").await.unwrap();
    assert!(second.epoch() > first.epoch());
    assert!(swap(&second, 0, 1, "other").await.is_err());
    assert!(swap(&second, 3, 1, "host").await.is_err());
    swap(&second, 0, 1, "host").await.unwrap();
    assert!(swap(&second, 0, 1, "host").await.is_err());
    // Its data is gone: nothing to recognise.
    let third = open(&cluster.session("c"), "c").await.unwrap();
    swap(&third, 1, 4, "other").await.unwrap();
    assert!(swap(&third, 0, 1, "host").await.is_err());
}

#[tokio::test]
async fn who_lost_the_image_changes_nothing_any_more() {
    let cluster = cluster();
    let (a, b) = (cluster.session("a"), cluster.session("b"));
    let first = image(&a, &small("t", 64 * KIB)).await;
    write(&first, 0, filled(512, 1)).await.unwrap();
    let second = open(&b, "t").await.unwrap();
    assert_eq!(first.identity(), second.identity());
    for error in [
        write(&first, 0, filled(512, 2)).await.unwrap_err(),
        first.discard(0, 512).await.unwrap_err(),
        first.resize(32 * KIB).await.unwrap_err(),
        swap(&first, 0, 1, "x").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Fenced);
    }
    let data = second.read(0, 512).await.unwrap();
    assert_eq!(data.to_bytes(), filled(512, 1));
    // Given back, it fences nobody.
    second.close().await.unwrap();
    let third = open(&cluster.session("c"), "t").await.unwrap();
    assert!(b.may_write(&b.session()).await.unwrap());
    assert_eq!(third.size_bytes(), 64 * KIB);
}

#[tokio::test]
async fn a_smaller_image_that_grows_again_reads_as_zeros_there() {
    let cluster = cluster();
    let (a, b) = (cluster.session("a"), cluster.session("b"));
    let first = image(&a, &small("r", 100 * KIB)).await;
    write(&first, 0, filled(100 * KIB, 5)).await.unwrap();
    first.resize(10 * KIB).await.unwrap();
    first.resize(100 * KIB).await.unwrap();
    let mut expected = vec![0; 100 * 1_024];
    expected[..10 * 1_024].fill(5);
    assert!(content(&first).await == expected);
    // By another session, which the server hears of.
    write(&first, 0, filled(100 * KIB, 6)).await.unwrap();
    let mut told = first.size_watch();
    Image::resize_named(&*b, &pools(), "r", 20 * KIB)
        .await
        .unwrap();
    assert_eq!(
        *told.wait_for(|size| *size == 20 * KIB).await.unwrap(),
        20 * KIB
    );
    assert!(write(&first, 20 * KIB, filled(1, 1)).await.is_err());
    for _ in 0..100 {
        match Image::resize_named(&*b, &pools(), "r", 100 * KIB).await {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            answer => {
                answer.unwrap();
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    expected.fill(0);
    expected[..20 * 1_024].fill(6);
    assert!(content(&first).await == expected);
}

#[tokio::test]
async fn what_can_not_be_honoured_is_refused_also_while_open() {
    let cluster = cluster();
    let store = cluster.session("a");
    let opened = image(&store, &small("f", 64 * KIB)).await;
    let header = opened.shared.place.header();
    let set = async |key: &'static str, value: &'static [u8]| {
        let entries = vec![(
            Bytes::from_static(key.as_bytes()),
            Bytes::from_static(value),
        )];
        let op = WriteOp::new([WriteStep::OmapSet { entries }]);
        store.write(&header, op).await.unwrap();
    };
    let clear = async |key: &'static str| {
        let keys = vec![Bytes::from_static(key.as_bytes())];
        let op = WriteOp::new([WriteStep::OmapRemove { keys }]);
        store.write(&header, op).await.unwrap();
    };
    for (key, value) in [
        ("snapshot_0000000000000004", &b"x"[..]),
        ("parent", b"x"),
        ("features", &[7, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        set(key, value).await;
        let error = open(&store, "f").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{key}");
        if key != "features" {
            clear(key).await;
        }
    }
    let error = open(&store, "f").await.unwrap_err();
    assert!(error.to_string().contains("exclusive-lock"), "{error}");
    // Its server hears of it and stops.
    assert!(write(&opened, 0, filled(1, 1)).await.is_ok());
    resize::tell(&*store, &opened.shared.place).await.unwrap();
    let error = write(&opened, 0, filled(1, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn no_two_images_begin_alike() {
    let store = cluster().session("a");
    let mut beginnings = std::collections::HashSet::new();
    for number in 0..50 {
        let image = image(&store, &small(&format!("n{number}"), 4 * KIB)).await;
        let naa = image.identity().naa.to_string();
        assert_eq!(naa.len(), 32);
        assert!(beginnings.insert(naa[..8].to_owned()));
    }
    let op = ReadOp::new([ReadStep::Stat]);
    let object = ObjectId::new(&pools().meta, ObjectName::new("portico_naa"));
    assert!(store.read(&object, op).await.is_ok());
}
