//! Access control lists: canned ones, kept by name, and lists of grants.
//!
//! A list says what others may do beside the owner, whose rights it cannot take away: see
//! [`super::access`].

use std::collections::BTreeSet;

use http::HeaderMap;

use crate::error::{Code, S3Error};

mod document;

pub(crate) use document::{from_document, to_document};

/// Who may do what with a bucket or an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Acl {
    Canned(Canned),
    /// At most [`GRANTS_MAX`].
    Grants(Vec<Grant>),
}

/// A canned list (S3 API, "Access control list overview").
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Canned {
    AuthenticatedRead,
    BucketOwnerFullControl,
    BucketOwnerRead,
    #[default]
    Private,
    PublicRead,
    PublicReadWrite,
}

/// One line of a list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Grant {
    pub(crate) grantee: Grantee,
    pub(crate) right: Right,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Grantee {
    /// Whoever asks.
    Everybody,
    /// Whoever signs.
    SignedIn,
    /// The user with this id.
    User(String),
}

/// What a grant allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Right {
    FullControl,
    Read,
    ReadAcp,
    Write,
    WriteAcp,
}

/// Grants of one list (S3 API, "Access control list overview").
const GRANTS_MAX: usize = 100;

const EVERYBODY: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const SIGNED_IN: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";

const CANNED: [(Canned, &str); 6] = [
    (Canned::AuthenticatedRead, "authenticated-read"),
    (Canned::BucketOwnerFullControl, "bucket-owner-full-control"),
    (Canned::BucketOwnerRead, "bucket-owner-read"),
    (Canned::Private, "private"),
    (Canned::PublicRead, "public-read"),
    (Canned::PublicReadWrite, "public-read-write"),
];

const RIGHTS: [(Right, &str, &str); 5] = [
    (
        Right::FullControl,
        "FULL_CONTROL",
        "x-amz-grant-full-control",
    ),
    (Right::Read, "READ", "x-amz-grant-read"),
    (Right::ReadAcp, "READ_ACP", "x-amz-grant-read-acp"),
    (Right::Write, "WRITE", "x-amz-grant-write"),
    (Right::WriteAcp, "WRITE_ACP", "x-amz-grant-write-acp"),
];

impl Default for Acl {
    fn default() -> Self {
        Self::Canned(Canned::Private)
    }
}

impl Acl {
    /// What the headers of a request ask for; `None` if they say nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for what the API does not have, `InvalidRequest` for a canned list and
    /// grants at once, `NotImplemented` for lists that cannot be kept.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, S3Error> {
        let grants = grants_of_headers(headers)?;
        let Some(value) = headers.get("x-amz-acl") else {
            return Ok((!grants.is_empty()).then_some(Self::Grants(grants)));
        };
        if !grants.is_empty() {
            return Err(S3Error::new(Code::InvalidRequest)
                .with_message("Specifying both Canned ACLs and Header Grants is not allowed"));
        }
        let value = value.to_str().unwrap_or_default();
        if let Some((canned, _)) = CANNED.iter().find(|(_, name)| *name == value) {
            return Ok(Some(Self::Canned(*canned)));
        }
        match value {
            "aws-exec-read" | "log-delivery-write" => Err(S3Error::not_implemented(value)),
            _ => Err(S3Error::invalid_argument(
                "x-amz-acl",
                value,
                "Invalid Argument",
            )),
        }
    }

    /// The list kept as `text`. What is not known in it grants nothing.
    pub(crate) fn from_stored(text: &str) -> Self {
        if text.is_empty() {
            return Self::default();
        }
        if let Some((canned, _)) = CANNED.iter().find(|(_, name)| *name == text) {
            return Self::Canned(*canned);
        }
        Self::Grants(text.lines().filter_map(Grant::from_stored).collect())
    }

    /// The form in which the list is kept; empty for the owner alone.
    pub(crate) fn stored(&self) -> String {
        match self {
            Self::Canned(Canned::Private) => String::new(),
            Self::Canned(canned) => canned.name().to_owned(),
            Self::Grants(grants) => {
                let lines: Vec<String> = grants.iter().map(Grant::stored).collect();
                // Without grants a list is not the canned one, though it allows the same.
                if lines.is_empty() {
                    "-".to_owned()
                } else {
                    lines.join("\n")
                }
            }
        }
    }

    /// All lines of the list of a thing of `owner`'s, which lies in a bucket of `bucket_owner`'s
    /// or is that bucket.
    pub(crate) fn grants(&self, owner: &str, bucket_owner: &str) -> Vec<Grant> {
        let canned = match self {
            Self::Canned(canned) => *canned,
            Self::Grants(grants) => return grants.clone(),
        };
        let user = |id: &str| Grantee::User(id.to_owned());
        let mut grants = vec![Grant::new(user(owner), Right::FullControl)];
        match canned {
            Canned::AuthenticatedRead => grants.push(Grant::new(Grantee::SignedIn, Right::Read)),
            Canned::BucketOwnerFullControl if owner != bucket_owner => {
                grants.push(Grant::new(user(bucket_owner), Right::FullControl));
            }
            Canned::BucketOwnerRead if owner != bucket_owner => {
                grants.push(Grant::new(user(bucket_owner), Right::Read));
            }
            Canned::BucketOwnerFullControl | Canned::BucketOwnerRead | Canned::Private => {}
            Canned::PublicRead => grants.push(Grant::new(Grantee::Everybody, Right::Read)),
            Canned::PublicReadWrite => {
                grants.push(Grant::new(Grantee::Everybody, Right::Read));
                grants.push(Grant::new(Grantee::Everybody, Right::Write));
            }
        }
        grants
    }

    /// Whether the list allows `right` to somebody who is not the owner: a user by id, or nobody
    /// in particular.
    pub(crate) fn allows(&self, asker: Option<&str>, right: Right) -> bool {
        let meant = |grantee: &Grantee| match grantee {
            Grantee::Everybody => true,
            Grantee::SignedIn => asker.is_some(),
            Grantee::User(id) => asker == Some(id),
        };
        // No asker has an empty id, so what a canned list grants to owners is left out here.
        self.grants("", "")
            .iter()
            .any(|grant| meant(&grant.grantee) && grant.right.includes(right))
    }

    /// The users that a list of grants names.
    pub(crate) fn users(&self) -> BTreeSet<&str> {
        match self {
            Self::Canned(_) => BTreeSet::new(),
            Self::Grants(grants) => grants
                .iter()
                .filter_map(|grant| match &grant.grantee {
                    Grantee::Everybody | Grantee::SignedIn => None,
                    Grantee::User(id) => Some(id.as_str()),
                })
                .collect(),
        }
    }
}

impl Canned {
    fn name(self) -> &'static str {
        let row = CANNED.iter().find(|(canned, _)| *canned == self);
        row.map(|(_, name)| *name)
            .expect("the table has every canned list")
    }
}

impl Grant {
    fn new(grantee: Grantee, right: Right) -> Self {
        Self { grantee, right }
    }

    fn stored(&self) -> String {
        let right = self.right.name();
        match &self.grantee {
            Grantee::Everybody => format!("{right} everybody"),
            Grantee::SignedIn => format!("{right} signed-in"),
            Grantee::User(id) => format!("{right} user {id}"),
        }
    }

    fn from_stored(line: &str) -> Option<Self> {
        let (right, grantee) = line.split_once(' ')?;
        let grantee = match grantee.split_once(' ') {
            None if grantee == "everybody" => Grantee::Everybody,
            None if grantee == "signed-in" => Grantee::SignedIn,
            Some(("user", id)) => Grantee::User(id.to_owned()),
            Some(_) | None => return None,
        };
        Some(Self::new(grantee, Right::from_name(right)?))
    }
}

impl Grantee {
    /// The group with this URI.
    fn of_group(uri: &str) -> Result<Self, S3Error> {
        match uri {
            EVERYBODY => Ok(Self::Everybody),
            SIGNED_IN => Ok(Self::SignedIn),
            _ => Err(S3Error::invalid_argument("Group", uri, "Invalid group uri")),
        }
    }

    /// The user with this id.
    fn of_id(id: &str) -> Result<Self, S3Error> {
        // Lines are what separates grants in their stored form.
        if id.is_empty() || id.contains(char::is_control) {
            return Err(S3Error::invalid_argument(
                "CanonicalUser/ID",
                id,
                "Invalid id",
            ));
        }
        Ok(Self::User(id.to_owned()))
    }
}

impl Right {
    fn name(self) -> &'static str {
        let row = RIGHTS.iter().find(|(right, ..)| *right == self);
        row.map(|(_, name, _)| *name)
            .expect("the table has every right")
    }

    fn from_name(name: &str) -> Option<Self> {
        let row = RIGHTS.iter().find(|(_, other, _)| *other == name);
        row.map(|(right, ..)| *right)
    }

    fn includes(self, other: Self) -> bool {
        self == Self::FullControl || self == other
    }
}

/// `x-amz-grant-read: id="...", uri="..."` and its companions.
fn grants_of_headers(headers: &HeaderMap) -> Result<Vec<Grant>, S3Error> {
    let mut grants = Vec::new();
    for (right, _, name) in RIGHTS {
        for value in headers.get_all(name) {
            let value = value.to_str().unwrap_or("=");
            for one in value.split(',') {
                grants.push(Grant::new(grantee_of_header(name, one)?, right));
            }
        }
    }
    check_count(&grants)?;
    Ok(grants)
}

fn grantee_of_header(name: &str, text: &str) -> Result<Grantee, S3Error> {
    let (kind, value) = text.split_once('=').unwrap_or((text, ""));
    let value = value.trim().trim_matches('"');
    match kind.trim() {
        "id" => Grantee::of_id(value),
        "uri" => Grantee::of_group(value),
        "emailAddress" => Err(S3Error::not_implemented("A grant by e-mail address")),
        _ => Err(S3Error::invalid_argument(
            name,
            text,
            "Argument format not recognized",
        )),
    }
}

fn check_count(grants: &[Grant]) -> Result<(), S3Error> {
    if grants.len() <= GRANTS_MAX {
        Ok(())
    } else {
        Err(S3Error::new(Code::InvalidRequest)
            .with_message("The list has more grants than are allowed"))
    }
}

#[cfg(test)]
mod tests;
