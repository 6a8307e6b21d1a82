//! What is no command: NOPs, text with SendTargets, logout, and messages that nobody asked for.

use std::fmt::Write as _;

use bytes::Bytes;
use tokio::time::Instant;

use super::{CloseReason, ConnectionKey, Hold, NUMBERS, Session};
use crate::limits::LOGOUT_TIMEOUT;
use crate::wire::header::{Header, RESERVED_TAG};
use crate::wire::request::{Logout, LogoutReason, NopOut, Text};
use crate::wire::response::{
    AsyncEvent, AsyncMessage, LogoutOutcome, LogoutResponse, NopIn, RejectReason, Response,
    TextResponse,
};
use crate::wire::text::{Pairs, TEXT_BYTES_MAX};

/// A text negotiation of one connection: there is one at a time.
#[derive(Debug, Default)]
pub(super) struct TextExchange {
    /// What came with the C bit.
    request: Vec<u8>,
    /// What is still to be fetched.
    answer: Bytes,
    /// The tag under which it goes on; none if the next request is a new one (section 11.10.4).
    ttt: Option<u32>,
}

impl Session {
    /// Answers a ping; an answer to ours asks for nothing (section 11.18).
    pub(super) fn handle_nop(&mut self, key: ConnectionKey, pdu: NopOut, header: &Header) {
        if pdu.itt == RESERVED_TAG {
            if !pdu.numbers.immediate {
                self.reject(key, RejectReason::ProtocolError, header);
            }
            return;
        }
        let Some(connection) = self.connection(key) else {
            return;
        };
        let most = usize::try_from(connection.parameters.send_data_bytes_max);
        let mut data = pdu.data;
        data.truncate(most.expect("32 bits fit"));
        let nop = NopIn {
            lun: pdu.lun,
            itt: pdu.itt,
            ttt: RESERVED_TAG,
            numbers: NUMBERS,
            data,
        };
        self.send(key, Response::NopIn(nop), Hold::default());
    }

    /// Asks a silent initiator whether it lives.
    pub(super) fn ask(&mut self, key: ConnectionKey) {
        let nop = NopIn {
            lun: 0,
            itt: RESERVED_TAG,
            ttt: self.next_transfer_tag(),
            numbers: NUMBERS,
            data: Bytes::new(),
        };
        self.send(key, Response::NopIn(nop), Hold::default());
    }

    pub(super) fn handle_text(&mut self, key: ConnectionKey, pdu: &Text, header: &Header) {
        let Some(connection) = self.connection(key) else {
            return;
        };
        let text = &mut connection.text;
        let is_new = pdu.ttt == RESERVED_TAG;
        if is_new {
            *text = TextExchange::default();
        } else if text.ttt != Some(pdu.ttt) {
            *text = TextExchange::default();
            return self.reject(key, RejectReason::ProtocolError, header);
        } else if !text.answer.is_empty() {
            // The initiator fetches the rest of an answer.
            return self.send_text(key, pdu);
        }
        let is_wrong =
            text.request.len() + pdu.data.len() > TEXT_BYTES_MAX || (pdu.continues && pdu.is_final);
        if is_wrong {
            *text = TextExchange::default();
            return self.reject(key, RejectReason::ProtocolError, header);
        }
        text.request.extend_from_slice(&pdu.data);
        if pdu.continues {
            return self.send_text(key, pdu);
        }
        let request = std::mem::take(&mut text.request);
        let Ok(pairs) = Pairs::decode(&request) else {
            return self.reject(key, RejectReason::ProtocolError, header);
        };
        let answer = self.answer_text(key, &pairs);
        if let Some(connection) = self.connection(key) {
            connection.text.answer = answer;
        }
        self.send_text(key, pdu);
    }

    /// Sends as much of an answer as fits into one PDU.
    fn send_text(&mut self, key: ConnectionKey, pdu: &Text) {
        let tag = self.next_transfer_tag();
        let Some(connection) = self.connection(key) else {
            return;
        };
        let most = usize::try_from(connection.parameters.send_data_bytes_max);
        let most = most.expect("32 bits fit");
        let text = &mut connection.text;
        let data = text.answer.split_to(text.answer.len().min(most));
        let continues = !text.answer.is_empty();
        let is_final = pdu.is_final && !continues;
        text.ttt = (!is_final).then_some(tag);
        let ttt = text.ttt.unwrap_or(RESERVED_TAG);
        let response = TextResponse {
            is_final,
            continues,
            lun: 0,
            itt: pdu.itt,
            ttt,
            numbers: NUMBERS,
            data,
        };
        self.send(key, Response::Text(response), Hold::default());
    }

    fn answer_text(&mut self, key: ConnectionKey, pairs: &Pairs) -> Bytes {
        let mut answer = String::new();
        for (name, value) in pairs.iter() {
            match name {
                "SendTargets" => match self.send_targets(value) {
                    Some(records) => answer.push_str(&records),
                    None => answer.push_str("SendTargets=Reject\0"),
                },
                "MaxRecvDataSegmentLength" => {
                    let bytes = value.parse().ok();
                    let bytes = bytes.filter(|bytes| (512..1 << 24).contains(bytes));
                    match (bytes, self.connection(key)) {
                        (Some(bytes), Some(one)) => one.parameters.send_data_bytes_max = bytes,
                        _ => answer.push_str("MaxRecvDataSegmentLength=Reject\0"),
                    }
                }
                "InitiatorAlias" => {}
                _ => {
                    let is_known = super::negotiate::is_known(name);
                    let said = if is_known { "Reject" } else { "NotUnderstood" };
                    write!(answer, "{name}={said}\0").expect("a string takes all");
                }
            }
        }
        answer.into()
    }

    /// Records of targets (section 4.3 and appendix C): all of them only in a discovery session,
    /// and only those that the initiator may log in to.
    fn send_targets(&self, value: &str) -> Option<String> {
        let parts = &self.parts;
        let value = value.to_lowercase();
        let mut records = String::new();
        let own = parts.target.as_ref().map(|target| target.name.as_str());
        let wanted = match (value.as_str(), own) {
            ("all", None) => None,
            ("all", Some(_)) => return None,
            ("", None) => return None,
            ("", Some(own)) => Some(own.to_owned()),
            (name, None) => Some(name.to_owned()),
            (name, Some(own)) if name == own => Some(own.to_owned()),
            (_, Some(_)) => return None,
        };
        let visible = parts.targets.visible(&parts.nexus.initiator, parts.local);
        let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
        for target in visible.filter(|target| is_wanted(&target.name)) {
            write!(records, "TargetName={}\0", target.name).expect("a string takes all");
            for address in target.addresses(parts.local) {
                write!(records, "TargetAddress={address}\0").expect("a string takes all");
            }
        }
        Some(records)
    }

    /// Section 11.14.
    pub(super) fn handle_logout(&mut self, key: ConnectionKey, pdu: &Logout) {
        let named = self.connections.iter().find(|one| one.cid == pdu.cid);
        let named = named.map(|one| one.key);
        let outcome = match (pdu.reason, named) {
            (LogoutReason::CloseSession, _) => {
                let others: Vec<_> = self.connections.iter().map(|one| one.key).collect();
                for other in others {
                    self.end_tasks_of(other);
                    if other != key {
                        self.close(other, CloseReason::Logout);
                    }
                }
                self.has_ended = true;
                LogoutOutcome::Closed
            }
            (LogoutReason::CloseConnection, Some(named)) => {
                self.end_tasks_of(named);
                if named != key {
                    self.close(named, CloseReason::Logout);
                }
                LogoutOutcome::Closed
            }
            (LogoutReason::CloseConnection, None) => LogoutOutcome::CidNotFound,
            // Error recovery level 0 knows no recovery of connections.
            (LogoutReason::RemoveConnectionForRecovery, _) => LogoutOutcome::RecoveryNotSupported,
        };
        let response = LogoutResponse {
            response: outcome,
            itt: pdu.itt,
            numbers: NUMBERS,
            time2wait_s: seconds(self.parts.parameters.time2wait_s),
            time2retain_s: seconds(self.parts.parameters.time2retain_s),
        };
        self.send(key, Response::Logout(response), Hold::default());
        let ends_this = match pdu.reason {
            LogoutReason::CloseSession => true,
            LogoutReason::CloseConnection => named == Some(key),
            LogoutReason::RemoveConnectionForRecovery => false,
        };
        if ends_this {
            self.close(key, CloseReason::Logout);
        }
    }

    /// Asks a connection's initiator to log out, and ends the connection if it does not.
    pub fn request_logout(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connection(key).filter(|one| one.logout_by.is_none()) else {
            return;
        };
        connection.logout_by = Some(now + LOGOUT_TIMEOUT);
        let timeout = u16::try_from(LOGOUT_TIMEOUT.as_secs()).expect("a few seconds");
        self.notify(key, AsyncEvent::RequestLogout, [0, 0, timeout]);
    }

    /// Ends the session because its target is gone or an operator drops it.
    pub fn drop_session(&mut self) {
        let keys: Vec<_> = self.connections.iter().map(|one| one.key).collect();
        let wait = seconds(self.parts.parameters.time2wait_s);
        for key in keys {
            self.notify(key, AsyncEvent::DropsSession, [0, wait, 0]);
        }
        self.end();
    }

    fn notify(&mut self, key: ConnectionKey, event: AsyncEvent, parameters: [u16; 3]) {
        let message = AsyncMessage {
            event,
            lun: 0,
            numbers: NUMBERS,
            parameters,
            data: Bytes::new(),
        };
        self.send(key, Response::AsyncMessage(message), Hold::default());
    }
}

fn seconds(value: u32) -> u16 {
    u16::try_from(value).expect("at most an hour")
}
