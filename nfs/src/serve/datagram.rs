//! MOUNT and the port mapper over UDP. NFS itself is served over TCP alone.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use portico_backend::connection::Stop;
use tokio::net::UdpSocket;

use super::dispatch::{Transport, answer};
use super::{Ends, Service};
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::session::call::{Heard, Tls, hear};
use crate::wire::program::{MOUNT_1, MOUNT_2, MOUNT_3, PORTMAP_2, Program, RPCBIND_3, RPCBIND_4};
use crate::wire::rpc::reply::{Accepted, Reply};
use crate::wire::xdr::{Writer, Xdr};

/// What is served over UDP.
const PROGRAMS: &[&Program] = &[
    &MOUNT_1, &MOUNT_2, &MOUNT_3, &PORTMAP_2, &RPCBIND_3, &RPCBIND_4,
];

/// Answers datagrams until `stop` is requested, one after another: none takes long.
///
/// # Errors
/// If the socket fails.
pub async fn serve_datagrams(
    socket: UdpSocket,
    service: Arc<Service>,
    stop: Stop,
) -> io::Result<()> {
    let local = socket.local_addr()?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            () = stop.requested() => return Ok(()),
        };
        // An error of an earlier datagram that nobody took.
        let Ok((bytes, peer)) = received else {
            continue;
        };
        let ends = Ends { peer, local };
        let datagram = Bytes::copy_from_slice(&buffer[..bytes]);
        let Some(reply) = reply(&service, ends, datagram).await else {
            continue;
        };
        if service.gate.is_open()
            && let Err(error) = socket.send_to(&reply, peer).await
        {
            tracing::debug!(%peer, %error, "a datagram was not sent");
        }
    }
}

async fn reply(service: &Arc<Service>, ends: Ends, datagram: Bytes) -> Option<Vec<u8>> {
    match hear(datagram, PROGRAMS, Tls::Unavailable).ok()? {
        Heard::Answer(reply) | Heard::StartTls(reply) => Some(head(&reply)),
        Heard::Call(call) => {
            let xid = call.xid;
            let parts = answer(service, ends, Transport::Datagram, *call).await?;
            let reply = parts.concat();
            // A list that is longer is there over TCP.
            match reply.len() <= DATAGRAM_BYTES_MAX {
                true => Some(reply),
                false => Some(head(&Reply::accepted(xid, Accepted::SystemError))),
            }
        }
    }
}

fn head(reply: &Reply) -> Vec<u8> {
    let mut writer = Writer::datagram();
    reply.write(&mut writer);
    writer.finish().concat()
}
