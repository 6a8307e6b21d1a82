//! Listings have as many bytes as were asked for, and not one more.

use bytes::Bytes;

use crate::limits::DATA_BYTES_MAX;
use crate::wire::nfs3::attributes::PostOp;
use crate::wire::nfs3::directory::{Entry, EntryPlus, Listed, Listing, ReadDir, ReadDirPlus};
use crate::wire::nfs3::handle::Handle;
use crate::wire::nfs3::name::Name;
use crate::wire::nfs3::status::Status;
use crate::wire::tests::{Generator, Random};
use crate::wire::xdr::{Writer, Xdr};

fn wire_bytes(item: &impl Xdr) -> usize {
    let mut writer = Writer::datagram();
    item.write(&mut writer);
    writer.bytes()
}

fn asked(count: u32) -> ReadDir {
    ReadDir {
        directory: Handle::new(b"directory"),
        cookie: 0,
        cookie_verifier: [0; 8],
        count,
    }
}

fn asked_plus(dircount: u32, maxcount: u32) -> ReadDirPlus {
    ReadDirPlus {
        directory: Handle::new(b"directory"),
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount,
        maxcount,
    }
}

/// Whatever the entries are, the list that is as long as all of them takes them all, and one byte less
/// takes one less.
#[test]
fn a_list_is_full_to_the_byte() {
    let mut generator = Generator(1);
    for _ in 0..500 {
        let attributes = PostOp::random(&mut generator);
        let entries: Vec<Entry> = (0..5).map(|_| Random::random(&mut generator)).collect();
        let fill = |count: u32| {
            let mut listing = Listing::<Entry>::new(&asked(count), attributes, [7; 8]);
            let taken = entries
                .iter()
                .take_while(|entry| listing.push((*entry).clone()));
            let is_whole = taken.count() == entries.len();
            listing.finish(is_whole).unwrap()
        };
        let all = fill(DATA_BYTES_MAX);
        assert_eq!(all.entries.0, entries);
        let bytes = u32::try_from(wire_bytes(&all)).unwrap();
        assert_eq!(fill(bytes), all);
        assert_eq!(fill(bytes - 1).entries.0, entries[..4]);
    }
}

#[test]
fn a_list_with_attributes_is_full_to_the_byte() {
    let mut generator = Generator(2);
    for _ in 0..500 {
        let attributes = PostOp::random(&mut generator);
        let entries: Vec<EntryPlus> = (0..5).map(|_| Random::random(&mut generator)).collect();
        let fill = |dircount: u32, maxcount: u32| {
            let asked = asked_plus(dircount, maxcount);
            let mut listing = Listing::<EntryPlus>::new_plus(&asked, attributes, [7; 8]);
            let taken = entries
                .iter()
                .take_while(|entry| listing.push((*entry).clone()));
            let is_whole = taken.count() == entries.len();
            listing.finish(is_whole).unwrap()
        };
        let all = fill(u32::MAX, DATA_BYTES_MAX);
        assert_eq!(all.entries.0, entries);
        let bytes = u32::try_from(wire_bytes(&all)).unwrap();
        assert_eq!(fill(u32::MAX, bytes), all);
        assert_eq!(fill(u32::MAX, bytes - 1).entries.0, entries[..4]);

        let names: usize = entries.iter().map(Listed::directory_bytes).sum();
        let names = u32::try_from(names).unwrap();
        assert_eq!(fill(names, u32::MAX), all);
        assert_eq!(fill(names - 1, u32::MAX).entries.0, entries[..4]);
    }
}

#[test]
fn what_has_no_room_is_too_small() {
    let entry = Entry {
        fileid: 1,
        name: Name(Bytes::from_static(b"name")),
        cookie: 1,
    };
    // No attributes 4, verifier 8, the list's end 4, eof 4; an entry 4 + 8 + 8 + 8.
    let list = |count, has_entry: bool| {
        let mut listing = Listing::<Entry>::new(&asked(count), None, [0; 8]);
        let is_whole = !has_entry || listing.push(entry.clone());
        listing.finish(is_whole)
    };
    assert_eq!(list(19, false), Err(Status::TooSmall));
    assert!(list(20, false).is_ok());
    assert_eq!(list(47, true), Err(Status::TooSmall));
    assert_eq!(wire_bytes(&list(48, true).unwrap()), 48);

    let listing = |count| Listing::<Entry>::new(&asked(count), None, [0; 8]);
    assert!(listing(48).has_room_for(4));
    assert!(!listing(48).has_room_for(5));
    assert!(!listing(19).has_room_for(0));
    let plus = Listing::<EntryPlus>::new_plus(&asked_plus(27, 4_096), None, [0; 8]);
    assert!(!plus.has_room_for(4));
}

/// However much a client would take.
#[test]
fn a_list_is_bounded() {
    let mut listing = Listing::<Entry>::new(&asked(u32::MAX), None, [0; 8]);
    let entry = Entry {
        fileid: 1,
        name: Name(vec![b'a'; 255].into()),
        cookie: 1,
    };
    while listing.push(entry.clone()) {}
    let bytes = wire_bytes(&listing.finish(false).unwrap());
    let max = usize::try_from(DATA_BYTES_MAX).unwrap();
    assert!(bytes <= max && max < bytes + entry.bytes());
}
