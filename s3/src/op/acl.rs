//! Canned access control lists: the only ones that are kept.
//!
//! A list is stored as its canned name, empty for `private`. Lists with grants of their own are
//! answered NotImplemented and never taken for less than they say.

use http::HeaderMap;

use crate::error::S3Error;
use crate::wire::xml;

/// A canned ACL (S3 API, "Access control list overview").
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum CannedAcl {
    AuthenticatedRead,
    /// Also what `bucket-owner-read` and `bucket-owner-full-control` come to, since the owner of a
    /// bucket may do all with its objects.
    #[default]
    Private,
    PublicRead,
    PublicReadWrite,
}

/// Who asks, as far as a canned list tells people apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Grantee {
    Anonymous,
    Authenticated,
}

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED_USERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";

impl CannedAcl {
    /// What the headers of a request ask for; `None` if they say nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that the API does not have, `NotImplemented` for lists that
    /// cannot be kept.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, S3Error> {
        if let Some(name) = headers.keys().find(|name| name.as_str().starts_with("x-amz-grant-")) {
            return Err(S3Error::not_implemented(name.as_str()));
        }
        let Some(value) = headers.get("x-amz-acl") else {
            return Ok(None);
        };
        let value = value.to_str().unwrap_or_default();
        match value {
            "authenticated-read" => Ok(Some(Self::AuthenticatedRead)),
            "private" | "bucket-owner-read" | "bucket-owner-full-control" => {
                Ok(Some(Self::Private))
            }
            "public-read" => Ok(Some(Self::PublicRead)),
            "public-read-write" => Ok(Some(Self::PublicReadWrite)),
            "aws-exec-read" | "log-delivery-write" => Err(S3Error::not_implemented(value)),
            _ => Err(S3Error::invalid_argument("x-amz-acl", value, "Invalid Argument")),
        }
    }

    /// The list kept as `text`. A text that is not known grants nothing.
    pub(crate) fn from_stored(text: &str) -> Self {
        match text {
            "authenticated-read" => Self::AuthenticatedRead,
            "public-read" => Self::PublicRead,
            "public-read-write" => Self::PublicReadWrite,
            _ => Self::Private,
        }
    }

    /// The form in which the list is kept.
    pub(crate) fn stored(self) -> &'static str {
        match self {
            Self::AuthenticatedRead => "authenticated-read",
            Self::Private => "",
            Self::PublicRead => "public-read",
            Self::PublicReadWrite => "public-read-write",
        }
    }

    /// Whether somebody who is not the owner may read: list a bucket, get an object.
    pub(crate) fn may_read(self, grantee: Grantee) -> bool {
        match self {
            Self::AuthenticatedRead => grantee == Grantee::Authenticated,
            Self::Private => false,
            Self::PublicRead | Self::PublicReadWrite => true,
        }
    }

    /// Whether somebody who is not the owner may write into a bucket.
    pub(crate) fn may_write(self) -> bool {
        self == Self::PublicReadWrite
    }

    /// The document `AccessControlPolicy`.
    pub(crate) fn document(self, owner_id: &str, owner_name: &str) -> String {
        let mut writer = xml::Writer::document();
        writer.open_root("AccessControlPolicy");
        writer.open("Owner");
        writer.text("ID", owner_id);
        writer.text("DisplayName", owner_name);
        writer.close("Owner");
        writer.open("AccessControlList");
        writer.open("Grant");
        writer.open_with("Grantee", &[("xmlns:xsi", INSTANCE), ("xsi:type", "CanonicalUser")]);
        writer.text("ID", owner_id);
        writer.text("DisplayName", owner_name);
        writer.close("Grantee");
        writer.text("Permission", "FULL_CONTROL");
        writer.close("Grant");
        for (group, permission) in self.group_grants() {
            writer.open("Grant");
            writer.open_with("Grantee", &[("xmlns:xsi", INSTANCE), ("xsi:type", "Group")]);
            writer.text("URI", group);
            writer.close("Grantee");
            writer.text("Permission", permission);
            writer.close("Grant");
        }
        writer.close("AccessControlList");
        writer.close("AccessControlPolicy");
        writer.finish()
    }

    fn group_grants(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::AuthenticatedRead => &[(AUTHENTICATED_USERS, "READ")],
            Self::Private => &[],
            Self::PublicRead => &[(ALL_USERS, "READ")],
            Self::PublicReadWrite => &[(ALL_USERS, "READ"), (ALL_USERS, "WRITE")],
        }
    }
}
