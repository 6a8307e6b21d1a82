//! The same messages by `nfs3_types`, which shares no code with this crate: it reads what is written here
//! and writes the same bytes.

use nfs3_types::nfs3::{
    ACCESS3args, ACCESS3res, COMMIT3args, COMMIT3res, CREATE3args, CREATE3res, FSINFO3args,
    FSINFO3res, FSSTAT3args, FSSTAT3res, GETATTR3args, GETATTR3res, LINK3args, LINK3res,
    LOOKUP3args, LOOKUP3res, MKDIR3args, MKDIR3res, MKNOD3args, MKNOD3res, PATHCONF3args,
    PATHCONF3res, READ3args, READ3res, READDIR3args, READDIR3res, READDIRPLUS3args,
    READDIRPLUS3res, READLINK3args, READLINK3res, REMOVE3args, REMOVE3res, RENAME3args, RENAME3res,
    RMDIR3args, RMDIR3res, SETATTR3args, SETATTR3res, SYMLINK3args, SYMLINK3res, WRITE3args,
    WRITE3res, fattr3,
};
use nfs3_types::xdr_codec::{Pack, Unpack, Void};

use crate::wire::nfs3::attributes::Attributes;
use crate::wire::nfs3::create::Node;
use crate::wire::nfs3::data::Write;
use crate::wire::nfs3::filesystem::{FsInfo, FsStat, PathConf};
use crate::wire::nfs3::{Arguments, Procedure, Results};
use crate::wire::rpc::Call;
use crate::wire::rpc::credential::{AuthSys, Credential, OpaqueAuth};
use crate::wire::tests::{Generator, Random};
use crate::wire::xdr::{Reader, Writer, Xdr};

/// Messages of each kind.
const ROUNDS: u64 = 100;

fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::datagram();
    write(&mut writer);
    writer.finish().concat()
}

fn other<T: Unpack>(mut bytes: &[u8]) -> T {
    let (item, length) = T::unpack(&mut bytes).expect("read by the other");
    assert!(
        bytes.is_empty(),
        "{} bytes are left after {length}",
        bytes.len()
    );
    item
}

fn agree<A: Pack + Unpack, R: Pack + Unpack>(procedure: Procedure) {
    let mut generator = Generator(u64::from(procedure.code()));
    for _ in 0..ROUNDS {
        let arguments = Arguments::random(procedure, &mut generator);
        // The other cannot write a type that cannot be made.
        let is_other =
            matches!(&arguments, Arguments::MkNod(mk) if matches!(mk.what, Node::Other(_)));
        if !is_other {
            let bytes = written(|writer| arguments.write(writer));
            assert_eq!(packed(&other::<A>(&bytes)), bytes, "{arguments:?}");
        }
        let results = Results::random(procedure, &mut generator);
        let bytes = written(|writer| results.write(writer));
        assert_eq!(packed(&other::<R>(&bytes)), bytes, "{results:?}");
    }
}

fn packed(item: &impl Pack) -> Vec<u8> {
    let mut bytes = Vec::new();
    item.pack(&mut bytes).expect("written by the other");
    bytes
}

#[test]
fn all_procedures_are_the_same() {
    agree::<Void, Void>(Procedure::Null);
    agree::<GETATTR3args, GETATTR3res>(Procedure::GetAttr);
    agree::<SETATTR3args, SETATTR3res>(Procedure::SetAttr);
    agree::<LOOKUP3args<'_>, LOOKUP3res>(Procedure::Lookup);
    agree::<ACCESS3args, ACCESS3res>(Procedure::Access);
    agree::<READLINK3args, READLINK3res<'_>>(Procedure::ReadLink);
    agree::<READ3args, READ3res<'_>>(Procedure::Read);
    agree::<WRITE3args<'_>, WRITE3res>(Procedure::Write);
    agree::<CREATE3args<'_>, CREATE3res>(Procedure::Create);
    agree::<MKDIR3args<'_>, MKDIR3res>(Procedure::MkDir);
    agree::<SYMLINK3args<'_>, SYMLINK3res>(Procedure::SymLink);
    agree::<MKNOD3args<'_>, MKNOD3res>(Procedure::MkNod);
    agree::<REMOVE3args<'_>, REMOVE3res>(Procedure::Remove);
    agree::<RMDIR3args<'_>, RMDIR3res>(Procedure::RmDir);
    agree::<RENAME3args<'_, '_>, RENAME3res>(Procedure::Rename);
    agree::<LINK3args<'_>, LINK3res>(Procedure::Link);
    agree::<READDIR3args, READDIR3res<'_>>(Procedure::ReadDir);
    agree::<READDIRPLUS3args, READDIRPLUS3res<'_>>(Procedure::ReadDirPlus);
    agree::<FSSTAT3args, FSSTAT3res>(Procedure::FsStat);
    agree::<FSINFO3args, FSINFO3res>(Procedure::FsInfo);
    agree::<PATHCONF3args, PATHCONF3res>(Procedure::PathConf);
    agree::<COMMIT3args, COMMIT3res>(Procedure::Commit);
}

/// Fields of one type in a row could be swapped and have the same bytes.
#[test]
fn attributes_have_the_same_places() {
    let ours = Attributes::random(&mut Generator(1));
    let theirs: fattr3 = other(&written(|writer| ours.write(writer)));
    assert_eq!(theirs.type_ as u32, ours.kind.code());
    assert_eq!(theirs.mode, ours.mode);
    assert_eq!(theirs.nlink, ours.nlink);
    assert_eq!((theirs.uid, theirs.gid), (ours.uid, ours.gid));
    assert_eq!((theirs.size, theirs.used), (ours.size, ours.used));
    assert_eq!(theirs.rdev.specdata1, ours.rdev.major);
    assert_eq!(theirs.rdev.specdata2, ours.rdev.minor);
    assert_eq!((theirs.fsid, theirs.fileid), (ours.fsid, ours.fileid));
    let times = [
        (theirs.atime, ours.atime),
        (theirs.mtime, ours.mtime),
        (theirs.ctime, ours.ctime),
    ];
    for (theirs, ours) in times {
        assert_eq!(
            (theirs.seconds, theirs.nseconds),
            (ours.seconds, ours.nanoseconds)
        );
    }
}

#[test]
fn what_is_said_of_a_file_system_has_the_same_places() {
    use nfs3_types::nfs3::{FSINFO3resok, FSSTAT3resok, PATHCONF3resok};
    let mut generator = Generator(2);
    let ours = FsInfo::random(&mut generator);
    let theirs: FSINFO3resok = other(&written(|writer| ours.write(writer)));
    assert_eq!(
        [
            theirs.rtmax,
            theirs.rtpref,
            theirs.rtmult,
            theirs.wtmax,
            theirs.wtpref,
            theirs.wtmult
        ],
        [
            ours.rtmax,
            ours.rtpref,
            ours.rtmult,
            ours.wtmax,
            ours.wtpref,
            ours.wtmult
        ]
    );
    assert_eq!(
        (theirs.dtpref, theirs.properties),
        (ours.dtpref, ours.properties)
    );
    assert_eq!(theirs.maxfilesize, ours.maxfilesize);

    let ours = FsStat::random(&mut generator);
    let theirs: FSSTAT3resok = other(&written(|writer| ours.write(writer)));
    assert_eq!(
        [
            theirs.tbytes,
            theirs.fbytes,
            theirs.abytes,
            theirs.tfiles,
            theirs.ffiles,
            theirs.afiles
        ],
        [
            ours.tbytes,
            ours.fbytes,
            ours.abytes,
            ours.tfiles,
            ours.ffiles,
            ours.afiles
        ]
    );

    let ours = PathConf {
        attributes: None,
        linkmax: 1,
        name_max: 2,
        no_trunc: true,
        chown_restricted: false,
        case_insensitive: false,
        case_preserving: true,
    };
    let theirs: PATHCONF3resok = other(&written(|writer| ours.write(writer)));
    assert_eq!((theirs.linkmax, theirs.name_max), (1, 2));
    assert!(theirs.no_trunc && !theirs.chown_restricted);
    assert!(!theirs.case_insensitive && theirs.case_preserving);
}

#[test]
fn what_is_written_has_the_same_places() {
    let ours = Write::random(&mut Generator(3));
    let bytes = written(|writer| ours.write(writer));
    let theirs: WRITE3args<'_> = other(&bytes);
    assert_eq!(theirs.file.data.as_ref(), ours.file.as_bytes());
    assert_eq!(theirs.offset, ours.offset);
    assert_eq!(theirs.stable as u32, ours.stable.code());
    assert_eq!(theirs.data.as_ref(), &ours.data[..]);
}

#[test]
fn calls_are_the_same() {
    use nfs3_types::rpc::{auth_unix, msg_body, rpc_msg};
    let mut generator = Generator(4);
    let sys = AuthSys {
        stamp: 1,
        machine_name: generator.bytes(255),
        uid: 2,
        gid: 3,
        gids: vec![4, 5],
    };
    let ours = Call {
        xid: 6,
        program: 100_003,
        version: 3,
        procedure: 21,
        credential: Credential::Sys(sys.clone()),
        verifier: OpaqueAuth::none(),
        arguments: Reader::new(bytes::Bytes::new()),
    };
    let bytes = written(|writer| ours.write_head(writer));
    let theirs: rpc_msg<'_, '_> = other(&bytes);
    assert_eq!(packed(&theirs), bytes);
    assert_eq!(theirs.xid, 6);
    let msg_body::CALL(call) = theirs.body else {
        panic!("a call");
    };
    assert_eq!(
        (call.rpcvers, call.prog, call.vers, call.proc),
        (2, 100_003, 3, 21)
    );
    let credential: auth_unix = other(call.cred.body.as_ref());
    assert_eq!(
        (credential.stamp, credential.uid, credential.gid),
        (1, 2, 3)
    );
    assert_eq!(credential.machinename.as_ref(), &sys.machine_name[..]);
    assert_eq!(credential.gids, [4, 5]);
}
