//! Advisory locks: the object class `lock` of the OSDs, which judges expiry by their clocks.
//!
//! A lock is an attribute of its object, so taking and giving it back raises the object's version.
//! The calls are made as operations, since the C interface's own block and make missing objects.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::code::{BUSY, EXISTS, NOT_FOUND};
use super::connect::text;
use super::fence::{parse, session_name};
use super::librados::FULL_TRY;
use super::plan::{Check, Planned};
use super::session::{Attempt, Session, object_text};
use crate::error::{Error, ErrorKind};
use crate::object::{LockHolder, LockKind, LockName, LockRequest, ObjectId, SessionId};

/// `ClsLockType` of Ceph.
const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;
/// `LOCK_FLAG_MAY_RENEW`.
const MAY_RENEW: u8 = 1;
/// `CEPH_ENTITY_TYPE_CLIENT`.
const CLIENT: u8 = 8;

/// What begins a cookie that a C text cannot hold; the rest is in hexadecimal digits.
const ENCODED: u8 = b'=';

impl Session {
    pub(super) async fn lock_now(
        &self,
        id: &ObjectId,
        request: &LockRequest,
        attempt: &Attempt,
    ) -> Result<(), Error> {
        let expiry = request.expiry.unwrap_or(Duration::ZERO);
        let mut input = Encoder::default();
        input.text(request.name.0.as_bytes());
        input.0.push(match request.kind {
            LockKind::Exclusive => EXCLUSIVE,
            LockKind::Shared => SHARED,
        });
        input.text(&encode_cookie(&request.cookie));
        // Tag and description.
        input.text(b"");
        input.text(b"portico");
        let seconds = u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX);
        input.0.extend(seconds.to_le_bytes());
        input.0.extend(expiry.subsec_nanos().to_le_bytes());
        input.0.push(if request.renew { MAY_RENEW } else { 0 });
        self.execute(id, "lock", input, attempt).await
    }

    pub(super) async fn unlock_now(
        &self,
        id: &ObjectId,
        name: LockName,
        cookie: &Bytes,
        attempt: &Attempt,
    ) -> Result<(), Error> {
        let mut input = Encoder::default();
        input.text(name.0.as_bytes());
        input.text(&encode_cookie(cookie));
        self.execute(id, "unlock", input, attempt).await
    }

    pub(super) async fn lock_break_now(
        &self,
        id: &ObjectId,
        name: LockName,
        holder: &LockHolder,
        attempt: &Attempt,
    ) -> Result<(), Error> {
        let Some((_, instance)) = parse(&holder.session) else {
            let text = format!("session {} holds no lock of {id}", holder.session);
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        let mut input = Encoder::default();
        input.text(name.0.as_bytes());
        input.0.push(CLIENT);
        input.0.extend(instance.to_le_bytes());
        input.text(&encode_cookie(&holder.cookie));
        self.execute(id, "break_lock", input, attempt).await
    }

    async fn execute(
        &self,
        id: &ObjectId,
        method: &'static str,
        input: Encoder,
        attempt: &Attempt,
    ) -> Result<(), Error> {
        let list = vec![
            Planned::Check(Check::Exists),
            Planned::Lock(method, input.finish()),
        ];
        let io = self.head(&id.pool)?;
        match self.submit(&io, id, list, FULL_TRY, attempt).await? {
            Ok(_) => Ok(()),
            Err(BUSY | EXISTS) => {
                let text = format!("taking a lock of {id}: it is held");
                Err(Error::new(ErrorKind::Locked, text))
            }
            Err(code) => Err(self.error(code, "locking", id)),
        }
    }

    pub(super) async fn lock_holders_now(
        &self,
        id: &ObjectId,
        name: LockName,
    ) -> Result<Vec<LockHolder>, Error> {
        self.check_open()?;
        let (object, lock) = (object_text(id)?, text(name.0)?);
        let io = self.head(&id.pool)?;
        let asked = self
            .shared
            .osd_calls
            .run(move || io.lockers(&object, &lock));
        let asked = tokio::time::timeout(self.shared.options.op_timeout, asked).await;
        let asked = asked.map_err(|_| {
            let text = format!("asking who holds a lock of {id}: no answer in time");
            Error::new(ErrorKind::Unavailable, text)
        })?;
        let (exclusive, [clients, cookies, addresses]) = match asked? {
            Ok(found) => found,
            Err(NOT_FOUND) => return Ok(Vec::new()),
            Err(code) => return Err(self.error(code, "asking who holds a lock of", id)),
        };
        let kind = match exclusive {
            true => LockKind::Exclusive,
            false => LockKind::Shared,
        };
        let holders = clients.iter().zip(addresses).zip(cookies);
        let holders = holders.map(|((client, address), cookie)| LockHolder {
            session: locker(client, &address),
            cookie: decode_cookie(cookie),
            kind,
        });
        Ok(holders.collect())
    }
}

/// `client.4711` and its address.
fn locker(client: &[u8], address: &[u8]) -> SessionId {
    let client = String::from_utf8_lossy(client);
    let instance = client.strip_prefix("client.").and_then(|n| n.parse().ok());
    match instance {
        Some(instance) => session_name(&String::from_utf8_lossy(address), instance),
        None => SessionId(Arc::from(client)),
    }
}

fn encode_cookie(cookie: &[u8]) -> Vec<u8> {
    if !cookie.contains(&0) && cookie.first() != Some(&ENCODED) {
        return cookie.to_vec();
    }
    let digits = cookie
        .iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes());
    std::iter::once(ENCODED).chain(digits).collect()
}

fn decode_cookie(stored: Vec<u8>) -> Bytes {
    let digits = stored.strip_prefix(&[ENCODED]).map(<[u8]>::to_vec);
    let decoded = digits.and_then(|digits| {
        let pair = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16)
                .ok()
                .filter(|_| pair.len() == 2)
        };
        digits.chunks(2).map(pair).collect::<Option<Vec<u8>>>()
    });
    Bytes::from(decoded.unwrap_or(stored))
}

/// The input of a method as Ceph encodes its structures, version 1.
#[derive(Debug, Default)]
struct Encoder(Vec<u8>);

impl Encoder {
    fn text(&mut self, text: &[u8]) {
        let length = u32::try_from(text.len()).expect("names and cookies are short");
        self.0.extend(length.to_le_bytes());
        self.0.extend(text);
    }

    fn finish(self) -> Bytes {
        let length = u32::try_from(self.0.len()).expect("names and cookies are short");
        let mut whole = vec![1, 1];
        whole.extend(length.to_le_bytes());
        whole.extend(self.0);
        Bytes::from(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_come_back() {
        for cookie in [&b""[..], b"auto 123", b"\0", b"=", b"=00", b"a\0b"] {
            let stored = encode_cookie(cookie);
            assert!(!stored.contains(&0));
            assert_eq!(decode_cookie(stored), cookie);
        }
        assert_eq!(encode_cookie(b"auto 123"), b"auto 123");
    }
}
