//! Clients that speak by `nfs3_types`, over real sockets.

use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nfs3_types::mount::{dirpath, mountres3};
use nfs3_types::nfs3::{
    CREATE3args, CREATE3res, GETATTR3args, GETATTR3res, MKDIR3args, Nfs3Option, Nfs3Result,
    READ3args, READ3res, WRITE3args, WRITE3res, createhow3, diropargs3, nfs_fh3, sattr3,
    stable_how,
};
use nfs3_types::rpc::{
    accept_stat_data, auth_flavor, auth_unix, call_body, msg_body, opaque_auth, reply_body, rpc_msg,
};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use portico_backend::budget::Budget;
use portico_backend::clock::FixedClock;
use portico_backend::connection::{Stop, StopControl, stop};
use portico_backend::gate::{GateControl, gate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::{Ends, Service, ServiceParts, serve, serve_datagrams};
use crate::export::{Anonymous, Client, Exports, Rule, Share, Squash};
use crate::filesystem::memory::Memory;
use crate::limits::CONNECTIONS_MAX;
use crate::op::portmap::Registration;

struct Server {
    memory: Arc<Memory>,
    service: Arc<Service>,
    address: SocketAddr,
    stop: Stop,
    _controls: (StopControl, GateControl),
}

fn service(memory: &Arc<Memory>) -> (Arc<Service>, GateControl) {
    let rule = Rule {
        client: Client::Any,
        is_read_only: false,
        squash: Squash::Root,
        anonymous: Anonymous {
            uid: 65_534,
            gid: 65_534,
        },
        needs_reserved_port: false,
    };
    let share = Share {
        path: "/data".to_owned(),
        file_system: memory.clone(),
        rules: vec![rule],
    };
    let (control, gate) = gate(true);
    let registered = Registration {
        program: 100_003,
        version: 3,
        is_tcp: true,
        port: 2_049,
    };
    let parts = ServiceParts {
        exports: Exports::new(vec![share]),
        registered: vec![registered],
        budget: Budget::new(64 << 20),
        gate,
        clock: Arc::new(FixedClock::new(1_500)),
    };
    (Arc::new(Service::new(parts)), control)
}

async fn server_of(memory: Arc<Memory>) -> Server {
    let (service, gate_control) = service(&memory);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (control, stop) = stop();
    let (serving, stopping) = (Arc::clone(&service), stop.clone());
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let local = address;
            let ends = Ends { peer, local };
            tokio::spawn(serve(stream, ends, Arc::clone(&serving), stopping.clone()));
        }
    });
    Server {
        memory,
        service,
        address,
        stop,
        _controls: (control, gate_control),
    }
}

async fn server() -> Server {
    server_of(Arc::new(Memory::new(5))).await
}

fn packed<T: Pack>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.pack(&mut bytes).unwrap();
    bytes
}

fn call<A: Pack>(xid: u32, (prog, vers, proc): (u32, u32, u32), arguments: &A) -> Vec<u8> {
    let credential = auth_unix {
        stamp: 1,
        machinename: Opaque::borrowed(b"client"),
        uid: 10,
        gid: 20,
        gids: vec![],
    };
    let message = rpc_msg {
        xid,
        body: msg_body::CALL(call_body {
            rpcvers: 2,
            prog,
            vers,
            proc,
            cred: opaque_auth {
                flavor: auth_flavor::AUTH_UNIX,
                body: Opaque::owned(packed(&credential)),
            },
            verf: opaque_auth::default(),
        }),
    };
    [packed(&message), packed(arguments)].concat()
}

/// The xid of a reply, how it was taken, and its results.
fn reply(record: &[u8]) -> (u32, accept_stat_data, Vec<u8>) {
    let mut cursor = Cursor::new(record);
    let (message, _) = rpc_msg::unpack(&mut cursor).unwrap();
    let msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted)) = message.body else {
        panic!("an accepted reply");
    };
    let at = usize::try_from(cursor.position()).unwrap();
    (message.xid, accepted.reply_data, record[at..].to_vec())
}

fn results<T: Unpack>(bytes: &[u8]) -> T {
    T::unpack(&mut Cursor::new(bytes)).unwrap().0
}

async fn send(stream: &mut TcpStream, record: &[u8]) {
    let mark = 1 << 31 | u32::try_from(record.len()).unwrap();
    stream.write_all(&mark.to_be_bytes()).await.unwrap();
    stream.write_all(record).await.unwrap();
}

async fn receive(stream: &mut TcpStream) -> (u32, Vec<u8>) {
    let mark = stream.read_u32().await.unwrap();
    assert_eq!(mark >> 31, 1, "one fragment");
    let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
    stream.read_exact(&mut record).await.unwrap();
    let (xid, status, results) = reply(&record);
    assert!(matches!(status, accept_stat_data::SUCCESS));
    (xid, results)
}

async fn ask<A: Pack>(stream: &mut TcpStream, what: (u32, u32, u32), arguments: &A) -> Vec<u8> {
    send(stream, &call(77, what, arguments)).await;
    let (xid, results) = receive(stream).await;
    assert_eq!(xid, 77);
    results
}

async fn mount(stream: &mut TcpStream) -> nfs_fh3 {
    let path = dirpath(Opaque::borrowed(b"/data"));
    let answer = ask(stream, (100_005, 3, 1), &path).await;
    let mountres3::Ok(mounted) = results::<mountres3<'_>>(&answer) else {
        panic!("mounted");
    };
    nfs_fh3 {
        data: Opaque::owned(mounted.fhandle.0.to_vec()),
    }
}

fn at<'a>(root: &nfs_fh3, name: &'a [u8]) -> diropargs3<'a> {
    diropargs3 {
        dir: nfs_fh3 {
            data: Opaque::owned(root.data.to_vec()),
        },
        name: name.into(),
    }
}

#[tokio::test]
async fn a_client_mounts_writes_and_reads_over_tcp() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let root = mount(&mut stream).await;
    let create = CREATE3args {
        where_: at(&root, b"file"),
        how: createhow3::UNCHECKED(sattr3 {
            mode: Nfs3Option::Some(0o644),
            ..sattr3::default()
        }),
    };
    let answer = ask(&mut stream, (100_003, 3, 8), &create).await;
    let Nfs3Result::Ok(created) = results::<CREATE3res>(&answer) else {
        panic!("created");
    };
    let Nfs3Option::Some(file) = created.obj else {
        panic!("a handle");
    };
    let file = || nfs_fh3 {
        data: Opaque::owned(file.data.to_vec()),
    };
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    let write = WRITE3args {
        file: file(),
        offset: 0,
        count: 1 << 20,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(&data),
    };
    let answer = ask(&mut stream, (100_003, 3, 7), &write).await;
    let Nfs3Result::Ok(written) = results::<WRITE3res>(&answer) else {
        panic!("written");
    };
    assert_eq!(
        (written.count, written.committed),
        (1 << 20, stable_how::FILE_SYNC)
    );
    let read = READ3args {
        file: file(),
        offset: 0,
        count: u32::MAX,
    };
    let answer = ask(&mut stream, (100_003, 3, 6), &read).await;
    let Nfs3Result::Ok(read) = results::<READ3res<'_>>(&answer) else {
        panic!("read");
    };
    assert!(read.eof && read.data.as_ref() == data);
    let found = ask(
        &mut stream,
        (100_003, 3, 1),
        &GETATTR3args { object: file() },
    )
    .await;
    let Nfs3Result::Ok(found) = results::<GETATTR3res>(&found) else {
        panic!("attributes");
    };
    let attributes = found.obj_attributes;
    assert_eq!((attributes.size, attributes.uid), (1 << 20, 10));
}

#[tokio::test]
async fn a_call_that_comes_again_is_not_done_again() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let root = mount(&mut stream).await;
    let mkdir = MKDIR3args {
        where_: at(&root, b"made"),
        attributes: sattr3::default(),
    };
    let record = call(9, (100_003, 3, 9), &mkdir);
    send(&mut stream, &record).await;
    let (_, first) = receive(&mut stream).await;
    assert_eq!(first[..4], [0; 4], "it was made");
    let changes = server.memory.changes();
    // Over another connection, as after a broken one.
    let mut again = TcpStream::connect(server.address).await.unwrap();
    send(&mut again, &record).await;
    assert_eq!(receive(&mut again).await, (9, first.clone()));
    assert_eq!(server.memory.changes(), changes);
    // And by a server that has only what was logged.
    let after = server_of(Arc::clone(&server.memory)).await;
    for (key, results) in server.memory.kept() {
        after.service.restore(key, &results);
    }
    let mut again = TcpStream::connect(after.address).await.unwrap();
    send(&mut again, &record).await;
    assert_eq!(receive(&mut again).await, (9, first));
    assert_eq!(server.memory.changes(), changes);
    // With another xid it is another call.
    send(&mut again, &call(10, (100_003, 3, 9), &mkdir)).await;
    assert_eq!(receive(&mut again).await.1[..4], 17_u32.to_be_bytes());
}

#[tokio::test]
async fn calls_that_are_sent_together_are_all_answered() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let root = mount(&mut stream).await;
    let (mut input, mut output) = stream.into_split();
    let writing = tokio::spawn(async move {
        for xid in 0..1_000_u32 {
            let object = nfs_fh3 {
                data: Opaque::owned(root.data.to_vec()),
            };
            let record = call(xid, (100_003, 3, 1), &GETATTR3args { object });
            let mark = 1 << 31 | u32::try_from(record.len()).unwrap();
            let bytes = [&mark.to_be_bytes()[..], &record].concat();
            output.write_all(&bytes).await.unwrap();
        }
        output
    });
    let mut xids = Vec::new();
    for _ in 0..1_000 {
        let mark = input.read_u32().await.unwrap();
        let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
        input.read_exact(&mut record).await.unwrap();
        xids.push(reply(&record).0);
    }
    xids.sort_unstable();
    assert_eq!(xids, (0..1_000).collect::<Vec<_>>());
    drop(writing.await.unwrap());
    assert_eq!(
        input.read(&mut [0]).await.unwrap(),
        0,
        "the server ends too"
    );
}

#[tokio::test]
async fn datagrams_ask_for_ports_and_mounts_but_not_for_files() {
    let server = server().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(serve_datagrams(
        socket,
        Arc::clone(&server.service),
        server.stop.clone(),
    ));
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let answer = async |record: Vec<u8>| {
        client.send_to(b"no call", address).await.unwrap();
        client.send_to(&record, address).await.unwrap();
        let mut buffer = vec![0; 65_536];
        let (bytes, _) = client.recv_from(&mut buffer).await.unwrap();
        reply(&buffer[..bytes])
    };
    let mapping = [100_003_u32, 3, 6, 0].map(u32::to_be_bytes).concat();
    let mut record = call(1, (100_000, 2, 3), &0_u32);
    record.truncate(record.len() - 4);
    record.extend_from_slice(&mapping);
    let (xid, _, port) = answer(record).await;
    assert_eq!((xid, &port[..]), (1, &2_049_u32.to_be_bytes()[..]));
    let path = dirpath(Opaque::borrowed(b"/data"));
    let (_, _, mounted) = answer(call(2, (100_005, 3, 1), &path)).await;
    assert!(matches!(
        results::<mountres3<'_>>(&mounted),
        mountres3::Ok(_)
    ));
    let (_, status, _) = answer(call(3, (100_003, 3, 0), &0_u32)).await;
    assert!(matches!(status, accept_stat_data::PROG_UNAVAIL));
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded() {
    let (service, _gate) = service(&Arc::new(Memory::new(5)));
    let (_control, stop) = stop();
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let ends = Ends {
        peer: address,
        local: address,
    };
    let mut clients = Vec::new();
    let mut connect = || {
        let (client, stream) = tokio::io::duplex(64);
        clients.push(client);
        tokio::spawn(serve(stream, ends, Arc::clone(&service), stop.clone()))
    };
    let first: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
    tokio::task::yield_now().await;
    let refused = tokio::time::timeout(Duration::from_secs(60), connect());
    refused.await.expect("it ends at once").unwrap();
    assert!(first.iter().all(|serving| !serving.is_finished()));
}

#[tokio::test]
async fn nothing_is_answered_behind_a_closed_gate() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    server._controls.1.set_open(false);
    send(&mut stream, &call(1, (100_003, 3, 0), &0_u32)).await;
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
}
