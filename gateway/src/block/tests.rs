mod initiator;

use portico_backend::bucket::{BucketOptions, Buckets};
use portico_backend::budget::Budget;
use portico_backend::catalog::{IscsiName, Keyring, Mapping};
use portico_backend::clock::{Clock, FixedClock};
use portico_backend::connection::{StopControl, stop};
use portico_backend::faulty::{CallKind, Faults, Faulty, FaultyOptions};
use portico_backend::gate::gate;
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::object::{ObjectId, ObjectName, Payload, WriteOp, WriteStep};
use portico_backend::tenure::{Lasts, Tenure, TenureControl, tenures, watched};
use portico_backend::volumes::Volumes;
use portico_iscsi::scsi::WriteCache;
use portico_iscsi::serve::ServiceParts;
use portico_iscsi::target::Targets;
use portico_iscsi::wire::request::TaskFunction;
use portico_iscsi::wire::response::TaskOutcome;
use portico_iscsi::wire::serial::Serial;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use initiator::{Answer, Initiator, filled};

const TARGET: &str = "iqn.2026-01.org.example:disks";
const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u32 = 512;

const LUNS_CHANGED: [u8; 3] = [0x6, 0x3f, 0x0e];
const CAPACITY_CHANGED: [u8; 3] = [0x6, 0x2a, 0x09];
const MODE_CHANGED: [u8; 3] = [0x6, 0x2a, 0x01];
const POWER_ON: [u8; 3] = [0x6, 0x29, 0x00];
/// LOGICAL UNIT NOT SUPPORTED.
const NO_UNIT: [u8; 3] = [0x5, 0x25, 0x00];

/// How soon a session is told of what an admin changed.
const TOLD_TIMEOUT: Duration = Duration::from_secs(1);

/// What nodes share.
struct Bed {
    cluster: MemoryCluster,
    keyring: Arc<Keyring>,
}

/// One node that follows the catalog.
struct Node {
    block: Block,
    catalog: Arc<Catalog>,
    portal: SocketAddr,
    following: JoinHandle<()>,
    stop: StopControl,
    _tenure: TenureControl,
}

impl Bed {
    fn new() -> Self {
        Self {
            cluster: MemoryCluster::new(MemoryOptions::default()),
            keyring: Arc::new(Keyring::generate("k1").unwrap()),
        }
    }

    async fn node(&self, name: &str) -> Node {
        let store = self.cluster.session(name);
        self.node_over(name, store, None).await
    }

    /// A node with this session for all but images, and with that one for images at first.
    async fn node_over(
        &self,
        name: &str,
        store: Arc<dyn ObjectStore>,
        images: Option<Arc<dyn ObjectStore>>,
    ) -> Node {
        let pools = Pools::default();
        let (meta, data) = (pools.meta.clone(), pools.data.clone());
        let clock: Arc<dyn Clock> = Arc::new(FixedClock::new(1_000));
        let keyring = Arc::clone(&self.keyring);
        let opened = Catalog::open(store.clone(), meta.clone(), clock.clone(), keyring).await;
        let options = BucketOptions::default();
        let buckets = Buckets::open(store.clone(), meta, data, clock, options).await;
        let volumes = Volumes {
            catalog: opened.unwrap(),
            buckets: buckets.unwrap(),
        };
        let catalog = Arc::clone(&volumes.catalog);
        catalog.node_register(name, None).await.unwrap();
        let (tenure, tenures) = tenures();
        tenure.begin(Tenure::new(volumes, store, Lasts::forever()));
        let (control, open) = gate(false);
        let iscsi = ServiceParts {
            targets: Targets::default(),
            stats: Arc::default(),
            window_budget: Budget::new(16 * MIB),
            budget: Budget::new(16 * MIB),
            gate: open,
        };
        let parts = Parts {
            engine: Engine::Memory(self.cluster.clone()),
            pools,
            tenures,
            node: Arc::from(name),
            iscsi: Arc::new(Service::new(iscsi)),
        };
        let block = Block::new(parts, control);
        if let Some(images) = images {
            let (store, lasts) = watched(images);
            block
                .0
                .served
                .lock()
                .await
                .use_session(&block.0, store, lasts);
        }
        let portal = "127.0.0.1:3260".parse().unwrap();
        block.begin(vec![portal]).await;
        let (stop, stopping) = stop();
        Node {
            following: tokio::spawn(block.clone().follow(stopping)),
            block,
            catalog,
            portal,
            stop,
            _tenure: tenure,
        }
    }

    /// A way to the cluster that can be held up.
    fn faulty(&self, name: &str) -> Arc<Faulty> {
        Faulty::new(self.cluster.session(name), FaultyOptions::new(1))
    }
}

impl Node {
    async fn make(&self, name: &str) -> LunState {
        let spec = LunSpec {
            image: ImageSpec::Make(NewImage::new(name, 8 * MIB, 1_000)),
            options: LunOptions::default(),
        };
        self.block.lun_create(spec).await.unwrap()
    }

    /// Makes `disk`, and a target that shows it as LUN 1.
    async fn make_disk(&self) {
        assert_eq!(self.make("disk").await.serving, Serving::Here);
        self.catalog.target_create(&target()).await.unwrap();
        self.map("disk", 1).await;
    }

    async fn map(&self, name: &str, lun: u16) {
        let (target, wanted) = (target(), mapping(name));
        let mapped = self.catalog.lun_map(&target, Some(lun), &wanted).await;
        mapped.unwrap();
        self.block.look_again().await;
    }

    async fn unmap(&self, lun: u16) {
        let unmapped = self.catalog.lun_unmap(&target(), lun, None).await;
        unmapped.unwrap();
        self.block.look_again().await;
    }

    /// The session that images are served with.
    async fn session(&self) -> Arc<dyn ObjectStore> {
        let served = self.block.0.served.lock().await;
        served.store().unwrap()
    }

    /// A session that knows all there is to know.
    async fn log_in(&self, number: u8) -> Initiator {
        let mut one = Initiator::log_in(self, TARGET, number).await;
        assert_eq!(one.attentions(1).await, [POWER_ON]);
        one
    }

    /// The same once the node serves again.
    async fn log_in_again(&self, number: u8) -> Initiator {
        let entered = async {
            loop {
                if let Ok(mut one) = Initiator::try_log_in(self, TARGET, number).await {
                    match one.test(1).await {
                        Answer::Check(POWER_ON) => return one,
                        Answer::Gone | Answer::Check(NO_UNIT) => {}
                        other => panic!("{other:?}"),
                    }
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        let entered = timeout(Duration::from_secs(10), entered).await;
        entered.expect("the node serves again")
    }

    async fn close(self) {
        self.stop.request();
        self.following.await.unwrap();
        self.block.close().await;
    }
}

fn target() -> IscsiName {
    IscsiName::new(TARGET).unwrap()
}

fn mapping(name: &str) -> Mapping {
    Mapping {
        lun: 0,
        lun_name: name.to_owned(),
        initiator: None,
    }
}

fn read_back(byte: u8) -> Answer {
    Answer::Good(filled(byte).to_vec())
}

#[tokio::test(start_paused = true)]
async fn a_fence_ends_the_sessions_and_what_comes_next_is_read_anew() {
    let bed = Bed::new();
    let node = bed.node("one").await;
    node.make_disk().await;
    let mut one = node.log_in(1).await;
    assert_eq!(one.write(1, 0xa1).await, Answer::Good(vec![]));
    assert_eq!(one.read(1).await, read_back(0xa1));
    let former = node.session().await.session();

    // Whoever takes the image over fences the session that served it, and writes.
    let other = bed.cluster.session("other");
    other.fence(&former).await.unwrap();
    let image = node.block.lun("disk").await.unwrap().image.unwrap();
    let prefix = Arc::from(format!("rbd_data.{}", image.id));
    let object = ObjectId::new(&node.block.pools().data, ObjectName::numbered(&prefix, 0));
    let step = WriteStep::Write {
        offset: 0,
        data: Payload::from(filled(0xb2)),
    };
    other.write(&object, WriteOp::new([step])).await.unwrap();

    assert_ne!(one.read(1).await, read_back(0xa1));
    timeout(Duration::from_secs(2), one.ended()).await.unwrap();
    let mut again = node.log_in_again(1).await;
    assert_eq!(again.read(1).await, read_back(0xb2));
    assert_ne!(node.session().await.session(), former);
    assert_eq!(node.block.reopened().value(), 1);
    assert_eq!(node.block.lun("disk").await.unwrap().serving, Serving::Here);
    assert_eq!(again.write(1, 0xc3).await, Answer::Good(vec![]));
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_begun_under_a_fenced_session_is_not_answered() {
    let bed = Bed::new();
    let images = bed.faulty("images");
    let store = bed.cluster.session("one");
    let node = bed.node_over("one", store, Some(images.clone())).await;
    node.make_disk().await;
    let (mut one, mut two) = (node.log_in(1).await, node.log_in(2).await);
    images.hold(CallKind::Write);
    one.begin_write(1, 0xa1).await;
    images.wait_held(1).await;
    bed.cluster
        .session("other")
        .fence(&images.session())
        .await
        .unwrap();
    // The first answer that tells of the fence is that of a read.
    two.read(1).await;
    timeout(Duration::from_secs(2), two.ended()).await.unwrap();
    assert_eq!(one.answer().await, Answer::Gone);
    let mut again = node.log_in_again(1).await;
    images.release();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(again.read(1).await, read_back(0));
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_late_takes_effect_behind_a_reset() {
    let bed = Bed::new();
    let images = bed.faulty("images");
    let store = bed.cluster.session("one");
    let node = bed.node_over("one", store, Some(images.clone())).await;
    node.make_disk().await;
    let mut one = node.log_in(1).await;
    images.hold(CallKind::Write);
    let task = one.begin_write(1, 0xb2).await;
    images.wait_held(1).await;
    let aborted = one.manage(TaskFunction::AbortTask, 1, task).await;
    assert_eq!(aborted, Some(TaskOutcome::Complete));
    let begun = Instant::now();
    let all = (u32::MAX, Serial(0));
    let reset = one.manage(TaskFunction::LogicalUnitReset, 1, all).await;
    assert_eq!(reset, Some(TaskOutcome::Complete));
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(30));
    timeout(Duration::from_secs(2), one.ended()).await.unwrap();

    let mut again = node.log_in_again(1).await;
    assert_eq!(again.write(1, 0xc3).await, Answer::Good(vec![]));
    images.release();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(again.read(1).await, read_back(0xc3));
    assert_eq!(node.block.reopened().value(), 1);
    node.close().await;
}

/// Of two resets that waited for the same, the later one finds it done.
#[tokio::test(start_paused = true)]
async fn a_session_that_came_later_is_not_cut_off() {
    let bed = Bed::new();
    let node = bed.node("one").await;
    node.make("disk").await;
    let before = Instant::now();
    sleep(Duration::from_secs(1)).await;
    assert!(cut::cut_off(&node.block.0, Instant::now()).await);
    sleep(Duration::from_secs(2)).await;
    let current = node.session().await.session();
    assert!(cut::cut_off(&node.block.0, before).await);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(node.session().await.session(), current);
    assert_eq!(node.block.reopened().value(), 1);
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_lun_of_another_node_is_shown_and_changed_and_served_there_alone() {
    let bed = Bed::new();
    let (one, two) = (bed.node("one").await, bed.node("two").await);
    one.make_disk().await;
    two.make("own").await;
    two.map("own", 2).await;
    let seen = two.block.lun("disk").await.unwrap();
    assert_eq!((seen.serving, &*seen.node), (Serving::Elsewhere, "one"));
    assert_eq!(two.block.units().len(), 1);

    let mut here = one.log_in(1).await;
    assert_eq!(here.report_luns().await, [1]);
    let mut there = Initiator::log_in(&two, TARGET, 1).await;
    assert_eq!(there.attentions(2).await, [POWER_ON]);
    assert_eq!(there.report_luns().await, [2]);
    assert_eq!(there.read(1).await, Answer::Check(NO_UNIT));

    // Its size is changed through either node; whoever uses it is told.
    two.block.lun_resize("disk", 16 * MIB, false).await.unwrap();
    sleep(TOLD_TIMEOUT).await;
    assert_eq!(here.attentions(1).await, [CAPACITY_CHANGED]);
    assert_eq!(there.attentions(2).await, Vec::<[u8; 3]>::new());

    // It goes only when its node has let go of it.
    let mapped = two.block.lun_delete("disk").await.unwrap_err();
    assert!(mapped.to_string().contains("unmap it first"), "{mapped}");
    two.unmap(1).await;
    two.block.lun_delete("disk").await.unwrap();
    assert!(one.block.units().is_empty());
    assert_eq!(here.read(1).await, Answer::Check(NO_UNIT));
    for node in [&one, &two] {
        assert!(node.block.lun("disk").await.is_err());
    }
    one.close().await;
    two.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_is_told_within_a_second_that_its_luns_changed() {
    let bed = Bed::new();
    let (one, two) = (bed.node("one").await, bed.node("two").await);
    one.make_disk().await;
    one.make("more").await;
    let mut host = one.log_in(1).await;
    assert_eq!(host.report_luns().await, [1]);

    // By an admin of the other node.
    for (lun, expected) in [(7, vec![1, 7]), (300, vec![1, 7, 300])] {
        let name = if lun == 7 { "more" } else { "most" };
        if lun == 300 {
            one.make(name).await;
        }
        two.map(name, lun).await;
        sleep(TOLD_TIMEOUT).await;
        assert_eq!(host.attentions(1).await, [LUNS_CHANGED]);
        let field = |lun: u16| if lun < 256 { lun } else { 0x4000 | lun };
        let expected: Vec<u16> = expected.into_iter().map(field).collect();
        assert_eq!(host.report_luns().await, expected);
    }
    // REPORT LUNS tells all of it: nothing is left to be told.
    two.unmap(7).await;
    sleep(TOLD_TIMEOUT).await;
    assert_eq!(host.report_luns().await, [1, 0x4000 | 300]);
    assert_eq!(host.attentions(1).await, Vec::<[u8; 3]>::new());
    assert_eq!(host.read(7).await, Answer::Check(NO_UNIT));
    // What did not change is not told.
    one.block.look_again().await;
    assert_eq!(host.attentions(1).await, Vec::<[u8; 3]>::new());
    one.close().await;
    two.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_is_told_that_its_disk_has_another_size() {
    let bed = Bed::new();
    let node = bed.node("one").await;
    node.make_disk().await;
    let mut host = node.log_in(1).await;
    node.block.lun_resize("disk", 9 * MIB, false).await.unwrap();
    assert_eq!(host.attentions(1).await, [CAPACITY_CHANGED]);
    let refused = node.block.lun_resize("disk", 8 * MIB, false).await;
    assert!(matches!(refused, Err(BlockError::Refused(_))));
    assert_eq!(host.attentions(1).await, Vec::<[u8; 3]>::new());
    node.block.lun_resize("disk", 8 * MIB, true).await.unwrap();
    assert_eq!(host.attentions(1).await, [CAPACITY_CHANGED]);
    node.close().await;
}

/// Through the other node too: all that know the disk are told.
#[tokio::test(start_paused = true)]
async fn a_disk_is_served_otherwise_while_it_is_used() {
    let bed = Bed::new();
    let (one, two) = (bed.node("one").await, bed.node("two").await);
    one.make_disk().await;
    let mut host = one.log_in(1).await;
    let set = |read_only: bool, write_cache: bool| {
        two.block.lun_set_options("disk", move |options| {
            *options = LunOptions {
                read_only,
                write_cache,
            };
        })
    };
    set(true, false).await.unwrap();
    sleep(TOLD_TIMEOUT).await;
    assert_eq!(host.attentions(1).await, [MODE_CHANGED]);
    assert_eq!(host.write(1, 0xa1).await, Answer::Check([0x7, 0x27, 0]));
    let shown = set(false, true).await.unwrap();
    assert!(shown.record.options.write_cache && !shown.record.options.read_only);
    sleep(TOLD_TIMEOUT).await;
    assert_eq!(host.attentions(1).await, [MODE_CHANGED]);
    assert_eq!(host.write(1, 0xa1).await, Answer::Good(vec![]));
    let units = one.block.units();
    assert_eq!(units[0].1.options().write_cache, WriteCache::On);
    drop(units);
    let missing = two.block.lun_set_options("disc", |_| ()).await;
    assert!(matches!(missing, Err(BlockError::Catalog(_))));
    one.close().await;
    two.close().await;
}

/// Over a store that takes its time, as a cluster does: all others act between any two steps.
#[tokio::test(start_paused = true)]
async fn deleting_a_disk_that_is_mapped_changes_nothing() {
    let bed = Bed::new();
    let slow = Faults {
        delay_max: Duration::from_millis(20),
        ..Faults::default()
    };
    for seed in 0..20 {
        let options = FaultyOptions::new(seed).with_all(slow);
        let store = Faulty::new(bed.cluster.session("slow"), options);
        let name = format!("node{seed}");
        let node = bed.node_over(&name, store, None).await;
        let disk = format!("disk{seed}");
        node.make(&disk).await;
        if seed == 0 {
            node.catalog.target_create(&target()).await.unwrap();
        }
        node.map(&disk, 1).await;
        let mut host = node.log_in(1).await;
        assert_eq!(host.write(1, 0xa1).await, Answer::Good(vec![]));
        let refused = node.block.lun_delete(&disk).await.unwrap_err();
        assert!(refused.to_string().contains("unmap it first"), "{refused}");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(host.attentions(1).await, Vec::<[u8; 3]>::new());
        assert_eq!(host.read(1).await, read_back(0xa1), "seed {seed}");
        node.unmap(1).await;
        node.close().await;
    }
}
