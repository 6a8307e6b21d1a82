//! Images on a real cluster beside RBD's own tools: what the one makes the other opens, and neither
//! finds anything that it would not have written. `PORTICO_RADOS_CONF` names the cluster; its
//! administrator runs `rbd` and `ceph`.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::Write as _;
use std::panic::{catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use portico_backend::error::ErrorKind;
use portico_backend::image::{CompareMark, Image, ImagePools, NewImage};
use portico_backend::object::{
    Durability, ListCursor, ObjectId, ObjectName, ObjectStore, Payload, Pool, ReadOp, ReadResult,
    ReadStep,
};
use portico_backend::rados::{RadosOptions, RadosPool, RadosStore, wait_until_closed};
use portico_backend::random::Generator;
use tokio::time::timeout;

const POOL: &str = "portico-rbd";

const MIB: u64 = 1 << 20;

/// How soon a session hears what another one did.
const TOLD_MAX: Duration = Duration::from_secs(1);

/// Tests that count what is in the pool must not meet each other.
static ALONE: Mutex<()> = Mutex::new(());

fn conf() -> PathBuf {
    let conf = std::env::var_os("PORTICO_RADOS_CONF");
    PathBuf::from(conf.expect("PORTICO_RADOS_CONF names the ceph.conf of a cluster for tests"))
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(RadosStore) -> F + std::panic::UnwindSafe) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = catch_unwind(|| {
        make_pool();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let pools = [("data", ""), ("meta", "portico")].map(|(name, namespace)| RadosPool {
                name: name.to_owned(),
                ceph_pool: POOL.to_owned(),
                namespace: namespace.to_owned(),
            });
            let options = RadosOptions::new(conf(), "client.admin", pools.to_vec());
            test(RadosStore::open(options).unwrap()).await;
        });
    });
    let closed = wait_until_closed(Duration::from_secs(60));
    if let Err(failed) = failed {
        resume_unwind(failed);
    }
    assert!(closed, "clients do not shut down");
}

fn make_pool() {
    // What an earlier test left goes with its pool.
    let sure = "--yes-i-really-really-mean-it";
    for arguments in [
        &["osd", "pool", "delete", POOL, POOL, sure][..],
        &["osd", "pool", "create", POOL, "16", "16", "replicated"],
        &["osd", "pool", "application", "enable", POOL, "rbd"],
    ] {
        let mut command = Command::new("ceph");
        command.arg("-c").arg(conf()).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
}

fn rbd_try(arguments: &[&str], input: Option<&[u8]>) -> Output {
    let mut command = Command::new("rbd");
    command
        .arg("-c")
        .arg(conf())
        .args(["-p", POOL])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .expect("the package ceph-common is installed");
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(input.unwrap_or_default()).unwrap();
    drop(pipe);
    child.wait_with_output().unwrap()
}

fn rbd(arguments: &[&str]) -> String {
    let output = rbd_try(arguments, None);
    assert!(
        output.status.success(),
        "rbd {arguments:?}: {}",
        said(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn export(name: &str) -> Vec<u8> {
    let output = rbd_try(&["export", name, "-"], None);
    assert!(output.status.success(), "{}", said(&output));
    output.stdout
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn pools() -> ImagePools {
    ImagePools {
        data: Pool::new("data", ""),
        meta: Pool::new("meta", ""),
    }
}

async fn open(store: &Arc<dyn ObjectStore>, name: &str) -> Image {
    Image::open(Arc::clone(store), &pools(), name)
        .await
        .unwrap()
}

async fn content(image: &Image) -> Vec<u8> {
    let mut all = Vec::new();
    while (all.len() as u64) < image.size_bytes() {
        let at = all.len() as u64;
        let length = (image.size_bytes() - at).min(4 * MIB);
        let part = image.read(at, length).await.unwrap();
        all.extend_from_slice(&part.to_bytes());
    }
    all
}

fn noise(seed: u64, length: u64) -> Vec<u8> {
    let mut random = Generator::new(seed);
    let words = (0..length.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
    words.take(usize::try_from(length).unwrap()).collect()
}

/// Objects of the pool whose name begins so; at most 1,000 are looked at.
async fn left(store: &Arc<dyn ObjectStore>, prefix: &str) -> Vec<String> {
    let listed = store.list(&pools().data, ListCursor::start(), 1_000).await;
    let names = listed
        .unwrap()
        .names
        .into_iter()
        .map(|name| name.to_string());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Writes, zeroes and discards here and there, and keeps `expected` in step.
async fn exercise(image: &Image, expected: &mut [u8], seed: u64) {
    let mut random = Generator::new(seed);
    let size = expected.len() as u64;
    for turn in 0..40 {
        let offset = random.below(size / 512) * 512;
        let length = (512 * (1 + random.below(12_000))).min(size - offset);
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
        if turn % 4 == 3 {
            image.discard(offset, length).await.unwrap();
            expected[range].fill(0);
        } else {
            let data = noise(seed + turn, length);
            let payload = Payload::from(Bytes::from(data.clone()));
            let written = image.write(offset, payload, Durability::Durable);
            written.await.unwrap();
            expected[range].copy_from_slice(&data);
        }
    }
    let mark = CompareMark {
        initiator: Arc::from("iqn.test"),
        lba: 8,
    };
    let expect = Bytes::copy_from_slice(&expected[4_096..4_608]);
    let data = Bytes::from(noise(seed, 512));
    let swapped = image.compare_and_write(4_096, expect.clone(), data.clone(), mark.clone());
    swapped.await.unwrap();
    expected[4_096..4_608].copy_from_slice(&data);
    let again = image.compare_and_write(4_096, expect, data, mark).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::GuardFailed);
}

#[test]
fn rbd_shows_and_exports_what_portico_makes() {
    run(|store| async move {
        let session = store.session("image").unwrap();
        let plain = NewImage::new("plain", 30 * MIB, 1_700_000_000_123);
        let striped = NewImage {
            object_size: 1 << 20,
            stripe_unit: 64 << 10,
            stripe_count: 3,
            ..NewImage::new("striped", 20 * MIB, 1_700_000_000_123)
        };
        for new in [&plain, &striped] {
            Image::create(&*session, &pools(), new).await.unwrap();
            let image = open(&session, &new.name).await;
            let mut expected = vec![0; usize::try_from(new.size_bytes).unwrap()];
            exercise(&image, &mut expected, 7).await;
            assert!(content(&image).await == expected);
            // While Portico serves it, and nobody else changes it.
            assert!(export(&new.name) == expected, "{}", new.name);
            let refused = rbd_try(&["rm", &new.name], None);
            assert!(!refused.status.success(), "rbd removes what is served");
            image.close().await.unwrap();
        }
        assert_eq!(rbd(&["ls"]), "plain\nstriped\n");
        let info = |name| -> serde_json::Value {
            serde_json::from_str(&rbd(&["info", name, "--format", "json"])).unwrap()
        };
        let (plain, striped) = (info("plain"), info("striped"));
        println!("{plain}\n{striped}");
        assert_eq!(plain["size"], 30 * MIB);
        assert_eq!(plain["order"], 22);
        assert_eq!(plain["features"], serde_json::json!(["layering"]));
        assert_eq!(striped["stripe_unit"], 64 << 10);
        assert_eq!(striped["stripe_count"], 3);
        let created = plain["create_timestamp"].as_str().unwrap();
        assert!(created.contains("2023"), "{created}");
        // The one tool removes what the other made, and leaves nothing.
        rbd(&["rm", "plain"]);
        Image::remove(&*session, &pools(), "striped").await.unwrap();
        assert_eq!(rbd(&["ls"]), "");
        assert!(left(&session, "rbd_header").await.is_empty());
        assert!(left(&session, "rbd_data").await.is_empty());
    });
}

#[test]
fn portico_serves_what_rbd_makes() {
    run(|store| async move {
        let session = store.session("image").unwrap();
        let mut expected = noise(1, 24 * MIB);
        let imported = rbd_try(
            &["import", "--image-feature", "layering", "-", "theirs"],
            Some(&expected),
        );
        assert!(imported.status.success(), "{}", said(&imported));
        let image = open(&session, "theirs").await;
        assert!(content(&image).await == expected);
        exercise(&image, &mut expected, 9).await;
        assert!(export("theirs") == expected);
        // Its size is changed behind our back.
        let mut told = image.size_watch();
        rbd(&["resize", "--size", "40M", "theirs"]);
        let heard = timeout(TOLD_MAX, told.wait_for(|size| *size == 40 * MIB)).await;
        heard.expect("it is heard within a second").unwrap();
        rbd(&["resize", "--size", "10M", "--allow-shrink", "theirs"]);
        assert_eq!(image.size_bytes(), 10 * MIB);
        image.resize(24 * MIB).await.unwrap();
        expected[usize::try_from(10 * MIB).unwrap()..].fill(0);
        assert!(content(&image).await == expected);
        assert!(export("theirs") == expected);
        image.resize(6 * MIB + 512).await.unwrap();
        image.resize(24 * MIB).await.unwrap();
        expected[usize::try_from(6 * MIB + 512).unwrap()..].fill(0);
        assert!(export("theirs") == expected);
        image.close().await.unwrap();
    });
}

#[test]
fn what_portico_can_not_honour_is_refused() {
    run(|store| async move {
        let session = store.session("image").unwrap();
        rbd(&["create", "--size", "8M", "usual"]);
        let features = &["create", "--image-feature", "layering", "--size", "8M"];
        rbd(&[&features[..], &["base"]].concat());
        rbd(&[&features[..], &["served"]].concat());
        rbd(&["snap", "create", "base@s"]);
        rbd(&["snap", "protect", "base@s"]);
        rbd(&[
            "clone",
            "--image-feature",
            "layering",
            &format!("{POOL}/base@s"),
            &format!("{POOL}/child"),
        ]);
        for (name, reason) in [
            ("usual", "exclusive-lock"),
            ("base", "snapshots"),
            ("child", "clone"),
        ] {
            let opened = Image::open(Arc::clone(&session), &pools(), name).await;
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            assert!(error.to_string().contains(reason), "{name}: {error}");
        }
        let image = open(&session, "served").await;
        let write = || {
            image.write(
                0,
                Payload::from(Bytes::from(vec![1; 512])),
                Durability::Durable,
            )
        };
        write().await.unwrap();
        // What serves it does not promise to hold still.
        let refused = rbd_try(&["snap", "create", "served@late"], None);
        assert!(
            !refused.status.success(),
            "rbd makes a snapshot of what is served"
        );
        write().await.unwrap();
        rbd(&["snap", "create", "--skip-quiesce", "served@late"]);
        let error = write().await.unwrap_err();
        assert!(error.to_string().contains("snapshots"), "{error}");
        drop(image);
        rbd(&["flatten", "child"]);
        rbd(&["snap", "unprotect", "base@s"]);
        rbd(&["snap", "purge", "base"]);
        open(&session, "base").await.close().await.unwrap();
        open(&session, "child").await.close().await.unwrap();
    });
}

#[test]
fn portico_serves_striped_images_that_rbd_makes() {
    run(|store| async move {
        let session = store.session("image").unwrap();
        let command = "create --size 20M --image-feature layering --object-size 1M --stripe-unit 64K \
                       --stripe-count 3 theirs";
        rbd(&command.split_whitespace().collect::<Vec<_>>());
        let image = open(&session, "theirs").await;
        let mut expected = vec![0; usize::try_from(20 * MIB).unwrap()];
        exercise(&image, &mut expected, 11).await;
        assert!(content(&image).await == expected);
        assert!(export("theirs") == expected);
        image.close().await.unwrap();
        // And what librbd writes over several objects at once is where Portico looks for it.
        let bench = "bench --io-type write --io-size 256K --io-total 2M --io-threads 4 theirs";
        rbd(&bench.split_whitespace().collect::<Vec<_>>());
        let image = open(&session, "theirs").await;
        let theirs = content(&image).await;
        assert!(theirs != expected, "rbd wrote nothing");
        assert!(export("theirs") == theirs);
        image.close().await.unwrap();
        rbd(&["rm", "theirs"]);
    });
}

#[test]
fn discarded_objects_are_given_back() {
    run(|store| async move {
        let session = store.session("image").unwrap();
        let new = NewImage::new("thin", 64 * MIB, 1_700_000_000_000);
        Image::create(&*session, &pools(), &new).await.unwrap();
        let image = open(&session, "thin").await;
        let used = || -> u64 {
            let usage: serde_json::Value =
                serde_json::from_str(&rbd(&["du", "thin", "--format", "json"])).unwrap();
            usage["images"][0]["used_size"].as_u64().unwrap()
        };
        assert_eq!(used(), 0);
        for offset in (0..32 * MIB).step_by(usize::try_from(4 * MIB).unwrap()) {
            let data = Payload::from(Bytes::from(noise(offset, 4 * MIB)));
            let written = image.write(offset, data, Durability::Durable);
            written.await.unwrap();
        }
        assert_eq!(used(), 32 * MIB);
        // Five objects go as a whole, and of two the half.
        image.discard(6 * MIB, 24 * MIB).await.unwrap();
        assert_eq!(
            image.allocation(8 * MIB, 20 * MIB).await.unwrap(),
            (false, 20 * MIB)
        );
        let rest = used();
        assert!((6 * MIB..=12 * MIB).contains(&rest), "{rest}");
        image.discard(0, 64 * MIB).await.unwrap();
        assert_eq!(used(), 0);
        assert!(left(&session, "rbd_data").await.is_empty());
        image.close().await.unwrap();
    });
}

#[test]
fn who_opens_an_image_fences_who_had_it() {
    run(|store| async move {
        let first = store.session("first").unwrap();
        let new = NewImage::new("disk", 8 * MIB, 1_700_000_000_000);
        Image::create(&*first, &pools(), &new).await.unwrap();
        let before = open(&first, "disk").await;
        let page = |byte| Payload::from(Bytes::from(vec![byte; 4_096]));
        let written = before.write(0, page(1), Durability::Durable);
        written.await.unwrap();
        let second = store.session("second").unwrap();
        let after = open(&second, "disk").await;
        assert!(after.epoch() > before.epoch());
        assert_eq!(
            after.read(0, 4_096).await.unwrap().to_bytes(),
            vec![1; 4_096]
        );
        let late = before.write(0, page(2), Durability::Durable).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Fenced);
        let written = after.write(4_096, page(3), Durability::Durable);
        written.await.unwrap();
        let expected = [vec![1; 4_096], vec![3; 4_096]].concat();
        assert_eq!(after.read(0, 8_192).await.unwrap().to_bytes(), expected);
        assert!(export("disk")[..8_192] == expected);
        // The watch of the one that was fenced does not keep the tools away.
        after.close().await.unwrap();
        rbd(&["rm", "disk"]);
    });
}

/// Keys and values of a header, without what differs from image to image.
async fn header(store: &Arc<dyn ObjectStore>, name: &str) -> Vec<(String, Vec<u8>)> {
    let listed = Image::list(&**store, &pools()).await.unwrap();
    let id = &listed.iter().find(|image| image.name == name).unwrap().id;
    let object = ObjectId::new(&pools().data, ObjectName::new(&format!("rbd_header.{id}")));
    let op = ReadOp::new([ReadStep::OmapScan {
        start: Bytes::new(),
        end: None,
        keys_only: false,
        count_max: 100,
    }]);
    let output = store.read(&object, op).await.unwrap();
    let [ReadResult::OmapPage(page)] = output.results.as_slice() else {
        panic!("one page");
    };
    let entries = page.entries.iter().map(|(key, value)| {
        let key = String::from_utf8(key.to_vec()).unwrap();
        let value = if key == "object_prefix" {
            let (length, text) = value.split_at(4);
            assert_eq!(length, u32::try_from(text.len()).unwrap().to_le_bytes());
            assert_eq!(text, format!("rbd_data.{id}").as_bytes());
            Vec::new()
        } else if key.ends_with("_timestamp") {
            vec![u8::try_from(value.len()).unwrap()]
        } else {
            value.to_vec()
        };
        (key, value)
    });
    entries.collect()
}

#[test]
fn headers_are_those_that_rbd_writes() {
    run(|store| async move {
        let session = store.session("image").unwrap();
        rbd(&[
            "create",
            "--size",
            "8M",
            "--image-feature",
            "layering",
            "plain",
        ]);
        rbd(&[
            "create",
            "--size",
            "8M",
            "--image-feature",
            "layering",
            "--object-size",
            "1M",
            "--stripe-unit",
            "64K",
            "--stripe-count",
            "4",
            "striped",
        ]);
        let plain = NewImage::new("our plain", 8 * MIB, 1_700_000_000_000);
        let striped = NewImage {
            object_size: 1 << 20,
            stripe_unit: 64 << 10,
            stripe_count: 4,
            ..NewImage::new("our striped", 8 * MIB, 1_700_000_000_000)
        };
        for new in [&plain, &striped] {
            Image::create(&*session, &pools(), new).await.unwrap();
        }
        for name in ["plain", "striped"] {
            let theirs = header(&session, name).await;
            println!("{theirs:?}");
            assert_eq!(header(&session, &format!("our {name}")).await, theirs);
        }
    });
}
