//! The security stage (RFC 7143 section 12): `None` or CHAP in one or both directions.

use std::fmt;
use std::sync::Arc;

use super::{Entropy, Identity};
use crate::session::chap::{Algorithm, binary, hex, is_equal};
use crate::target::{Access, ChapUser, Targets};
use crate::units::Units;
use crate::wire::response::LoginStatus;
use crate::wire::text::Pairs;

/// Keys of this stage.
const KEYS: [&str; 6] = [
    "AuthMethod",
    "CHAP_A",
    "CHAP_I",
    "CHAP_C",
    "CHAP_N",
    "CHAP_R",
];

pub(super) fn is_key(name: &str) -> bool {
    KEYS.contains(&name)
}

/// How far the initiator has proved who it is.
pub(super) struct Security {
    identifier: u8,
    challenge: [u8; 32],
    state: State,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Security({:?})", self.state)
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    /// No method yet.
    Open,
    /// CHAP; its algorithm is awaited.
    Method,
    /// The challenge was sent.
    Challenged(Algorithm),
    /// Proved as a user, or as nobody where that is enough.
    Proved(Option<String>),
}

impl Security {
    pub(super) fn new(entropy: Entropy) -> Self {
        let [identifier, challenge @ ..] = entropy;
        Self {
            identifier,
            challenge,
            state: State::Open,
        }
    }

    /// Whether the exchange has begun and not ended.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.state, State::Method | State::Challenged(_))
    }

    /// What is left to prove when the stage ends.
    pub(super) fn conclude(
        &mut self,
        targets: &Targets,
        identity: &Identity,
    ) -> Result<(), LoginStatus> {
        match self.state {
            State::Proved(_) => Ok(()),
            State::Open if identity.is_open(targets) => {
                self.state = State::Proved(None);
                Ok(())
            }
            State::Open | State::Method | State::Challenged(_) => {
                Err(LoginStatus::AuthenticationFailure)
            }
        }
    }

    /// Answers the keys of one request.
    pub(super) fn answer(
        &mut self,
        targets: &Targets,
        identity: &Identity,
        pairs: &Pairs,
        reply: &mut Pairs,
    ) -> Result<(), LoginStatus> {
        if let Some(offered) = pairs.value("AuthMethod") {
            self.choose_method(targets, identity, offered, reply)?;
        }
        if let Some(offered) = pairs.value("CHAP_A") {
            if self.state != State::Method {
                return Err(LoginStatus::InitiatorError);
            }
            let algorithm = Algorithm::choose(offered);
            let algorithm = algorithm.ok_or(LoginStatus::AuthenticationFailure)?;
            self.state = State::Challenged(algorithm);
            reply.push("CHAP_A", algorithm.number());
            reply.push("CHAP_I", &self.identifier.to_string());
            reply.push("CHAP_C", &hex(&self.challenge));
        }
        match (pairs.value("CHAP_N"), pairs.value("CHAP_R")) {
            (None, None) => Ok(()),
            (Some(name), Some(response)) => {
                let user = self.verify(targets, identity, name, response)?;
                self.prove(targets, identity, pairs, (&user, reply))?;
                self.state = State::Proved(Some(user.name));
                Ok(())
            }
            _ => Err(LoginStatus::InitiatorError),
        }
    }

    fn choose_method(
        &mut self,
        targets: &Targets,
        identity: &Identity,
        offered: &str,
        reply: &mut Pairs,
    ) -> Result<(), LoginStatus> {
        let has_users = identity.users(targets).next().is_some();
        let is_open = identity.is_open(targets);
        let usable = |offer: &&str| match *offer {
            "CHAP" => has_users,
            "None" => is_open,
            _ => false,
        };
        let method = offered.split(',').find(usable);
        let method = method.ok_or(LoginStatus::AuthenticationFailure)?;
        self.state = match method {
            "CHAP" => State::Method,
            _ => State::Proved(None),
        };
        reply.push("AuthMethod", method);
        Ok(())
    }

    fn verify(
        &self,
        targets: &Targets,
        identity: &Identity,
        name: &str,
        response: &str,
    ) -> Result<ChapUser, LoginStatus> {
        let State::Challenged(algorithm) = self.state else {
            return Err(LoginStatus::InitiatorError);
        };
        let given = binary(response).ok_or(LoginStatus::AuthenticationFailure)?;
        let user = identity.users(targets).find(|user| user.name == name);
        // An unknown name takes the same time as a wrong secret.
        let secret = user.map_or(&[0; 16][..], |user| &user.secret);
        let expected = algorithm.response(self.identifier, secret, &self.challenge);
        let is_right = is_equal(&given, &expected);
        match user.filter(|_| is_right) {
            Some(user) => Ok(user.clone()),
            None => Err(LoginStatus::AuthenticationFailure),
        }
    }

    /// Proves this side, if the initiator asks for it.
    fn prove(
        &self,
        targets: &Targets,
        identity: &Identity,
        pairs: &Pairs,
        (user, reply): (&ChapUser, &mut Pairs),
    ) -> Result<(), LoginStatus> {
        let (identifier, challenge) = match (pairs.value("CHAP_I"), pairs.value("CHAP_C")) {
            (None, None) => return Ok(()),
            (Some(identifier), Some(challenge)) => (identifier, challenge),
            _ => return Err(LoginStatus::InitiatorError),
        };
        let State::Challenged(algorithm) = self.state else {
            return Err(LoginStatus::InitiatorError);
        };
        let identifier = identifier
            .parse()
            .map_err(|_| LoginStatus::InitiatorError)?;
        let challenge = binary(challenge).ok_or(LoginStatus::InitiatorError)?;
        // Our own challenge sent back would have us answer it for the initiator.
        let is_reflected = is_equal(&challenge, &self.challenge);
        let own = identity.own(targets, user);
        // With one secret for both directions an answer of ours is an answer of theirs.
        let own = own.filter(|own| !is_reflected && !is_equal(&own.secret, &user.secret));
        let own = own.ok_or(LoginStatus::AuthenticationFailure)?;
        let response = algorithm.response(identifier, &own.secret, &challenge);
        reply.push("CHAP_N", &own.name);
        reply.push("CHAP_R", &hex(&response));
        Ok(())
    }

    /// What the proved initiator sees.
    pub(super) fn units(&self, identity: &Identity) -> Result<Arc<Units>, LoginStatus> {
        let State::Proved(name) = &self.state else {
            return Err(LoginStatus::AuthenticationFailure);
        };
        let Some((target, _)) = &identity.target else {
            return Ok(Units::none());
        };
        let mut entries = target.entries(&identity.initiator);
        let entry = entries.find(|access| match name {
            Some(name) => access.users.iter().any(|user| user.name == *name),
            None => access.users.is_empty(),
        });
        let entry = entry.ok_or(LoginStatus::AuthorizationFailure)?;
        Ok(Arc::clone(&entry.units))
    }
}

impl Identity {
    /// Users that may prove themselves.
    fn users<'a>(&'a self, targets: &'a Targets) -> impl Iterator<Item = &'a ChapUser> {
        let alone = match &self.target {
            None => &targets.discovery_users[..],
            Some(_) => &[],
        };
        // Who may ask is said, so nobody else may.
        let entries = alone.is_empty().then(|| self.entries(targets));
        let of_entries = entries.into_iter().flatten();
        alone
            .iter()
            .chain(of_entries.flat_map(|access| &access.users))
    }

    /// What is said of the initiator where it wants to go; for a discovery that is everywhere.
    fn entries<'a>(&'a self, targets: &'a Targets) -> Box<dyn Iterator<Item = &'a Access> + 'a> {
        match &self.target {
            None => Box::new(targets.entries(&self.initiator)),
            Some((target, _)) => Box::new(target.entries(&self.initiator)),
        }
    }

    /// Whether nothing has to be proved.
    fn is_open(&self, targets: &Targets) -> bool {
        match &self.target {
            None => targets.discovery_users.is_empty(),
            Some((target, _)) => {
                let mut entries = target.entries(&self.initiator);
                entries.any(|access| access.users.is_empty())
            }
        }
    }

    /// What this side proves to an initiator that proved to be `user`.
    fn own<'a>(&'a self, targets: &'a Targets, user: &ChapUser) -> Option<&'a ChapUser> {
        if self.target.is_none() && !targets.discovery_users.is_empty() {
            return targets.discovery_identity.as_ref();
        }
        let mut entries = self.entries(targets);
        let entry = entries.find(|access| access.users.contains(user));
        entry.and_then(|access| access.identity.as_ref())
    }
}
