//! Reads of configurations that cannot be set here: each answers as the API does where the
//! configuration was never set.

use super::Context;
use crate::error::{Code, S3Error};
use crate::serve::reply::Reply;
use crate::wire::action::Unset;
use crate::wire::xml;

pub(crate) async fn run(cx: &mut Context<'_>, unset: Unset) -> Result<Reply, S3Error> {
    match unset {
        Unset::Accelerate => Ok(document("AccelerateConfiguration", None)),
        Unset::Cors => missing(cx, Code::NoSuchCorsConfiguration),
        Unset::Encryption => missing(cx, Code::NoSuchEncryptionConfiguration),
        Unset::Lifecycle => missing(cx, Code::NoSuchLifecycleConfiguration),
        Unset::Logging => Ok(document("BucketLoggingStatus", None)),
        Unset::Notification => Ok(document("NotificationConfiguration", None)),
        Unset::ObjectLock => missing(cx, Code::NoSuchObjectLockConfiguration),
        Unset::OwnershipControls => missing(cx, Code::NoSuchOwnershipControls),
        Unset::Policy | Unset::PolicyStatus => missing(cx, Code::NoSuchBucketPolicy),
        Unset::PublicAccessBlock => missing(cx, Code::NoSuchPublicAccessBlockConfiguration),
        Unset::Replication => missing(cx, Code::NoSuchReplicationConfiguration),
        Unset::RequestPayment => Ok(document(
            "RequestPaymentConfiguration",
            Some(("Payer", "BucketOwner")),
        )),
        // No object has a torrent; S3 has stopped to make any.
        Unset::Torrent => Err(S3Error::new(Code::NoSuchKey).with_field("Key", cx.key().as_str())),
        Unset::Versioning => Ok(document("VersioningConfiguration", None)),
        Unset::Website => missing(cx, Code::NoSuchWebsiteConfiguration),
    }
}

fn document(root: &str, element: Option<(&str, &str)>) -> Reply {
    let mut writer = xml::Writer::document();
    writer.open_root(root);
    if let Some((name, text)) = element {
        writer.text(name, text);
    }
    writer.close(root);
    Reply::xml(writer.finish())
}

fn missing(cx: &Context<'_>, code: Code) -> Result<Reply, S3Error> {
    Err(S3Error::new(code).with_field("BucketName", cx.record().name.as_str()))
}
