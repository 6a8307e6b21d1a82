//! Every bound of the S3 front door, with its reason.

use std::time::Duration;

/// Bytes of a request's head. S3 takes 8 KiB of headers; presigned URLs of long keys, escaped to
/// three times their length, come on top.
pub const HEAD_BYTES_MAX: usize = 32 << 10;

/// Header lines of a request. 2 KiB of user metadata in the shortest names are as many.
pub const HEADERS_MAX: usize = 512;

/// How long a connection may be idle between requests, and how long a head may take to arrive.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client may be behind with its body: slow ones are fine, silent ones hold buffers that
/// others wait for.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client may be behind with taking a reply before it is hung up on.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a body nobody wants that are read all the same, to keep the connection: a new one, with
/// a TLS handshake, costs both sides about as much.
pub const DRAIN_BYTES_MAX: u64 = 256 << 10;

/// How long an answer waits for those bytes. Slower clients get it with the connection's end.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection stays half closed so that its last reply arrives.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that are read and thrown away in that time.
pub const LINGER_BYTES_MAX: usize = 4 << 20;

/// Bytes of one object (S3 API, "Amazon S3 multipart upload limits"; 5 TiB).
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// Bytes of one part or of one PUT (5 GiB).
pub const PART_BYTES_MAX: u64 = 5 << 30;

/// Bytes of each part but the last (5 MiB). The configuration may lower it for tests.
pub const PART_BYTES_MIN: u64 = 5 << 20;

/// The greatest part number.
pub const PART_NUMBER_MAX: u16 = 10_000;

/// Entries of a listing page, of ListParts, and keys of one DeleteObjects.
pub const PAGE_COUNT_MAX: u32 = 1_000;

/// Bytes of all `x-amz-meta-` names and values of one object, without the prefix.
pub const USER_METADATA_BYTES_MAX: usize = 2_048;

/// Tags of one object.
pub const OBJECT_TAGS_MAX: usize = 10;

/// Tags of one bucket.
pub const BUCKET_TAGS_MAX: usize = 50;

/// Characters of a tag's key.
pub const TAG_KEY_CHARS_MAX: usize = 128;

/// Characters of a tag's value.
pub const TAG_VALUE_CHARS_MAX: usize = 256;

/// Bytes of an XML body that is held in memory. CompleteMultipartUpload with 10,000 parts and two
/// checksums each stays below 4 MiB; DeleteObjects of 1,000 keys of 1,024 bytes, all escaped to
/// five times that, stays below 6 MiB.
pub const XML_BYTES_MAX: usize = 6 << 20;

/// Elements inside each other in an XML body; the deepest of the API has five.
pub const XML_DEPTH_MAX: usize = 16;

/// Elements of one XML body: 10,000 parts of 8 elements, and some more.
pub const XML_ELEMENTS_MAX: usize = 100_000;

/// Bytes of the text of one element.
pub const XML_TEXT_BYTES_MAX: usize = 16 << 10;

/// Bytes of the line before a chunk of `aws-chunked`: a length, a name and a signature.
pub const CHUNK_LINE_BYTES_MAX: usize = 1_024;

/// Bytes of all trailer lines together.
pub const TRAILER_BYTES_MAX: usize = 8 << 10;

/// Bytes of one chunk of `aws-chunked`. A chunk is passed on as it comes, so it costs no memory;
/// the bound only refuses nonsense early.
pub const CHUNK_BYTES_MAX: u64 = PART_BYTES_MAX;

/// How far a request's time may lie from ours (15 minutes).
pub const CLOCK_SKEW_MS_MAX: u64 = 15 * 60 * 1_000;

/// The longest validity of a presigned URL (7 days).
pub const PRESIGN_SECONDS_MAX: u64 = 604_800;

/// Parameters of one query string.
pub const QUERY_PARAMETERS_MAX: usize = 128;

/// Headers that one signature may name.
pub const SIGNED_HEADERS_MAX: usize = HEADERS_MAX;

/// Signing keys kept: one for each (access key, day) in use.
pub const SIGNING_KEYS_MAX: usize = 1_024;

/// Bytes of all fields before the file of a POST form (S3 API: 20 KB).
pub const FORM_FIELDS_BYTES_MAX: usize = 20 << 10;

/// Fields of a POST form.
pub const FORM_FIELDS_MAX: usize = 128;

/// Bytes of the header lines of one part of a POST form.
pub const FORM_HEADER_BYTES_MAX: usize = 8 << 10;

/// Conditions of one POST policy.
pub const POLICY_CONDITIONS_MAX: usize = 256;
