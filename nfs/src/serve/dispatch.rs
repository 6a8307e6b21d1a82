//! Does one call.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Ends, Service};
use crate::op::admit::Ask;
use crate::op::nfs3::{self, Answer};
use crate::op::{mount, portmap};
use crate::session::call::Inbound;
use crate::session::reply_cache::{Begin, CallKey};
use crate::session::request::Request;
use crate::wire::nfs3::attributes::Time;
use crate::wire::program::Again;
use crate::wire::rpc::reply::{Accepted, AuthStatus, Denied, Reply};
use crate::wire::xdr::{Writer, Xdr};

/// How a call came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Transport {
    Stream,
    Datagram,
}

impl Transport {
    pub(super) fn writer(self) -> Writer {
        match self {
            Self::Stream => Writer::record(),
            Self::Datagram => Writer::datagram(),
        }
    }
}

/// The parts of a reply, or `None` if there is none.
pub(super) async fn answer(
    service: &Arc<Service>,
    ends: Ends,
    transport: Transport,
    call: Inbound,
) -> Option<Vec<Bytes>> {
    if call.again == Again::Harmless {
        return execute(service, ends, transport, call, None).await;
    }
    let key = CallKey::new(ends.peer.ip(), call.xid, call.checksum);
    let (sender, receiver) = oneshot::channel();
    let begin = service
        .replies()
        .begin(key, call.again, || sender, service.now_ms());
    match begin {
        Begin::Replay(results) => Some(success(transport, call.xid, &results)),
        Begin::Wait => {
            let results = receiver.await.ok()?;
            Some(success(transport, call.xid, &results))
        }
        Begin::Ignore => None,
        Begin::Execute => {
            let running = Running {
                service: Arc::clone(service),
                key: Some(key),
            };
            execute(service, ends, transport, call, Some(running)).await
        }
    }
}

/// A call that is in the table of replies until this is dropped or ended.
struct Running {
    service: Arc<Service>,
    key: Option<CallKey>,
}

impl Running {
    fn end(mut self, results: &Bytes) {
        self.finish(Some(results));
    }

    fn finish(&mut self, results: Option<&Bytes>) {
        let Some(key) = self.key.take() else {
            return;
        };
        let now_ms = self.service.now_ms();
        let waiting = self.service.replies().finish(key, results.cloned(), now_ms);
        for waiter in waiting {
            if let Some(results) = results {
                // Whoever does not wait any more needs nothing.
                drop(waiter.send(results.clone()));
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.finish(None);
    }
}

async fn execute(
    service: &Arc<Service>,
    ends: Ends,
    transport: Transport,
    call: Inbound,
    running: Option<Running>,
) -> Option<Vec<Bytes>> {
    let exports = service.exports();
    let ask = Ask {
        exports: &exports,
        client: ends.peer,
        credential: &call.credential,
        now: now(service),
        call: running
            .as_ref()
            .filter(|_| call.again == Again::Changes)
            .and_then(|running| running.key),
    };
    let xid = call.xid;
    let mut writer = transport.writer();
    let accept = |writer: &mut Writer| Reply::accepted(xid, Accepted::Success).write(writer);
    match call.request {
        Request::Nfs3(arguments) => match nfs3::call(&ask, arguments).await {
            Answer::Results(results) => {
                if let Some(running) = running {
                    running.end(&nfs3::encode(&results));
                }
                accept(&mut writer);
                results.write(&mut writer);
            }
            Answer::Weak => {
                let denied = Denied::AuthError(AuthStatus::TooWeak);
                Reply::denied(xid, denied).write(&mut writer);
            }
            Answer::Silence => return None,
        },
        Request::Mount(request) => {
            let answer = mount::call(&ask, &service.mounts, request).await;
            accept(&mut writer);
            answer.write(&mut writer);
        }
        Request::Pmap(request) => {
            accept(&mut writer);
            portmap::pmap(&service.registered, request).write(&mut writer);
        }
        Request::Rpcb(request) => {
            accept(&mut writer);
            let is_tcp = transport == Transport::Stream;
            portmap::rpcb(&service.registered, &request, ends.local, is_tcp).write(&mut writer);
        }
    }
    Some(writer.finish())
}

/// A reply with results that were encoded before.
fn success(transport: Transport, xid: u32, results: &[u8]) -> Vec<Bytes> {
    let mut writer = transport.writer();
    Reply::accepted(xid, Accepted::Success).write(&mut writer);
    writer.encoded(results);
    writer.finish()
}

/// Wall time as files have it.
fn now(service: &Service) -> Time {
    let now_ms = service.clock.now_ms();
    let milliseconds = u32::try_from(now_ms % 1_000).expect("less than 1,000");
    Time {
        seconds: u32::try_from(now_ms / 1_000).unwrap_or(u32::MAX),
        nanoseconds: milliseconds * 1_000_000,
    }
}
