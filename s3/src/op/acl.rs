//! Canned access control lists: the only ones that are kept.
//!
//! A list is stored as its canned name, empty for `private`. Lists with grants of their own are
//! answered NotImplemented and never taken for less than they say.

use http::HeaderMap;

use crate::error::{Code, S3Error};
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
        if let Some(name) = headers
            .keys()
            .find(|name| name.as_str().starts_with("x-amz-grant-"))
        {
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
            _ => Err(S3Error::invalid_argument(
                "x-amz-acl",
                value,
                "Invalid Argument",
            )),
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
        writer.open_with(
            "Grantee",
            &[("xmlns:xsi", INSTANCE), ("xsi:type", "CanonicalUser")],
        );
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

    /// The canned list that says the same as a document `AccessControlPolicy` of `owner`'s.
    ///
    /// # Errors
    /// `MalformedXML`, `NotImplemented` if no canned list says that.
    pub(crate) fn from_document(document: &[u8], owner: &str) -> Result<Self, S3Error> {
        let mut grants = grants_of(document)?;
        let own = grants
            .iter()
            .position(|grant| *grant == (owner.to_owned(), "FULL_CONTROL".to_owned()));
        let others: Option<Vec<(&str, &str)>> = own.map(|own| {
            grants.remove(own);
            grants.sort_unstable();
            grants
                .iter()
                .map(|(grantee, permission)| (grantee.as_str(), permission.as_str()))
                .collect()
        });
        [
            Self::AuthenticatedRead,
            Self::Private,
            Self::PublicRead,
            Self::PublicReadWrite,
        ]
        .into_iter()
        .find(|canned| others.as_deref() == Some(canned.group_grants()))
        .ok_or_else(|| S3Error::not_implemented("An access control list that is not a canned one"))
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

/// Grantees (user ids and URIs of groups) and permissions of a document `AccessControlPolicy`.
fn grants_of(document: &[u8]) -> Result<Vec<(String, String)>, S3Error> {
    let mut reader = xml::Reader::root(document, "AccessControlPolicy")?;
    let mut grants = Vec::new();
    while let Some(element) = reader.child()? {
        if element != "AccessControlList" {
            reader.skip()?;
            continue;
        }
        while let Some(element) = reader.child()? {
            if element != "Grant" {
                return Err(Code::MalformedXml.into());
            }
            grants.push(grant_of(&mut reader)?);
        }
    }
    reader.finish()?;
    Ok(grants)
}

fn grant_of(reader: &mut xml::Reader<'_>) -> Result<(String, String), S3Error> {
    let (mut grantee, mut permission) = (None, None);
    while let Some(element) = reader.child()? {
        match element.as_str() {
            "Permission" => permission = Some(reader.text()?),
            "Grantee" => {
                while let Some(element) = reader.child()? {
                    match element.as_str() {
                        "ID" | "URI" | "EmailAddress" => grantee = Some(reader.text()?),
                        _ => reader.skip()?,
                    }
                }
            }
            _ => return Err(Code::MalformedXml.into()),
        }
    }
    grantee
        .zip(permission)
        .ok_or_else(|| Code::MalformedXml.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [CannedAcl; 4] = [
        CannedAcl::AuthenticatedRead,
        CannedAcl::Private,
        CannedAcl::PublicRead,
        CannedAcl::PublicReadWrite,
    ];

    #[test]
    fn lists_read_back_from_what_is_stored_and_from_their_documents() {
        for acl in ALL {
            assert_eq!(CannedAcl::from_stored(acl.stored()), acl);
            let document = acl.document("owner-id", "Owner <&>");
            let read = CannedAcl::from_document(document.as_bytes(), "owner-id");
            assert_eq!(read.unwrap(), acl);
        }
    }

    #[test]
    fn a_document_that_grants_something_else_is_refused() {
        let document = CannedAcl::Private.document("somebody", "Somebody");
        assert!(CannedAcl::from_document(document.as_bytes(), "owner-id").is_err());
        let writable = CannedAcl::PublicReadWrite.document("o", "O").replace(
            "<Permission>READ</Permission>",
            "<Permission>READ_ACP</Permission>",
        );
        assert!(CannedAcl::from_document(writable.as_bytes(), "o").is_err());
    }

    #[test]
    fn headers_name_canned_lists_and_nothing_is_taken_for_less() {
        let headers = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, http::HeaderValue::from_static(value));
            CannedAcl::from_headers(&headers)
        };
        assert_eq!(headers("host", "x").unwrap(), None);
        assert_eq!(
            headers("x-amz-acl", "bucket-owner-full-control").unwrap(),
            Some(CannedAcl::Private)
        );
        let code = |name, value| headers(name, value).unwrap_err().code();
        assert_eq!(
            code("x-amz-acl", "log-delivery-write"),
            Code::NotImplemented
        );
        assert_eq!(code("x-amz-acl", "public"), Code::InvalidArgument);
        assert_eq!(code("x-amz-grant-read", "id=\"a\""), Code::NotImplemented);
    }

    #[test]
    fn only_the_public_may_do_what_the_list_says() {
        let may = |acl: CannedAcl| {
            (
                acl.may_read(Grantee::Anonymous),
                acl.may_read(Grantee::Authenticated),
                acl.may_write(),
            )
        };
        assert_eq!(may(CannedAcl::AuthenticatedRead), (false, true, false));
        assert_eq!(may(CannedAcl::Private), (false, false, false));
        assert_eq!(may(CannedAcl::PublicRead), (true, true, false));
        assert_eq!(may(CannedAcl::PublicReadWrite), (true, true, true));
    }
}
