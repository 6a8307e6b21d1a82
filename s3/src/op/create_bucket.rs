//! CreateBucket.

use http::StatusCode;
use http::header::LOCATION;
use portico_backend::catalog::{BucketName, BucketRecord, BucketState, CatalogError};
use portico_backend::volumes::Error as VolumesError;

use super::acl::Acl;
use super::{Context, put_acl};
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;
use crate::wire::xml;

/// The region that needs no constraint, and in which S3 answers 200 to whoever creates a bucket of
/// their own again.
const REGION_UNNAMED: &str = "us-east-1";

/// Makes a bucket, or finishes one that its owner began to make.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let text = cx.request.bucket.clone().unwrap_or_default();
    let name = BucketName::new(&text).map_err(|rule| {
        S3Error::new(Code::InvalidBucketName)
            .with_message(format!("The specified bucket is not valid: it {rule}."))
            .with_field("BucketName", text.as_str())
    })?;
    let acl = put_acl::from_headers(cx.head.headers, &cx.volumes.catalog)?.unwrap_or_default();
    check_ownership(cx)?;
    let document = cx.document().await?;
    let region = location(&document, &cx.service.options.region)?;
    let volumes = cx.volumes;
    let record = match volumes.bucket_create(&name, cx.owner(), &region).await {
        Ok(record) => record,
        Err(VolumesError::Catalog(CatalogError::BucketExists(found))) => {
            return match conflict(&found, cx.owner()) {
                None => Ok(created(&name)),
                Some(code) => Err(S3Error::new(code).with_field("BucketName", name.as_str())),
            };
        }
        Err(error) => return Err(error.into()),
    };
    if acl != Acl::default() {
        let acl = acl.stored();
        volumes.catalog.bucket_set_acl(&record, &acl).await?;
    }
    Ok(created(&name))
}

/// Why a bucket that is there already cannot be made; `None` if that is what was asked for.
fn conflict(found: &BucketRecord, asker: &str) -> Option<Code> {
    if found.owner != asker {
        return Some(Code::BucketAlreadyExists);
    }
    match found.state {
        BucketState::Creating | BucketState::Deleting => Some(Code::OperationAborted),
        BucketState::Live if found.region_name() == REGION_UNNAMED => None,
        BucketState::Live => Some(Code::BucketAlreadyOwnedByYou),
    }
}

fn created(name: &BucketName) -> Reply {
    let mut reply = Reply::empty(StatusCode::OK);
    reply.set(LOCATION, &format!("/{name}"));
    reply
}

/// Objects belong to their writers here, and the owner of the bucket may do all with them.
fn check_ownership(cx: &Context<'_>) -> Result<(), S3Error> {
    match cx.header("x-amz-object-ownership") {
        None | Some("ObjectWriter") => Ok(()),
        Some(value @ ("BucketOwnerEnforced" | "BucketOwnerPreferred")) => Err(
            S3Error::not_implemented(&format!("The object ownership {value}")),
        ),
        Some(value) => Err(S3Error::invalid_argument(
            "x-amz-object-ownership",
            value,
            "Invalid x-amz-object-ownership header",
        )),
    }
}

/// The region that the document names. It can be ours only; where none is named it is ours too,
/// which us-east-1 remembers as no name.
fn location(document: &[u8], ours: &str) -> Result<String, S3Error> {
    let unnamed = match ours {
        REGION_UNNAMED => "",
        ours => ours,
    };
    if document.is_empty() {
        return Ok(unnamed.to_owned());
    }
    let mut reader = xml::Reader::root(document, "CreateBucketConfiguration")?;
    let mut constraint = String::new();
    while let Some(element) = reader.child()? {
        match element.as_str() {
            "LocationConstraint" => constraint = reader.text()?,
            "Bucket" | "Location" | "Tags" => {
                let what = format!("CreateBucketConfiguration with {element}");
                return Err(S3Error::not_implemented(&what));
            }
            _ => return Err(Code::MalformedXml.into()),
        }
    }
    reader.finish()?;
    match constraint.as_str() {
        "" => Ok(unnamed.to_owned()),
        region if region == ours => Ok(constraint),
        _ => Err(S3Error::new(Code::InvalidLocationConstraint)
            .with_field("LocationConstraint", constraint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_region_is_a_location() {
        let document = |region: &str| {
            format!(
                "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint>\
                 </CreateBucketConfiguration>"
            )
        };
        let check = |text: &str, ours: &str| location(text.as_bytes(), ours);
        assert_eq!(check("", "eu-west-1").unwrap(), "eu-west-1");
        assert_eq!(check("", "us-east-1").unwrap(), "");
        for region in ["eu-west-1", "us-east-1"] {
            assert_eq!(check(&document(region), region).unwrap(), region);
        }
        let error = check(&document("us-east-1"), "eu-west-1").unwrap_err();
        assert_eq!(error.code(), Code::InvalidLocationConstraint);
        assert!(check("<Other/>", "us-east-1").is_err());
    }
}
