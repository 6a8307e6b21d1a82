//! One connection's login (RFC 7143 sections 6.3 and 11.12): who it is, whether it may, and what was
//! negotiated. Whether its session exists is asked at the end, of [`super::registry`].

mod security;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::negotiate::{
    ConnectionParameters, Negotiation, SessionParameters, answers, is_declared,
};
use crate::limits::RECEIVE_DATA_BYTES_MAX;
use crate::limits::{LOGIN_DATA_BYTES_MAX, LOGIN_REQUESTS_MAX, NAME_BYTES_MAX};
use crate::target::{LocalAddress, Portal, Target, Targets};
use crate::units::Units;
use crate::wire::request::{self, Stage};
use crate::wire::response::{LoginResponse, LoginStatus, Numbers};
use crate::wire::serial::Serial;
use crate::wire::text::{Pairs, TEXT_BYTES_MAX};
use security::Security;

/// Random bytes of one login: a challenge and its identifier.
pub type Entropy = [u8; 33];

/// A login under way. After a refusal or an admission it takes no more requests.
#[derive(Debug)]
pub struct Login {
    targets: Arc<Targets>,
    local: LocalAddress,
    begun: Option<Begun>,
    requests: u32,
    stage: Stage,
    text: Vec<u8>,
    /// Keys that were negotiated: none comes twice (section 6.3). Of those that only say who is
    /// there also what they said, since initiators say it in each stage.
    seen: BTreeMap<String, Option<String>>,
    identity: Option<Identity>,
    security: Security,
    negotiation: Negotiation,
    has_declared: bool,
    has_named_group: bool,
    stat_sn: Serial,
}

/// What the first request said and no later one may change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Begun {
    isid: [u8; 6],
    tsih: u16,
    cid: u16,
    itt: u32,
    cmd_sn: Serial,
}

/// Who logs in, and to what.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) initiator: String,
    /// None for a discovery session.
    pub(super) target: Option<(Arc<Target>, Portal)>,
}

/// What has to be done after a request.
#[derive(Debug)]
pub enum Step {
    Reply(LoginResponse),
    /// Answer and close the connection.
    Refuse(LoginResponse),
    /// Ask for a place in a session, then [`Login::conclude`].
    Admit(Box<Admission>),
}

/// A connection that may join a session or begin one.
#[derive(Clone, Debug)]
pub struct Admission {
    pub initiator: String,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub cid: u16,
    pub cmd_sn: Serial,
    /// None for a discovery session.
    pub target: Option<(Arc<Target>, Portal)>,
    pub units: Arc<Units>,
    pub session: SessionParameters,
    pub connection: ConnectionParameters,
    /// `StatSN` of the last response, which is sent yet.
    pub stat_sn: Serial,
    reply: Pairs,
    current_stage: Stage,
}

/// What a session says of a connection that it took in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Admitted {
    pub tsih: u16,
    pub exp_cmd_sn: Serial,
    pub max_cmd_sn: Serial,
}

impl Login {
    /// `local`: the address that the initiator reached.
    #[must_use]
    pub fn new(targets: Arc<Targets>, local: LocalAddress, entropy: Entropy) -> Self {
        Self {
            targets,
            local,
            begun: None,
            requests: 0,
            stage: Stage::SecurityNegotiation,
            text: Vec::new(),
            seen: BTreeMap::new(),
            identity: None,
            security: Security::new(entropy),
            negotiation: Negotiation::default(),
            has_declared: false,
            has_named_group: false,
            stat_sn: Serial(1),
        }
    }

    /// The next request of the initiator.
    pub fn handle_pdu(&mut self, pdu: &request::Login) -> Step {
        match self.step(pdu) {
            Ok(step) => step,
            Err(status) => self.refuse(pdu, status),
        }
    }

    /// Answers a PDU that is no login request.
    pub fn refuse_other(&mut self, itt: u32) -> LoginResponse {
        let mut response =
            self.response(Stage::SecurityNegotiation, LoginStatus::InvalidDuringLogin);
        response.itt = itt;
        response
    }

    fn step(&mut self, pdu: &request::Login) -> Result<Step, LoginStatus> {
        self.requests += 1;
        self.begin(pdu)?;
        if self.requests > LOGIN_REQUESTS_MAX
            || self.text.len() + pdu.data.len() > TEXT_BYTES_MAX
            || pdu.data.len() > usize::try_from(LOGIN_DATA_BYTES_MAX).expect("32 bits fit")
        {
            return Err(LoginStatus::InitiatorError);
        }
        self.text.extend_from_slice(&pdu.data);
        if pdu.continues {
            if pdu.transit {
                return Err(LoginStatus::InitiatorError);
            }
            return Ok(Step::Reply(self.reply(Pairs::default(), None)));
        }
        let text = std::mem::take(&mut self.text);
        let pairs = Pairs::decode(&text).map_err(|_| LoginStatus::InitiatorError)?;
        for (name, value) in pairs.iter() {
            let said = is_declared(name).then(|| value.to_owned());
            let before = self.seen.insert(name.to_owned(), said.clone());
            if before.is_some_and(|before| before.is_none() || before != said) {
                return Err(LoginStatus::InitiatorError);
            }
        }
        if self.identity.is_none() {
            self.identify(&pairs)?;
        }
        let reply = self.negotiate(&pairs)?;
        self.transit(pdu, reply)
    }

    /// Checks a request against the first one.
    fn begin(&mut self, pdu: &request::Login) -> Result<(), LoginStatus> {
        let begun = Begun {
            isid: pdu.isid,
            tsih: pdu.tsih,
            cid: pdu.cid,
            itt: pdu.itt,
            cmd_sn: pdu.numbers.cmd_sn,
        };
        match self.begun {
            None => {
                self.begun = Some(begun);
                self.stage = pdu.current_stage;
                self.negotiation.is_joining = pdu.tsih != 0;
                self.stat_sn = pdu.numbers.exp_stat_sn;
                if pdu.version_min > 0 {
                    return Err(LoginStatus::UnsupportedVersion);
                }
            }
            // The command number may stand still: login requests are immediate.
            Some(first)
                if Begun {
                    cmd_sn: first.cmd_sn,
                    ..begun
                } != first =>
            {
                return Err(LoginStatus::InitiatorError);
            }
            Some(_) => {}
        }
        if pdu.current_stage != self.stage || self.stage == Stage::FullFeaturePhase {
            return Err(LoginStatus::InitiatorError);
        }
        Ok(())
    }

    /// Finds out from the first text who is there and what it wants (section 6.3).
    fn identify(&mut self, pairs: &Pairs) -> Result<(), LoginStatus> {
        let name = pairs.value("InitiatorName");
        let initiator = iscsi_name(name.ok_or(LoginStatus::MissingParameter)?)?;
        let target = match pairs.value("SessionType").unwrap_or("Normal") {
            "Discovery" => None,
            "Normal" => {
                let name = pairs.value("TargetName");
                let name = iscsi_name(name.ok_or(LoginStatus::MissingParameter)?)?;
                let found = self.targets.find(&name, self.local);
                let (target, portal) = found.ok_or(LoginStatus::NotFound)?;
                if !target.admits(&initiator) {
                    return Err(LoginStatus::AuthorizationFailure);
                }
                Some((Arc::clone(target), portal))
            }
            _ => return Err(LoginStatus::SessionTypeNotSupported),
        };
        self.negotiation.is_discovery = target.is_none();
        self.identity = Some(Identity { initiator, target });
        Ok(())
    }

    fn negotiate(&mut self, pairs: &Pairs) -> Result<Pairs, LoginStatus> {
        let identity = self.identity.as_ref().ok_or(LoginStatus::InitiatorError)?;
        let mut reply = Pairs::default();
        let has_security = pairs.iter().any(|(name, _)| security::is_key(name));
        if self.stage == Stage::SecurityNegotiation {
            self.security
                .answer(&self.targets, identity, pairs, &mut reply)?;
        } else if has_security {
            return Err(LoginStatus::InitiatorError);
        }
        if let Some((target, portal)) = &identity.target
            && !self.has_named_group
        {
            self.has_named_group = true;
            if let Some(alias) = &target.alias {
                reply.push("TargetAlias", alias);
            }
            reply.push("TargetPortalGroupTag", &portal.group_tag.to_string());
        }
        let offers = pairs.iter().filter(|(name, _)| !security::is_key(name));
        for (name, answer) in answers(&mut self.negotiation, offers).iter() {
            reply.push(name, answer);
        }
        if self.stage == Stage::LoginOperationalNegotiation && !self.has_declared {
            self.has_declared = true;
            reply.push(
                "MaxRecvDataSegmentLength",
                &RECEIVE_DATA_BYTES_MAX.to_string(),
            );
        }
        Ok(reply)
    }

    /// Goes on to the next stage if both sides are ready.
    fn transit(&mut self, pdu: &request::Login, reply: Pairs) -> Result<Step, LoginStatus> {
        let identity = self.identity.as_ref().ok_or(LoginStatus::InitiatorError)?;
        if self.stage == Stage::LoginOperationalNegotiation {
            // Who skips the security stage proves nothing.
            self.security.conclude(&self.targets, identity)?;
        }
        if !pdu.transit {
            return Ok(Step::Reply(self.reply(reply, None)));
        }
        if self.stage == Stage::SecurityNegotiation {
            if self.security.is_under_way() {
                return Ok(Step::Reply(self.reply(reply, None)));
            }
            self.security.conclude(&self.targets, identity)?;
        }
        match (self.stage, pdu.next_stage) {
            (Stage::SecurityNegotiation, Stage::LoginOperationalNegotiation) => {
                let response = self.reply(reply, Some(pdu.next_stage));
                self.stage = pdu.next_stage;
                Ok(Step::Reply(response))
            }
            (
                Stage::SecurityNegotiation | Stage::LoginOperationalNegotiation,
                Stage::FullFeaturePhase,
            ) => self.admit(reply),
            _ => Err(LoginStatus::InitiatorError),
        }
    }

    fn admit(&mut self, reply: Pairs) -> Result<Step, LoginStatus> {
        let identity = self.identity.clone().ok_or(LoginStatus::InitiatorError)?;
        let begun = self.begun.ok_or(LoginStatus::InitiatorError)?;
        let units = self.security.units(&identity)?;
        let mut session = self.negotiation.session;
        session.first_burst_bytes = session.first_burst_bytes.min(session.max_burst_bytes);
        Ok(Step::Admit(Box::new(Admission {
            initiator: identity.initiator,
            isid: begun.isid,
            tsih: begun.tsih,
            cid: begun.cid,
            cmd_sn: begun.cmd_sn,
            target: identity.target,
            units,
            session,
            connection: self.negotiation.connection,
            stat_sn: self.stat_sn,
            reply,
            current_stage: self.stage,
        })))
    }

    /// The last response: the session's answer to the admission.
    pub fn conclude(
        &mut self,
        admission: Admission,
        result: Result<Admitted, LoginStatus>,
    ) -> LoginResponse {
        match result {
            Ok(admitted) => {
                let next = Some(Stage::FullFeaturePhase);
                let mut response = self.reply(admission.reply, next);
                response.tsih = admitted.tsih;
                response.numbers.exp_cmd_sn = admitted.exp_cmd_sn;
                response.numbers.max_cmd_sn = admitted.max_cmd_sn;
                response
            }
            Err(status) => self.response(admission.current_stage, status),
        }
    }

    fn refuse(&mut self, pdu: &request::Login, status: LoginStatus) -> Step {
        let mut response = self.response(pdu.current_stage, status);
        response.isid = pdu.isid;
        response.itt = pdu.itt;
        Step::Refuse(response)
    }

    fn reply(&mut self, pairs: Pairs, next: Option<Stage>) -> LoginResponse {
        let mut response = self.response(self.stage, LoginStatus::Success);
        response.transit = next.is_some();
        response.next_stage = next.unwrap_or(self.stage);
        response.data = Bytes::from(pairs.encode());
        drop(pairs);
        response
    }

    fn response(&mut self, stage: Stage, status: LoginStatus) -> LoginResponse {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        let begun = self.begun.unwrap_or(Begun {
            isid: [0; 6],
            tsih: 0,
            cid: 0,
            itt: 0,
            cmd_sn: Serial(0),
        });
        LoginResponse {
            transit: false,
            continues: false,
            current_stage: stage,
            next_stage: stage,
            version_max: 0,
            version_active: 0,
            isid: begun.isid,
            tsih: begun.tsih,
            itt: begun.itt,
            numbers: Numbers {
                stat_sn,
                exp_cmd_sn: begun.cmd_sn,
                max_cmd_sn: begun.cmd_sn,
            },
            status,
            data: Bytes::new(),
        }
    }
}

/// A name as it is compared: in lower case (section 4.2.7.2, RFC 3722).
fn iscsi_name(name: &str) -> Result<String, LoginStatus> {
    let name = name.to_lowercase();
    let has_form = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|form| name.starts_with(form));
    match has_form && name.len() <= NAME_BYTES_MAX {
        true => Ok(name),
        false => Err(LoginStatus::InitiatorError),
    }
}
