//! CopyObject.

use portico_backend::bucket::{
    Checksum, ChecksumAlgorithm, ChecksumKind, Key, ObjectAbout, ObjectRecord,
};

use super::put_object::fail_early;
use super::{Context, Target, about};
use crate::error::{Code, S3Error};
use crate::limits::PART_BYTES_MAX;
use crate::serve::reply::Reply;
use crate::wire::checksum::{self, Hasher, Md5};
use crate::wire::encoding::hex;
use crate::wire::precondition::{ReadConditions, Verdict, write_precondition};
use crate::wire::{route, time, xml};

/// Copies data under a new key, streaming it; the copy is a plain object, also of one that was
/// uploaded in parts.
pub(crate) async fn run(cx: &mut Context<'_>) -> Result<Reply, S3Error> {
    let header = cx.header("x-amz-copy-source").unwrap_or_default();
    let (bucket, key, version) = route::copy_source(header)?;
    if let Some(range) = cx.header("x-amz-copy-source-range") {
        // Who asks for a part must not be given the whole.
        return Err(S3Error::invalid_argument(
            "x-amz-copy-source-range",
            range,
            "CopyObject copies whole objects; UploadPartCopy copies a range.",
        ));
    }
    let directives = Directives::parse(cx)?;
    let precondition = write_precondition(cx.head.headers)?;
    let (source, object) = cx.open_source(&bucket, &key, version.as_deref()).await?;
    check_source(cx, object.record())?;
    if version.is_none() {
        refuse_no_change(cx, &source, &key, directives)?;
    }
    let about = about(cx, object.record(), directives)?;
    fail_early(cx.bucket(), cx.key(), &precondition).await?;
    cx.reserve(object.record().size).await?;
    let mut about = about;
    let wanted = algorithm(cx, object.record())?;
    let mut writer = cx.bucket().put(cx.key().clone());
    let mut reader = object.read(0..object.record().size);
    let mut digesting = Digesting::new(wanted);
    while let Some(piece) = reader.next().await {
        let piece = piece?;
        digesting.update(&piece);
        writer.write(piece).await?;
    }
    let digests = digesting.finish();
    about.etag = hex(&digests.md5);
    about.checksum = Some(digests.checksum);
    let record = writer.finish(about, &precondition).await?;
    Ok(reply(&record, object.record(), version.is_some()))
}

/// What to take over from the source.
#[derive(Clone, Copy, Debug)]
struct Directives {
    replace_metadata: bool,
    replace_tags: bool,
}

impl Directives {
    fn parse(cx: &Context<'_>) -> Result<Self, S3Error> {
        let is_replace = |name: &str| match cx.header(name) {
            None | Some("COPY") => Ok(false),
            Some("REPLACE") => Ok(true),
            Some(value) => Err(S3Error::invalid_argument(
                name,
                value,
                "Unknown metadata directive.",
            )),
        };
        Ok(Self {
            replace_metadata: is_replace("x-amz-metadata-directive")?,
            replace_tags: is_replace("x-amz-tagging-directive")?,
        })
    }
}

/// MD5 and checksum of data that was copied.
pub(crate) struct Digests {
    pub(crate) md5: [u8; 16],
    pub(crate) checksum: Checksum,
}

/// Digests of data in the making. What reads and writes it is a loop of its own for each kind of
/// target: with an async closure in between, rustc cannot show that the future is `Send`.
pub(crate) struct Digesting {
    md5: Md5,
    algorithm: ChecksumAlgorithm,
    hasher: Hasher,
}

impl Digesting {
    pub(crate) fn new(algorithm: ChecksumAlgorithm) -> Self {
        Self {
            md5: Md5::default(),
            algorithm,
            hasher: Hasher::new(algorithm),
        }
    }

    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.md5.update(piece);
        self.hasher.update(piece);
    }

    pub(crate) fn finish(self) -> Digests {
        Digests {
            md5: self.md5.finish(),
            checksum: Checksum {
                algorithm: self.algorithm,
                kind: ChecksumKind::FullObject,
                value: self.hasher.finish(),
            },
        }
    }
}

/// The conditions on the source, and its size.
fn check_source(cx: &Context<'_>, source: &ObjectRecord) -> Result<(), S3Error> {
    let conditions = ReadConditions::from_copy_source(cx.head.headers);
    match conditions.check(&source.about.etag, source.modified_ms) {
        Verdict::Proceed => {}
        Verdict::NotModified | Verdict::Failed(_) => return Err(Code::PreconditionFailed.into()),
    }
    if source.size > PART_BYTES_MAX {
        return Err(S3Error::new(Code::InvalidRequest).with_message(format!(
            "The specified copy source is larger than the maximum allowable size for a copy \
             source: {PART_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// A copy of an object onto itself must change something.
fn refuse_no_change(
    cx: &Context<'_>,
    source: &Target,
    key: &Key,
    directives: Directives,
) -> Result<(), S3Error> {
    let is_same = source.record.id == cx.record().id && key == cx.key();
    let changes = directives.replace_metadata
        || cx.header("x-amz-storage-class").is_some()
        || cx.header("x-amz-website-redirect-location").is_some();
    if is_same && !changes {
        return Err(S3Error::new(Code::InvalidRequest).with_message(
            "This copy request is illegal because it is trying to copy an object to itself \
             without changing the object's metadata, storage class, website redirect location \
             or encryption attributes.",
        ));
    }
    Ok(())
}

/// What the copy says about itself. The class, the list and the redirect are never taken over.
fn about(
    cx: &Context<'_>,
    source: &ObjectRecord,
    directives: Directives,
) -> Result<ObjectAbout, S3Error> {
    const REDIRECT: &str = "x-amz-website-redirect-location";
    let mut about = about::from_headers(cx.head.headers, &cx.volumes.catalog)?;
    about.owner = cx.owner().to_owned();
    if !directives.replace_metadata {
        about.headers.retain(|(name, _)| name == REDIRECT);
        let kept = source.about.headers.iter();
        about
            .headers
            .extend(kept.filter(|(name, _)| name != REDIRECT).cloned());
        about.user_metadata.clone_from(&source.about.user_metadata);
    }
    if !directives.replace_tags {
        about.tags.clone_from(&source.about.tags);
    }
    Ok(about)
}

/// The checksum that is asked for, or that of the source, or the API's own.
fn algorithm(cx: &Context<'_>, source: &ObjectRecord) -> Result<ChecksumAlgorithm, S3Error> {
    match cx.header("x-amz-checksum-algorithm") {
        Some(name) => checksum::parse_algorithm(name),
        None => Ok(match &source.about.checksum {
            Some(checksum) => checksum.algorithm,
            None => ChecksumAlgorithm::Crc64Nvme,
        }),
    }
}

fn reply(copy: &ObjectRecord, source: &ObjectRecord, named_version: bool) -> Reply {
    let mut writer = xml::Writer::document();
    writer.open_root("CopyObjectResult");
    writer.text("LastModified", &time::iso8601(copy.modified_ms));
    writer.text("ETag", &about::quoted(&copy.about.etag));
    if let Some(checksum) = &copy.about.checksum {
        let value = checksum::value_text(checksum, 0);
        writer.text(checksum::element_name(checksum.algorithm), &value);
        writer.text("ChecksumType", checksum::kind_name(checksum.kind));
    }
    writer.close("CopyObjectResult");
    let mut reply = Reply::xml(writer.finish());
    about::set_version(&mut reply, copy.version);
    if named_version {
        reply.set_named(
            "x-amz-copy-source-version-id",
            &about::version_text(source.version),
        );
    }
    reply
}
