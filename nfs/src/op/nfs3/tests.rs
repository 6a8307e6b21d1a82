//! Procedures against a file system in memory.

use core::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::{Answer, call, encode};
use crate::export::{Anonymous, Client, Exports, Rule, Share, Squash};
use crate::filesystem::memory::{Memory, time};
use crate::filesystem::{Error, NodeId};
use crate::limits::DATA_BYTES_MAX;
use crate::op::admit::Ask;
use crate::op::fault::{listed, told};
use crate::op::mount::{self, MountAnswer, Mounts};
use crate::session::reply_cache::CallKey;
use crate::session::request::MountRequest;
use crate::wire::mount::{DirPath, MntResults, MountStatus};
use crate::wire::nfs3::attributes::SetAttributes;
use crate::wire::nfs3::change::{Link, Remove, Rename, SetAttr};
use crate::wire::nfs3::create::{Create, CreateHow, MkDir, MkNod, Node, SymLink};
use crate::wire::nfs3::data::{Commit, Read, Stable, Write};
use crate::wire::nfs3::directory::{ReadDir, ReadDirPlus};
use crate::wire::nfs3::filesystem::OfRoot;
use crate::wire::nfs3::handle::Handle;
use crate::wire::nfs3::inquire::{Access, GetAttr, Lookup, Place, ReadLink, access};
use crate::wire::nfs3::name::{Name, Path};
use crate::wire::nfs3::status::{Outcome, Status};
use crate::wire::nfs3::{Arguments, Procedure, Results};
use crate::wire::rpc::credential::{AuthSys, Credential};

struct World {
    memory: Arc<Memory>,
    exports: Exports,
    credential: Credential,
    client: SocketAddr,
    call: Option<CallKey>,
}

fn world() -> World {
    let memory = Arc::new(Memory::new(5));
    let rule = |client: &str, is_read_only, needs_reserved_port| Rule {
        client: Client::Host(client.parse().unwrap()),
        is_read_only,
        squash: Squash::Root,
        anonymous: Anonymous { uid: 98, gid: 99 },
        needs_reserved_port,
    };
    let share = Share {
        path: "/data".to_owned(),
        file_system: memory.clone(),
        rules: vec![
            rule("10.0.0.1", false, false),
            rule("10.0.0.2", true, false),
            rule("10.0.0.3", false, true),
        ],
    };
    World {
        memory,
        exports: Exports::new(vec![share]),
        credential: Credential::Sys(AuthSys {
            stamp: 0,
            machine_name: Bytes::new(),
            uid: 10,
            gid: 20,
            gids: vec![],
        }),
        client: "10.0.0.1:2000".parse().unwrap(),
        call: None,
    }
}

impl World {
    fn ask(&self) -> Ask<'_> {
        Ask {
            exports: &self.exports,
            client: self.client,
            credential: &self.credential,
            now: time(100, 5),
            call: self.call,
        }
    }

    async fn answer(&self, arguments: Arguments) -> Answer {
        call(&self.ask(), arguments).await
    }

    async fn results(&self, arguments: Arguments) -> Results {
        match self.answer(arguments).await {
            Answer::Results(results) => *results,
            answer @ (Answer::Weak | Answer::Silence) => panic!("{answer:?}"),
        }
    }

    async fn status(&self, arguments: Arguments) -> Option<Status> {
        self.results(arguments).await.status()
    }

    async fn make(&self, name: &[u8]) -> Handle {
        let attributes = SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        };
        let how = CreateHow::Unchecked(attributes);
        let results = self.results(create(name, how)).await;
        let Results::Create(Outcome::Done(created)) = results else {
            panic!("{results:?}");
        };
        created.object.unwrap()
    }
}

fn root() -> Handle {
    handle(5, 1, 7)
}

fn handle(file_system: u64, inode: u64, generation: u32) -> Handle {
    NodeId {
        file_system,
        inode,
        generation,
    }
    .to_handle()
}

fn place(name: &[u8]) -> Place {
    Place {
        directory: root(),
        name: Name(Bytes::copy_from_slice(name)),
    }
}

fn create(name: &[u8], how: CreateHow) -> Arguments {
    Arguments::Create(Create {
        place: place(name),
        how,
    })
}

fn mkdir(name: &[u8]) -> Arguments {
    Arguments::MkDir(MkDir {
        place: place(name),
        attributes: SetAttributes {
            mode: Some(0o755),
            ..SetAttributes::default()
        },
    })
}

fn symlink(name: &[u8]) -> Arguments {
    Arguments::SymLink(SymLink {
        place: place(name),
        attributes: SetAttributes::default(),
        path: Path(Bytes::from_static(b"../else")),
    })
}

fn mknod(name: &[u8], what: Node) -> Arguments {
    Arguments::MkNod(MkNod {
        place: place(name),
        what,
    })
}

fn lookup(name: &[u8]) -> Arguments {
    Arguments::Lookup(Lookup { what: place(name) })
}

fn remove(name: &[u8]) -> Arguments {
    Arguments::Remove(Remove { place: place(name) })
}

fn rmdir(name: &[u8]) -> Arguments {
    Arguments::RmDir(Remove { place: place(name) })
}

fn rename(from: &[u8], to: &[u8]) -> Arguments {
    Arguments::Rename(Rename {
        from: place(from),
        to: place(to),
    })
}

fn link(file: Handle, name: &[u8]) -> Arguments {
    Arguments::Link(Link {
        file,
        place: place(name),
    })
}

fn write(file: Handle, offset: u64, data: &'static [u8]) -> Arguments {
    Arguments::Write(Write {
        file,
        offset,
        stable: Stable::Unstable,
        data: Bytes::from_static(data),
    })
}

fn getattr(object: Handle) -> Arguments {
    Arguments::GetAttr(GetAttr { object })
}

fn chmod(object: Handle, guard: Option<crate::wire::nfs3::attributes::Time>) -> Arguments {
    Arguments::SetAttr(SetAttr {
        object,
        attributes: SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        },
        guard,
    })
}

/// Everything that changes something, on names that are not there yet or on a file.
fn changes(file: Handle) -> Vec<Arguments> {
    let fifo = Node::Fifo(SetAttributes::default());
    vec![
        chmod(file, None),
        write(file, 0, b"x"),
        create(b"new", CreateHow::Exclusive([1; 8])),
        mkdir(b"new"),
        symlink(b"new"),
        mknod(b"new", fifo),
        remove(b"file"),
        rmdir(b"file"),
        rename(b"file", b"new"),
        link(file, b"new"),
        Arguments::Commit(Commit {
            file,
            offset: 0,
            count: 0,
        }),
    ]
}

#[tokio::test]
async fn data_and_attributes_come_back() {
    let world = world();
    let file = world.make(b"file").await;
    let Results::Write(Outcome::Done(written)) = world.results(write(file, 3, b"data")).await
    else {
        panic!("written");
    };
    assert_eq!((written.count, written.committed), (4, Stable::FileSync));
    let (before, after) = (written.wcc.before.unwrap(), written.wcc.after.unwrap());
    assert_eq!((before.size, after.size, after.mtime), (0, 7, time(100, 5)));
    let read = |offset, count| {
        Arguments::Read(Read {
            file,
            offset,
            count,
        })
    };
    for (offset, count, data, eof) in [
        (0, 100, &b"\0\0\0data"[..], true),
        (0, 7, b"\0\0\0data", true),
        (0, 6, b"\0\0\0dat", false),
        (7, 1, b"", true),
        (u64::MAX, u32::MAX, b"", true),
    ] {
        let Results::Read(Outcome::Done(done)) = world.results(read(offset, count)).await else {
            panic!("read");
        };
        assert_eq!((&done.data.concat()[..], done.eof), (data, eof));
        assert_eq!(done.attributes.unwrap().size, 7);
    }
    let commit = Arguments::Commit(Commit {
        file,
        offset: 0,
        count: 0,
    });
    let Results::Commit(Outcome::Done(committed)) = world.results(commit).await else {
        panic!("committed");
    };
    assert_eq!(committed.verifier, written.verifier);
    let Results::GetAttr(Outcome::Done(found)) = world.results(getattr(file)).await else {
        panic!("attributes");
    };
    assert_eq!((found.attributes.uid, found.attributes.mode), (10, 0o644));
    assert_eq!(found.attributes.fsid, 5);
}

#[tokio::test]
async fn names_that_cannot_be_are_refused_by_the_list_of_each_procedure() {
    let world = world();
    let file = world.make(b"file").await;
    let long = [b'n'; 256];
    type Make = fn(&[u8]) -> Arguments;
    let exclusive: Make = |name| create(name, CreateHow::Exclusive([1; 8]));
    let fifo: Make = |name| mknod(name, Node::Fifo(SetAttributes::default()));
    let (access, exists) = (Status::Access, Status::Exists);
    let (no_entry, invalid) = (Status::NoEntry, Status::Invalid);
    for (of_name, impossible, dot, dots) in [
        (exclusive, access, exists, exists),
        (mkdir, access, exists, exists),
        (symlink, access, exists, exists),
        (fifo, access, exists, exists),
        (remove as Make, no_entry, access, access),
        (rmdir, invalid, invalid, exists),
        (
            (|name| rename(name, b"x")) as Make,
            invalid,
            invalid,
            invalid,
        ),
        (|name| rename(b"file", name), invalid, invalid, invalid),
    ] {
        for name in [&b""[..], b"a/b", b"/", b"a\0b"] {
            let status = world.status(of_name(name)).await;
            assert_eq!(status, Some(impossible), "{:?}", of_name(name));
        }
        for (name, expected) in [
            (&b"."[..], dot),
            (b"..", dots),
            (&long, Status::NameTooLong),
        ] {
            let status = world.status(of_name(name)).await;
            assert_eq!(status, Some(expected), "{:?}", of_name(name));
        }
    }
    assert_eq!(world.status(link(file, b"..")).await, Some(exists));
    assert_eq!(world.status(lookup(b"a/b")).await, Some(no_entry));
    for dots in [&b"."[..], b".."] {
        let Results::Lookup(Outcome::Done(done)) = world.results(lookup(dots)).await else {
            panic!("the root is its own parent");
        };
        assert_eq!(done.object, root());
    }
    let longest = [b'n'; 255];
    assert_eq!(world.status(mkdir(&longest)).await, None);
    assert_eq!(world.status(lookup(&longest)).await, None);
}

#[tokio::test]
async fn exclusive_creation_takes_its_own_file_only() {
    let world = world();
    let exclusive = |verifier| create(b"lock", CreateHow::Exclusive([verifier; 8]));
    assert_eq!(world.status(exclusive(1)).await, None);
    assert_eq!(world.status(exclusive(1)).await, None);
    assert_eq!(world.status(exclusive(2)).await, Some(Status::Exists));
    let guarded = create(b"lock", CreateHow::Guarded(SetAttributes::default()));
    assert_eq!(world.status(guarded).await, Some(Status::Exists));
}

#[tokio::test]
async fn handles_tell_stale_from_bad() {
    let world = world();
    let stale = [handle(6, 1, 7), handle(5, 1, 8), handle(5, 9, 7)];
    for handle in stale {
        assert_eq!(world.status(getattr(handle)).await, Some(Status::Stale));
    }
    let mut other_version = [0; 21];
    other_version[0] = 2;
    for bytes in [&b""[..], b"short", &[1; 20], &[1; 22], &other_version] {
        let status = world.status(getattr(Handle::new(bytes))).await;
        assert_eq!(status, Some(Status::BadHandle), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_read_only_export_changes_nothing() {
    let mut world = world();
    let file = world.make(b"file").await;
    let before = world.memory.changes();
    world.client = "10.0.0.2:2000".parse().unwrap();
    for change in changes(file) {
        let procedure = change.procedure();
        let expected = told(procedure, Status::ReadOnly);
        assert_eq!(world.status(change).await, Some(expected), "{procedure:?}");
        if procedure != Procedure::Commit {
            assert_eq!(expected, Status::ReadOnly, "{procedure:?}");
        }
    }
    assert_eq!(world.memory.changes(), before);
    let all = Arguments::Access(Access {
        object: root(),
        access: 0x3f,
    });
    let Results::Access(Outcome::Done(done)) = world.results(all).await else {
        panic!("rights");
    };
    assert_eq!(done.access, access::READ | access::LOOKUP);
}

#[tokio::test]
async fn who_is_not_exported_to_gets_nothing() {
    let mut world = world();
    world.client = "10.0.0.9:700".parse().unwrap();
    assert_eq!(world.status(getattr(root())).await, Some(Status::Stale));
    world.client = "10.0.0.3:1024".parse().unwrap();
    assert_eq!(world.answer(getattr(root())).await, Answer::Weak);
    world.client = "10.0.0.3:1023".parse().unwrap();
    assert_eq!(world.status(getattr(root())).await, None);
}

#[tokio::test]
async fn root_is_squashed() {
    let mut world = world();
    world.credential = Credential::None;
    let file = world.make(b"anonymous").await;
    let Results::GetAttr(Outcome::Done(found)) = world.results(getattr(file)).await else {
        panic!("attributes");
    };
    assert_eq!((found.attributes.uid, found.attributes.gid), (98, 99));
}

#[tokio::test]
async fn what_is_kept_is_what_is_answered() {
    let mut world = world();
    let file = world.make(b"file").await;
    let calls = [
        chmod(file, None),
        create(b"a", CreateHow::Exclusive([1; 8])),
        mkdir(b"b"),
        symlink(b"c"),
        mknod(b"d", Node::Fifo(SetAttributes::default())),
        link(file, b"e"),
        rename(b"e", b"f"),
        remove(b"f"),
        rmdir(b"b"),
    ];
    for (xid, arguments) in (0..).zip(calls) {
        let key = CallKey::new(world.client.ip(), xid, 9);
        world.call = Some(key);
        let results = world.results(arguments).await;
        assert_eq!(results.status(), None);
        assert_eq!(world.memory.kept().pop(), Some((key, encode(&results))));
    }
    assert_eq!(world.memory.kept().len(), 9);
}

#[tokio::test]
async fn nothing_is_answered_where_nothing_may() {
    let world = world();
    world.memory.fail(Some(Error::Unanswerable));
    assert_eq!(world.answer(mkdir(b"d")).await, Answer::Silence);
    world.memory.fail(Some(Error::Quota));
    assert_eq!(world.status(mkdir(b"d")).await, Some(Status::Quota));
    // REMOVE does not have it.
    assert_eq!(world.status(remove(b"d")).await, Some(Status::Io));
}

#[tokio::test]
async fn a_guard_holds() {
    let world = world();
    let file = world.make(b"file").await;
    let status = world.status(chmod(file, Some(time(99, 0)))).await;
    assert_eq!(status, Some(Status::NotSync));
    assert_eq!(world.status(chmod(file, Some(time(100, 5)))).await, None);
}

#[tokio::test]
async fn listings_hold_every_name_once_within_their_bytes() {
    let world = world();
    for number in 0..300 {
        let name = format!("{:0width$}", number, width = 1 + number % 40);
        world.make(format!("f{name}-{number}").as_bytes()).await;
    }
    for maxcount in [300, 512, 1_000, 4_096, 65_536] {
        let (mut cookie, mut plain) = (0, Vec::new());
        loop {
            let asked = ReadDir {
                directory: root(),
                cookie,
                cookie_verifier: [0; 8],
                count: maxcount,
            };
            let results = world.results(Arguments::ReadDir(asked)).await;
            assert!(encode(&results).len() <= 4 + maxcount as usize);
            let Results::ReadDir(Outcome::Done(done)) = results else {
                panic!("{results:?}");
            };
            cookie = done.entries.0.last().map_or(cookie, |entry| entry.cookie);
            plain.extend(done.entries.0.into_iter().map(|entry| entry.name.0));
            if done.eof {
                break;
            }
        }
        assert_eq!(plain.len(), 302, "{maxcount}");
        let (mut cookie, mut plus) = (0, Vec::new());
        loop {
            let asked = ReadDirPlus {
                directory: root(),
                cookie,
                cookie_verifier: [0; 8],
                dircount: maxcount,
                maxcount,
            };
            let results = world.results(Arguments::ReadDirPlus(asked)).await;
            assert!(encode(&results).len() <= 4 + maxcount as usize);
            let Results::ReadDirPlus(Outcome::Done(done)) = results else {
                panic!("{results:?}");
            };
            cookie = done.entries.0.last().map_or(cookie, |entry| entry.cookie);
            for entry in done.entries.0 {
                assert!(entry.handle.is_some() && entry.attributes.is_some());
                plus.push(entry.name.0);
            }
            if done.eof {
                break;
            }
        }
        assert_eq!(plus, plain, "{maxcount}");
    }
    let asked = |cookie, count| {
        Arguments::ReadDir(ReadDir {
            directory: root(),
            cookie,
            cookie_verifier: [0; 8],
            count,
        })
    };
    assert_eq!(world.status(asked(0, 100)).await, Some(Status::TooSmall));
    assert_eq!(
        world.status(asked(u64::MAX, 4_096)).await,
        Some(Status::BadCookie)
    );
}

#[tokio::test]
async fn the_file_system_says_what_it_can() {
    let world = world();
    let of = || OfRoot { object: root() };
    let Results::FsInfo(Outcome::Done(info)) = world.results(Arguments::FsInfo(of())).await else {
        panic!("info");
    };
    assert_eq!((info.rtmax, info.wtmax), (DATA_BYTES_MAX, DATA_BYTES_MAX));
    assert_eq!((info.maxfilesize, info.properties), (1 << 30, 0x1b));
    let Results::FsStat(Outcome::Done(stat)) = world.results(Arguments::FsStat(of())).await else {
        panic!("stat");
    };
    assert_eq!((stat.tbytes, stat.abytes, stat.tfiles), (1_000, 600, 100));
    let conf = world.results(Arguments::PathConf(of())).await;
    let Results::PathConf(Outcome::Done(conf)) = conf else {
        panic!("{conf:?}");
    };
    assert_eq!((conf.linkmax, conf.name_max), (100, 255));
    assert!(conf.no_trunc && !conf.case_insensitive);
}

#[tokio::test]
async fn links_lead_where_they_were_told() {
    let world = world();
    let Results::SymLink(Outcome::Done(made)) = world.results(symlink(b"link")).await else {
        panic!("made");
    };
    let symlink = made.object.unwrap();
    let results = world
        .results(Arguments::ReadLink(ReadLink { symlink }))
        .await;
    let Results::ReadLink(Outcome::Done(read)) = results else {
        panic!("{results:?}");
    };
    assert_eq!(&read.path.0[..], b"../else");
    let of_root = Arguments::ReadLink(ReadLink { symlink: root() });
    assert_eq!(world.status(of_root).await, Some(Status::Invalid));
    let other = world.status(mknod(b"odd", Node::Other(99))).await;
    assert_eq!(other, Some(Status::BadType));
}

#[test]
fn no_procedure_tells_what_it_may_not() {
    for procedure in Procedure::ALL {
        for status in Status::ALL {
            let told = told(*procedure, *status);
            let listed = listed(*procedure);
            assert!(listed.contains(&told), "{procedure:?} {status:?}");
            if listed.contains(status) {
                assert_eq!(told, *status, "{procedure:?}");
            }
        }
    }
    assert_eq!(told(Procedure::Remove, Status::NotOwner), Status::Access);
    assert_eq!(
        told(Procedure::MkDir, Status::TooManyLinks),
        Status::NoSpace
    );
}

#[tokio::test]
async fn exports_are_mounted_by_path() {
    let mut world = world();
    world.results(mkdir(b"below")).await;
    world.make(b"file").await;
    let mounts = Mutex::new(Mounts::default());
    let path = |path: &'static [u8]| DirPath(Bytes::from_static(path));
    for (at, expected) in [
        (&b"/data"[..], Ok(())),
        (b"/data/", Ok(())),
        (b"/data/below", Ok(())),
        (b"/data/./below//", Ok(())),
        (b"/data/../etc", Err(MountStatus::Access)),
        (b"/data/none", Err(MountStatus::NoEntry)),
        (b"/data/file", Err(MountStatus::NotDirectory)),
        (b"/database", Err(MountStatus::NoEntry)),
        (b"/", Err(MountStatus::NoEntry)),
        (b"", Err(MountStatus::Invalid)),
    ] {
        let request = MountRequest::Mnt(path(at));
        let answer = mount::call(&world.ask(), &mounts, request).await;
        let MountAnswer::Mnt(results) = answer else {
            panic!("{answer:?}");
        };
        let status = match results {
            MntResults::Done(_) => Ok(()),
            MntResults::Failed(status) => Err(status),
        };
        assert_eq!(status, expected, "{at:?}");
    }
    let count = async |world: &World| {
        let answer = mount::call(&world.ask(), &mounts, MountRequest::Dump).await;
        let MountAnswer::Dump(list) = answer else {
            panic!("{answer:?}");
        };
        list.0.len()
    };
    assert_eq!(count(&world).await, 4);
    mount::call(&world.ask(), &mounts, MountRequest::Umnt(path(b"/data"))).await;
    assert_eq!(count(&world).await, 3);
    mount::call(&world.ask(), &mounts, MountRequest::UmntAll).await;
    assert_eq!(count(&world).await, 0);
    let MountAnswer::Export(list) = mount::call(&world.ask(), &mounts, MountRequest::Export).await
    else {
        panic!("a list");
    };
    assert_eq!((list.0.len(), list.0[0].groups.0.len()), (1, 3));
    for client in ["10.0.0.9:700", "10.0.0.3:2000"] {
        world.client = client.parse().unwrap();
        let request = MountRequest::Mnt(path(b"/data"));
        let answer = mount::call(&world.ask(), &mounts, request).await;
        let refused = MntResults::Failed(MountStatus::Access);
        assert_eq!(answer, MountAnswer::Mnt(refused));
    }
}
