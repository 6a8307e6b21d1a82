//! The procedures of NFS version 3 (RFC 1813 section 3.3).

mod access;
mod commit;
mod create;
mod fsinfo;
mod fsstat;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod mknod;
mod pathconf;
mod read;
mod readdir;
mod readdirplus;
mod readlink;
mod remove;
mod rename;
mod rmdir;
mod setattr;
mod symlink;
mod write;

#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::admit::Ask;
use super::fault::{Fault, told};
use crate::filesystem::Made;
use crate::wire::nfs3::create::Created;
use crate::wire::nfs3::status::Outcome;
use crate::wire::nfs3::{Arguments, Procedure, Results};
use crate::wire::xdr::Writer;

/// What a call is answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    Results(Box<Results>),
    /// `AUTH_TOOWEAK`.
    Weak,
    /// Nothing may be answered.
    Silence,
}

/// What a procedure comes to: what it did, or a fault and what is told with it.
type Done<T, F> = Result<T, (Fault, F)>;

macro_rules! dispatch {
    ($ask:expr, $arguments:expr, { $($name:ident => $operation:path,)+ }) => {
        match $arguments {
            Arguments::Null => Answer::Results(Box::new(Results::Null)),
            $(Arguments::$name(arguments) => match $operation($ask, arguments).await {
                Ok(done) => {
                    Answer::Results(Box::new(Results::$name(Outcome::Done(done))))
                }
                Err((Fault::Status(status), failed)) => {
                    let status = told(Procedure::$name, status);
                    Answer::Results(Box::new(Results::$name(Outcome::Failed(status, failed))))
                }
                Err((Fault::Weak, _)) => Answer::Weak,
                Err((Fault::Silence, _)) => Answer::Silence,
            },)+
        }
    };
}

/// Does what is asked for.
pub async fn call(ask: &Ask<'_>, arguments: Arguments) -> Answer {
    dispatch!(ask, arguments, {
        GetAttr => getattr::getattr,
        SetAttr => setattr::setattr,
        Lookup => lookup::lookup,
        Access => access::access,
        ReadLink => readlink::readlink,
        Read => read::read,
        Write => write::write,
        Create => create::create,
        MkDir => mkdir::mkdir,
        SymLink => symlink::symlink,
        MkNod => mknod::mknod,
        Remove => remove::remove,
        RmDir => rmdir::rmdir,
        Rename => rename::rename,
        Link => link::link,
        ReadDir => readdir::readdir,
        ReadDirPlus => readdirplus::readdirplus,
        FsStat => fsstat::fsstat,
        FsInfo => fsinfo::fsinfo,
        PathConf => pathconf::pathconf,
        Commit => commit::commit,
    })
}

/// Results as they are kept: without the head of a reply.
#[must_use]
pub fn encode(results: &Results) -> Bytes {
    let mut writer = Writer::datagram();
    results.write(&mut writer);
    writer.finish().concat().into()
}

/// A fault before there is anything to tell.
fn early<F: Default>(fault: impl Into<Fault>) -> (Fault, F) {
    (fault.into(), F::default())
}

fn created(made: &Made) -> Created {
    Created {
        object: Some(made.node.id.to_handle()),
        attributes: Some(made.node.attributes),
        directory: made.directory.into(),
    }
}
