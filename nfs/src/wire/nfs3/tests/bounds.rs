//! What is too long or out of range, and who finds out.

use bytes::Bytes;

use crate::limits::{DATA_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX};
use crate::wire::WireError;
use crate::wire::nfs3::create::Node;
use crate::wire::nfs3::name::{Name, Path};
use crate::wire::nfs3::status::Status;
use crate::wire::nfs3::{Arguments, Procedure, Results};
use crate::wire::xdr::{Reader, Writer};

fn decode(procedure: Procedure, write: impl FnOnce(&mut Writer)) -> Result<Arguments, WireError> {
    let mut writer = Writer::datagram();
    write(&mut writer);
    let bytes = Bytes::from(writer.finish().concat());
    Arguments::decode(procedure, Reader::new(bytes))
}

#[test]
fn a_name_that_is_too_long_is_read_and_tells_so() {
    let lookup = decode(Procedure::Lookup, |writer| {
        writer.opaque(b"directory");
        writer.opaque(&[b'a'; 100_000]);
    });
    let Ok(Arguments::Lookup(lookup)) = lookup else {
        panic!("arguments");
    };
    assert_eq!(lookup.what.name.check(), Err(Status::NameTooLong));

    let name = |bytes: Vec<u8>| Name(bytes.into()).check().map(<[u8]>::len);
    assert_eq!(name(vec![b'a'; NAME_BYTES_MAX]), Ok(NAME_BYTES_MAX));
    assert_eq!(
        name(vec![b'a'; NAME_BYTES_MAX + 1]),
        Err(Status::NameTooLong)
    );
    assert_eq!(name(vec![0xff, 1]), Ok(2));
    for invalid in [&b""[..], b"a/b", b"a\0"] {
        assert_eq!(name(invalid.to_vec()), Err(Status::Invalid));
    }
    let path = |bytes: Vec<u8>| Path(bytes.into()).check().map(<[u8]>::len);
    assert_eq!(path(vec![b'/'; PATH_BYTES_MAX]), Ok(PATH_BYTES_MAX));
    assert_eq!(
        path(vec![b'/'; PATH_BYTES_MAX + 1]),
        Err(Status::NameTooLong)
    );
    assert_eq!(path(b"a\0".to_vec()), Err(Status::Invalid));
}

#[test]
fn a_handle_longer_than_the_standard_has_is_garbage() {
    let error = decode(Procedure::GetAttr, |writer| writer.opaque(&[7; 65])).unwrap_err();
    let (field, length, max) = ("GetAttr.object", 65, 64);
    assert_eq!(error, WireError::Length { field, length, max });
    assert!(decode(Procedure::GetAttr, |writer| writer.opaque(&[7; 64])).is_ok());
}

#[test]
fn a_write_says_its_length_once() {
    let write = |count: u32, data: &[u8]| {
        decode(Procedure::Write, |writer| {
            writer.opaque(b"file");
            writer.u64(0);
            writer.u32(count);
            writer.u32(2);
            writer.opaque(data);
        })
    };
    assert!(write(5, b"hello").is_ok());
    assert_eq!(
        write(4, b"hello"),
        Err(WireError::Field("WRITE3args.count"))
    );
    let too_long = usize::try_from(DATA_BYTES_MAX + 1).unwrap();
    assert!(matches!(
        write(DATA_BYTES_MAX + 1, &vec![0; too_long]),
        Err(WireError::Length { .. })
    ));
}

#[test]
fn values_that_the_standard_does_not_have_are_named() {
    let how = decode(Procedure::Create, |writer| {
        writer.opaque(b"directory");
        writer.opaque(b"name");
        writer.u32(3);
    });
    assert_eq!(how, Err(WireError::Field("Create.how")));
    let time = decode(Procedure::SetAttr, |writer| {
        writer.opaque(b"file");
        for _ in 0..4 {
            writer.bool(false);
        }
        writer.u32(3);
    });
    assert_eq!(time, Err(WireError::Field("SetAttributes.atime")));
    // A type that cannot be made is the operation's to refuse.
    let node = decode(Procedure::MkNod, |writer| {
        writer.opaque(b"directory");
        writer.opaque(b"name");
        writer.u32(99);
    });
    let Ok(Arguments::MkNod(node)) = node else {
        panic!("arguments");
    };
    assert_eq!(node.what, Node::Other(99));
}

/// Every failure that tells nothing is a whole message.
#[test]
fn every_procedure_can_fail_early() {
    for procedure in Procedure::ALL {
        let results = Results::failed(*procedure, Status::BadHandle);
        let mut writer = Writer::datagram();
        results.write(&mut writer);
        let bytes = Bytes::from(writer.finish().concat());
        if *procedure != Procedure::Null {
            assert_eq!(results.status(), Some(Status::BadHandle));
            assert_eq!(bytes[..4], 10_001_u32.to_be_bytes());
        }
        let again = Results::decode(*procedure, Reader::new(bytes));
        assert_eq!(again, Ok(results));
    }
}
