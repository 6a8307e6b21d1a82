//! Arguments and results of NFSv3: what is read is written as it was, and a listing has no more bytes than
//! were asked for.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_nfs::wire::nfs3::directory::{EntryPlus, Listed, Listing, ReadDirPlus};
use portico_nfs::wire::nfs3::handle::Handle;
use portico_nfs::wire::nfs3::name::Name;
use portico_nfs::wire::nfs3::{Arguments, Procedure, Results};
use portico_nfs::wire::xdr::{Reader, Writer, Xdr};

fn written(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer::datagram();
    write(&mut writer);
    let bytes = writer.bytes();
    let whole = writer.finish().concat();
    assert_eq!(whole.len(), bytes);
    whole.into()
}

fn messages(procedure: Procedure, input: &Bytes) {
    let reader = || Reader::new(input.clone());
    if let Ok(arguments) = Arguments::decode(procedure, reader()) {
        let bytes = written(|writer| arguments.write(writer));
        assert!(bytes.len() <= input.len());
        let again = Arguments::decode(procedure, Reader::new(bytes));
        assert_eq!(again, Ok(arguments));
    }
    if let Ok(results) = Results::decode(procedure, reader()) {
        let bytes = written(|writer| results.write(writer));
        assert!(bytes.len() <= input.len());
        assert_eq!(Results::decode(procedure, Reader::new(bytes)), Ok(results));
    }
}

fn listing(dircount: u32, maxcount: u32, names: Vec<(bool, Vec<u8>)>) {
    let asked = ReadDirPlus {
        directory: Handle::new(b"directory"),
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount,
        maxcount,
    };
    let mut listing = Listing::new_plus(&asked, None, [0; 8]);
    let (mut directory_bytes, mut is_whole) = (0, true);
    for (has_handle, name) in names {
        let entry = EntryPlus {
            fileid: 1,
            name: Name(name.into()),
            cookie: 2,
            attributes: None,
            handle: has_handle.then(|| Handle::new(b"entry")),
        };
        let entry_bytes = entry.directory_bytes();
        if !listing.push(entry) {
            is_whole = false;
            break;
        }
        directory_bytes += entry_bytes;
    }
    if let Ok(done) = listing.finish(is_whole) {
        let bytes = written(|writer| done.write(writer));
        assert!(bytes.len() <= usize::try_from(maxcount).expect("fits"));
        assert!(directory_bytes <= usize::try_from(dircount).expect("fits"));
    }
}

fuzz_target!(|input: (u8, Vec<u8>, u16, u16, Vec<(bool, Vec<u8>)>)| {
    let (procedure, bytes, dircount, maxcount, names) = input;
    let procedure = Procedure::ALL[usize::from(procedure) % Procedure::ALL.len()];
    messages(procedure, &bytes.into());
    listing(u32::from(dircount), u32::from(maxcount), names);
});
