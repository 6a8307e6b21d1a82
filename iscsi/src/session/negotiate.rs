//! The one table of keys of the operational negotiation (RFC 7143 section 13): default, range, rule
//! and who declares.

use crate::limits::{
    BURST_BYTES_MAX, FIRST_BURST_BYTES_MAX, OUTSTANDING_R2T_MAX, SESSION_CONNECTIONS_MAX,
};
use crate::wire::deframe::Digests;
use crate::wire::text::Pairs;

/// What a session has negotiated; all of its connections have it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionParameters {
    pub max_connections: u32,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// Bytes of one solicited sequence in either direction.
    pub max_burst_bytes: u32,
    /// Unsolicited bytes of a command, its immediate data included.
    pub first_burst_bytes: u32,
    pub max_outstanding_r2t: u32,
    pub time2wait_s: u32,
    pub time2retain_s: u32,
}

/// What one connection has negotiated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionParameters {
    pub digests: Digests,
    /// What the initiator takes in one data segment.
    pub send_data_bytes_max: u32,
}

impl Default for SessionParameters {
    fn default() -> Self {
        Self {
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            max_outstanding_r2t: 1,
            time2wait_s: 2,
            time2retain_s: 20,
        }
    }
}

impl Default for ConnectionParameters {
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            send_data_bytes_max: 8_192,
        }
    }
}

/// What may be offered, and how a result comes about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    /// The first of the offered values that is in this list.
    List(&'static [&'static str]),
    /// The smaller value; ours is the last number, the range the other two.
    Minimum(u32, u32, u32),
    Maximum(u32, u32, u32),
    /// `Yes` if one side says so; ours.
    Or(bool),
    /// `Yes` if both sides say so; ours.
    And(bool),
    /// The initiator says it and gets no answer.
    Declared,
    /// The initiator declares a number in this range.
    DeclaredNumber(u32, u32),
    /// One answer, whatever is offered.
    Answer(&'static str),
}

/// When a key has a meaning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scope {
    /// For every connection.
    Connection,
    /// For a normal session, in its first login.
    Leading,
    /// Like that, and for a discovery session too.
    LeadingAny,
}

#[derive(Debug)]
struct Key {
    name: &'static str,
    scope: Scope,
    rule: Rule,
}

const fn key(name: &'static str, scope: Scope, rule: Rule) -> Key {
    Key { name, scope, rule }
}

const DIGESTS: Rule = Rule::List(&["CRC32C", "None"]);
const DATA_BYTES_MAX: u32 = (1 << 24) - 1;

/// Defaults are those of [`SessionParameters`] and [`ConnectionParameters`].
const KEYS: [Key; 25] = [
    key("HeaderDigest", Scope::Connection, DIGESTS),
    key("DataDigest", Scope::Connection, DIGESTS),
    key(
        "MaxRecvDataSegmentLength",
        Scope::Connection,
        Rule::DeclaredNumber(512, DATA_BYTES_MAX),
    ),
    key(
        "MaxConnections",
        Scope::Leading,
        Rule::Minimum(1, 65_535, SESSION_CONNECTIONS_MAX),
    ),
    key("InitialR2T", Scope::Leading, Rule::Or(false)),
    key("ImmediateData", Scope::Leading, Rule::And(true)),
    key(
        "MaxBurstLength",
        Scope::Leading,
        Rule::Minimum(512, DATA_BYTES_MAX, BURST_BYTES_MAX),
    ),
    key(
        "FirstBurstLength",
        Scope::Leading,
        Rule::Minimum(512, DATA_BYTES_MAX, FIRST_BURST_BYTES_MAX),
    ),
    key(
        "MaxOutstandingR2T",
        Scope::Leading,
        Rule::Minimum(1, 65_535, OUTSTANDING_R2T_MAX),
    ),
    key("DataPDUInOrder", Scope::Leading, Rule::Or(true)),
    key("DataSequenceInOrder", Scope::Leading, Rule::Or(true)),
    key(
        "DefaultTime2Wait",
        Scope::LeadingAny,
        Rule::Maximum(0, 3_600, 2),
    ),
    // A session without connections is not kept: its initiator logs in anew.
    key(
        "DefaultTime2Retain",
        Scope::LeadingAny,
        Rule::Minimum(0, 3_600, 0),
    ),
    key(
        "ErrorRecoveryLevel",
        Scope::LeadingAny,
        Rule::Minimum(0, 2, 0),
    ),
    key("TaskReporting", Scope::Leading, Rule::List(&["RFC3720"])),
    key(
        "iSCSIProtocolLevel",
        Scope::LeadingAny,
        Rule::Minimum(0, 31, 1),
    ),
    // Section 13.26: markers are obsolete, and these are the answers to them.
    key("IFMarker", Scope::Connection, Rule::Answer("No")),
    key("OFMarker", Scope::Connection, Rule::Answer("No")),
    key("IFMarkInt", Scope::Connection, Rule::Answer("Reject")),
    key("OFMarkInt", Scope::Connection, Rule::Answer("Reject")),
    key("InitiatorName", Scope::Connection, Rule::Declared),
    key("InitiatorAlias", Scope::Connection, Rule::Declared),
    key("TargetName", Scope::Connection, Rule::Declared),
    key("SessionType", Scope::Connection, Rule::Declared),
    // Only a target declares this one.
    key("TargetAddress", Scope::Connection, Rule::Answer("Reject")),
];

/// Negotiates what an initiator offers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Negotiation {
    pub(crate) session: SessionParameters,
    pub(crate) connection: ConnectionParameters,
    pub(crate) is_discovery: bool,
    /// The connection joins a session, whose parameters stand.
    pub(crate) is_joining: bool,
}

impl Negotiation {
    /// The answer to one key; none if it has none.
    pub(crate) fn answer(&mut self, name: &str, offered: &str) -> Option<String> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return Some("NotUnderstood".to_owned());
        };
        if key.rule == Rule::Declared || is_no_offer(offered) {
            return None;
        }
        if key.scope == Scope::Leading && self.is_discovery {
            return Some("Irrelevant".to_owned());
        }
        if key.scope != Scope::Connection && self.is_joining {
            return Some("Reject".to_owned());
        }
        if let Rule::DeclaredNumber(min, max) = key.rule {
            return match number(offered) {
                Some(bytes) if (min..=max).contains(&bytes) => {
                    self.connection.send_data_bytes_max = bytes;
                    None
                }
                _ => Some("Reject".to_owned()),
            };
        }
        let value = result(key.rule, offered);
        if let Some(value) = &value {
            self.note(name, value);
        }
        Some(value.unwrap_or_else(|| "Reject".to_owned()))
    }

    /// Keeps a result.
    fn note(&mut self, name: &str, value: &str) {
        let yes = value == "Yes";
        let number = number(value).unwrap_or_default();
        let session = &mut self.session;
        match name {
            "HeaderDigest" => self.connection.digests.header = value == "CRC32C",
            "DataDigest" => self.connection.digests.data = value == "CRC32C",
            "MaxConnections" => session.max_connections = number,
            "InitialR2T" => session.initial_r2t = yes,
            "ImmediateData" => session.immediate_data = yes,
            "MaxBurstLength" => session.max_burst_bytes = number,
            "FirstBurstLength" => session.first_burst_bytes = number,
            "MaxOutstandingR2T" => session.max_outstanding_r2t = number,
            "DefaultTime2Wait" => session.time2wait_s = number,
            "DefaultTime2Retain" => session.time2retain_s = number,
            _ => {}
        }
    }
}

/// Whether a key of this name exists.
pub(crate) fn is_known(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name)
}

/// Whether a key only says who is there or what it wants.
pub(crate) fn is_declared(name: &str) -> bool {
    KEYS.iter()
        .any(|key| key.name == name && key.rule == Rule::Declared)
}

/// Answers to what this side said, never offers.
fn is_no_offer(value: &str) -> bool {
    matches!(value, "NotUnderstood" | "Irrelevant" | "Reject")
}

fn result(rule: Rule, offered: &str) -> Option<String> {
    let yes_or_no = |yes: bool| if yes { "Yes" } else { "No" }.to_owned();
    match rule {
        Rule::List(ours) => {
            let chosen = offered.split(',').find(|offer| ours.contains(offer));
            chosen.map(str::to_owned)
        }
        Rule::Minimum(min, max, ours) => {
            let offered = number(offered).filter(|n| (min..=max).contains(n))?;
            Some(offered.min(ours).to_string())
        }
        Rule::Maximum(min, max, ours) => {
            let offered = number(offered).filter(|n| (min..=max).contains(n))?;
            Some(offered.max(ours).to_string())
        }
        Rule::Or(ours) => boolean(offered).map(|offered| yes_or_no(offered || ours)),
        Rule::And(ours) => boolean(offered).map(|offered| yes_or_no(offered && ours)),
        Rule::Answer(text) => Some(text.to_owned()),
        Rule::Declared | Rule::DeclaredNumber(..) => None,
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// Section 6.1: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

/// Answers to all pairs in their order.
pub(crate) fn answers<'a>(
    negotiation: &mut Negotiation,
    offers: impl Iterator<Item = (&'a str, &'a str)>,
) -> Pairs {
    let mut answers = Pairs::default();
    for (name, offered) in offers {
        if let Some(answer) = negotiation.answer(name, offered) {
            answers.push(name, &answer);
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, offered: &str) -> Option<String> {
        Negotiation::default().answer(name, offered)
    }

    #[test]
    fn every_key_has_its_rule() {
        for (name, offered, expected) in [
            ("HeaderDigest", "CRC32C,None", Some("CRC32C")),
            ("HeaderDigest", "None,CRC32C", Some("None")),
            ("DataDigest", "X,CRC32C", Some("CRC32C")),
            ("DataDigest", "X", Some("Reject")),
            ("MaxRecvDataSegmentLength", "262144", None),
            ("MaxRecvDataSegmentLength", "511", Some("Reject")),
            ("MaxRecvDataSegmentLength", "16777216", Some("Reject")),
            ("MaxConnections", "16", Some("8")),
            ("MaxConnections", "0", Some("Reject")),
            ("InitialR2T", "No", Some("No")),
            ("InitialR2T", "Yes", Some("Yes")),
            ("InitialR2T", "yes", Some("Reject")),
            ("ImmediateData", "Yes", Some("Yes")),
            ("ImmediateData", "No", Some("No")),
            ("MaxBurstLength", "16776192", Some("1048576")),
            ("MaxBurstLength", "0x400", Some("1024")),
            ("FirstBurstLength", "262144", Some("65536")),
            ("FirstBurstLength", "+512", Some("Reject")),
            ("MaxOutstandingR2T", "1", Some("1")),
            ("DataPDUInOrder", "No", Some("Yes")),
            ("DataSequenceInOrder", "No", Some("Yes")),
            ("DefaultTime2Wait", "0", Some("2")),
            ("DefaultTime2Retain", "20", Some("0")),
            ("ErrorRecoveryLevel", "2", Some("0")),
            ("ErrorRecoveryLevel", "3", Some("Reject")),
            ("TaskReporting", "FastAbort,RFC3720", Some("RFC3720")),
            ("iSCSIProtocolLevel", "2", Some("1")),
            ("IFMarker", "Yes", Some("No")),
            ("OFMarkInt", "1~2", Some("Reject")),
            ("InitiatorAlias", "x", None),
            ("X-com.example.key", "1", Some("NotUnderstood")),
            ("maxburstlength", "1", Some("NotUnderstood")),
        ] {
            assert_eq!(
                answer(name, offered).as_deref(),
                expected,
                "{name}={offered}"
            );
        }
    }

    #[test]
    fn results_are_kept_and_refusals_are_not() {
        let mut negotiation = Negotiation::default();
        for (name, offered) in [
            ("InitialR2T", "No"),
            ("MaxBurstLength", "4096"),
            ("FirstBurstLength", "1"),
            ("MaxRecvDataSegmentLength", "1024"),
            ("HeaderDigest", "CRC32C"),
        ] {
            negotiation.answer(name, offered);
        }
        assert!(!negotiation.session.initial_r2t);
        assert_eq!(negotiation.session.max_burst_bytes, 4_096);
        assert_eq!(negotiation.session.first_burst_bytes, 65_536);
        assert_eq!(negotiation.connection.send_data_bytes_max, 1_024);
        assert!(negotiation.connection.digests.header);
    }

    #[test]
    fn keys_of_a_session_mean_nothing_elsewhere() {
        let mut discovery = Negotiation {
            is_discovery: true,
            ..Negotiation::default()
        };
        assert_eq!(
            discovery.answer("InitialR2T", "No").as_deref(),
            Some("Irrelevant")
        );
        assert_eq!(
            discovery.answer("ErrorRecoveryLevel", "1").as_deref(),
            Some("0")
        );
        assert_eq!(
            discovery.answer("HeaderDigest", "None").as_deref(),
            Some("None")
        );
        let mut joining = Negotiation {
            is_joining: true,
            ..Negotiation::default()
        };
        assert_eq!(
            joining.answer("MaxBurstLength", "512").as_deref(),
            Some("Reject")
        );
        assert_eq!(
            joining.answer("DataDigest", "CRC32C").as_deref(),
            Some("CRC32C")
        );
    }
}
