//! The table of procedures with their arguments and results.

use super::change::{Link, Linked, Remove, RemoveDone, Rename, Renamed, SetAttr, SetAttrDone};
use super::create::{Create, Created, DirectoryFailed, MkDir, MkNod, SymLink};
use super::data::{Commit, CommitDone, FileFailed, Read, ReadDone, Write, WriteDone};
use super::directory::{ReadDir, ReadDirDone, ReadDirPlus, ReadDirPlusDone};
use super::filesystem::{FsInfo, FsStat, OfRoot, PathConf};
use super::inquire::{
    Access, AccessDone, GetAttr, GetAttrDone, Lookup, LookupDone, LookupFailed, ObjectFailed,
    ReadLink, ReadLinkDone,
};
use super::status::{Outcome, Status};
use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr, codes};

/// Number and name of a procedure, its arguments, its results, and what a failure tells.
macro_rules! procedures {
    ($($name:ident = $code:literal $text:literal, $arguments:ty => $done:ty | $failed:ty;)+) => {
        codes! {
            /// What can be asked for.
            pub enum Procedure {
                Null = 0 "NULL",
                $($name = $code $text,)+
            }
        }

        /// What is asked for.
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub enum Arguments {
            Null,
            $($name($arguments),)+
        }

        /// What is answered.
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub enum Results {
            Null,
            $($name(Outcome<$done, $failed>),)+
        }

        impl Arguments {
            /// # Errors
            /// `Short`, `Field`, `Length`: all are answered `GARBAGE_ARGS`.
            pub fn decode(procedure: Procedure, mut reader: Reader) -> Result<Self, WireError> {
                match procedure {
                    Procedure::Null => Ok(Self::Null),
                    $(Procedure::$name => Xdr::read(&mut reader, $text).map(Self::$name),)+
                }
            }

            /// As a client sends it.
            pub fn write(&self, writer: &mut Writer) {
                match self {
                    Self::Null => {}
                    $(Self::$name(arguments) => arguments.write(writer),)+
                }
            }

            #[must_use]
            pub fn procedure(&self) -> Procedure {
                match self {
                    Self::Null => Procedure::Null,
                    $(Self::$name(_) => Procedure::$name,)+
                }
            }
        }

        impl Results {
            /// As a client reads it.
            ///
            /// # Errors
            /// `Short`, `Field`, `Length`.
            pub fn decode(procedure: Procedure, mut reader: Reader) -> Result<Self, WireError> {
                match procedure {
                    Procedure::Null => Ok(Self::Null),
                    $(Procedure::$name => Xdr::read(&mut reader, $text).map(Self::$name),)+
                }
            }

            pub fn write(&self, writer: &mut Writer) {
                match self {
                    Self::Null => {}
                    $(Self::$name(results) => results.write(writer),)+
                }
            }

            /// A failure that tells nothing else, for whatever ends a call before its operation begins.
            /// NULL cannot fail.
            #[must_use]
            pub fn failed(procedure: Procedure, status: Status) -> Self {
                match procedure {
                    Procedure::Null => Self::Null,
                    $(Procedure::$name => {
                        Self::$name(Outcome::Failed(status, <$failed>::default()))
                    })+
                }
            }

            #[must_use]
            pub fn procedure(&self) -> Procedure {
                match self {
                    Self::Null => Procedure::Null,
                    $(Self::$name(_) => Procedure::$name,)+
                }
            }

            /// `None` is `NFS3_OK`.
            #[must_use]
            pub fn status(&self) -> Option<Status> {
                match self {
                    Self::Null => None,
                    $(Self::$name(results) => results.status(),)+
                }
            }
        }

        #[cfg(test)]
        impl Arguments {
            pub(crate) fn random(
                procedure: Procedure,
                generator: &mut crate::wire::tests::Generator,
            ) -> Self {
                match procedure {
                    Procedure::Null => Self::Null,
                    $(Procedure::$name => {
                        Self::$name(crate::wire::tests::Random::random(generator))
                    })+
                }
            }
        }

        #[cfg(test)]
        impl Results {
            pub(crate) fn random(
                procedure: Procedure,
                generator: &mut crate::wire::tests::Generator,
            ) -> Self {
                match procedure {
                    Procedure::Null => Self::Null,
                    $(Procedure::$name => {
                        Self::$name(crate::wire::tests::Random::random(generator))
                    })+
                }
            }
        }
    };
}

procedures! {
    GetAttr = 1 "GETATTR", GetAttr => GetAttrDone | ();
    SetAttr = 2 "SETATTR", SetAttr => SetAttrDone | FileFailed;
    Lookup = 3 "LOOKUP", Lookup => LookupDone | LookupFailed;
    Access = 4 "ACCESS", Access => AccessDone | ObjectFailed;
    ReadLink = 5 "READLINK", ReadLink => ReadLinkDone | ObjectFailed;
    Read = 6 "READ", Read => ReadDone | ObjectFailed;
    Write = 7 "WRITE", Write => WriteDone | FileFailed;
    Create = 8 "CREATE", Create => Created | DirectoryFailed;
    MkDir = 9 "MKDIR", MkDir => Created | DirectoryFailed;
    SymLink = 10 "SYMLINK", SymLink => Created | DirectoryFailed;
    MkNod = 11 "MKNOD", MkNod => Created | DirectoryFailed;
    Remove = 12 "REMOVE", Remove => RemoveDone | DirectoryFailed;
    RmDir = 13 "RMDIR", Remove => RemoveDone | DirectoryFailed;
    Rename = 14 "RENAME", Rename => Renamed | Renamed;
    Link = 15 "LINK", Link => Linked | Linked;
    ReadDir = 16 "READDIR", ReadDir => ReadDirDone | LookupFailed;
    ReadDirPlus = 17 "READDIRPLUS", ReadDirPlus => ReadDirPlusDone | LookupFailed;
    FsStat = 18 "FSSTAT", OfRoot => FsStat | ObjectFailed;
    FsInfo = 19 "FSINFO", OfRoot => FsInfo | ObjectFailed;
    PathConf = 20 "PATHCONF", OfRoot => PathConf | ObjectFailed;
    Commit = 21 "COMMIT", Commit => CommitDone | FileFailed;
}
