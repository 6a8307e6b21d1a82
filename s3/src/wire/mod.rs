//! The S3 API as bytes: routing, headers, bodies. Pure functions and push decoders that know
//! neither sockets nor time nor stores.
//!
//! Start reading at [`action`], the table of everything a client can ask for.

pub mod action;
pub mod body;
pub mod checksum;
pub mod chunked;
pub mod document;
pub mod encoding;
pub mod form;
pub mod head;
pub mod header;
pub mod payload;
pub mod precondition;
pub mod query;
pub mod range;
pub mod route;
pub mod tagging;
pub mod time;
pub mod xml;

pub use body::{BodyDecoder, BodySummary};
pub use head::RequestHead;
pub use payload::Payload;
pub use query::Query;
pub use route::{Request, route};
