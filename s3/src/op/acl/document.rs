//! The document `AccessControlPolicy`.

use super::{Acl, EVERYBODY, Grant, Grantee, Right, SIGNED_IN, check_count};
use crate::error::{Code, S3Error};
use crate::wire::xml;

const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// Writes the grants of a thing of `owner`'s; `name` tells what users are called.
pub(crate) fn to_document(owner: &str, grants: &[Grant], name: impl Fn(&str) -> String) -> String {
    let mut writer = xml::Writer::document();
    writer.open_root("AccessControlPolicy");
    writer.open("Owner");
    writer.text("ID", owner);
    writer.text("DisplayName", &name(owner));
    writer.close("Owner");
    writer.open("AccessControlList");
    for grant in grants {
        writer.open("Grant");
        match &grant.grantee {
            Grantee::Everybody => group(&mut writer, EVERYBODY),
            Grantee::SignedIn => group(&mut writer, SIGNED_IN),
            Grantee::User(id) => {
                open_grantee(&mut writer, "CanonicalUser");
                writer.text("ID", id);
                writer.text("DisplayName", &name(id));
                writer.close("Grantee");
            }
        }
        writer.text("Permission", grant.right.name());
        writer.close("Grant");
    }
    writer.close("AccessControlList");
    writer.close("AccessControlPolicy");
    writer.finish()
}

/// Reads a document. The owner in it is not looked at: a list does not change owners.
///
/// # Errors
/// `MalformedXML`, `MalformedACLError`, `InvalidArgument`, `NotImplemented` for grants by e-mail
/// address.
pub(crate) fn from_document(document: &[u8]) -> Result<Acl, S3Error> {
    let mut reader = xml::Reader::root(document, "AccessControlPolicy")?;
    let mut grants = None;
    while let Some(element) = reader.child()? {
        match element.as_str() {
            "Owner" => reader.skip()?,
            "AccessControlList" if grants.is_none() => grants = Some(grants_of(&mut reader)?),
            _ => return Err(Code::MalformedAcl.into()),
        }
    }
    reader.finish()?;
    let grants = grants.ok_or_else(|| S3Error::new(Code::MalformedAcl))?;
    check_count(&grants)?;
    Ok(Acl::Grants(grants))
}

fn grants_of(reader: &mut xml::Reader<'_>) -> Result<Vec<Grant>, S3Error> {
    let mut grants = Vec::new();
    while let Some(element) = reader.child()? {
        if element != "Grant" {
            return Err(Code::MalformedAcl.into());
        }
        grants.push(grant_of(reader)?);
    }
    Ok(grants)
}

fn grant_of(reader: &mut xml::Reader<'_>) -> Result<Grant, S3Error> {
    let (mut grantee, mut right) = (None, None);
    while let Some(element) = reader.child()? {
        match element.as_str() {
            "Grantee" => grantee = grantee_of(reader)?,
            "Permission" => right = Right::from_name(&reader.text()?),
            _ => return Err(Code::MalformedAcl.into()),
        }
    }
    match (grantee, right) {
        (Some(grantee), Some(right)) => Ok(Grant::new(grantee, right)),
        _ => Err(Code::MalformedAcl.into()),
    }
}

fn grantee_of(reader: &mut xml::Reader<'_>) -> Result<Option<Grantee>, S3Error> {
    let mut grantee = None;
    while let Some(element) = reader.child()? {
        match element.as_str() {
            "ID" => grantee = Some(Grantee::of_id(&reader.text()?)?),
            "URI" => grantee = Some(Grantee::of_group(&reader.text()?)?),
            "EmailAddress" => return Err(S3Error::not_implemented("A grant by e-mail address")),
            _ => reader.skip()?,
        }
    }
    Ok(grantee)
}

fn group(writer: &mut xml::Writer, uri: &str) {
    open_grantee(writer, "Group");
    writer.text("URI", uri);
    writer.close("Grantee");
}

fn open_grantee(writer: &mut xml::Writer, kind: &str) {
    writer.open_with("Grantee", &[("xmlns:xsi", INSTANCE), ("xsi:type", kind)]);
}
