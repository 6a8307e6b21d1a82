//! MODE SENSE and MODE SELECT (SPC-5 6.14 to 6.17, 7.5): what can be told and set of a unit.

use super::sense::{Code, Failure, Sense, SenseKey};
use super::task::{Answer, Reply, Task};

/// The parameters that differ between units or over time. The rest of every page is constant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Mode {
    /// WCE of the caching page.
    pub(super) write_cache: bool,
    /// D_SENSE of the control page.
    pub(super) descriptor_sense: bool,
    /// SWP of the control page.
    pub(super) software_write_protect: bool,
}

impl Mode {
    pub(super) fn new(write_cache: bool) -> Self {
        Self {
            write_cache,
            descriptor_sense: false,
            software_write_protect: false,
        }
    }
}

const RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const ALL: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

/// In ascending order, as they are returned together.
const PAGES: [u8; 4] = [RECOVERY, CACHING, CONTROL, EXCEPTIONS];

const WRITE_CACHE: u8 = 0x04;
const DESCRIPTOR_SENSE: u8 = 0x04;
const SOFTWARE_WRITE_PROTECT: u8 = 0x08;

/// A page with these parameters; empty for one that there is not.
fn page(code: u8, mode: Mode) -> Vec<u8> {
    let set = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    match code {
        RECOVERY => [&[RECOVERY, 10][..], &[0; 10]].concat(),
        CACHING => {
            let cache = set(mode.write_cache, WRITE_CACHE);
            [&[CACHING, 18, cache][..], &[0; 17]].concat()
        }
        CONTROL => {
            // Log parameters are not saved; commands may be reordered; a busy unit says nothing
            // of how long.
            const NO_SAVING: u8 = 0x02;
            const REORDERED: u8 = 0x10;
            let sense = set(mode.descriptor_sense, DESCRIPTOR_SENSE);
            let protect = set(mode.software_write_protect, SOFTWARE_WRITE_PROTECT);
            let start = [CONTROL, 10, NO_SAVING | sense, REORDERED, protect, 0];
            [&start[..], &[0, 0, 0xff, 0xff, 0, 0]].concat()
        }
        EXCEPTIONS => {
            const DISABLED: u8 = 0x08;
            [&[EXCEPTIONS, 10, DISABLED][..], &[0; 9]].concat()
        }
        _ => Vec::new(),
    }
}

/// A page with ones in the bits that MODE SELECT may change.
fn changeable(code: u8, may_cache: bool) -> Vec<u8> {
    let unset = Mode::new(false);
    let all = Mode {
        write_cache: may_cache,
        descriptor_sense: true,
        software_write_protect: true,
    };
    let (unset, all) = (page(code, unset), page(code, all));
    let header = [code, unset.get(1).copied().unwrap_or(0)];
    let differing = unset.iter().zip(&all).skip(2).map(|(a, b)| a ^ b);
    header.into_iter().chain(differing).collect()
}

/// Whether the CDB is one of 10 bytes, with a longer header.
fn is_long(task: &Task<'_>) -> bool {
    task.cdb.u8(0) >> 5 != 0
}

/// MODE SENSE(6) and (10).
pub(super) fn sense(task: &Task<'_>) -> Answer {
    let unit = task.unit();
    let (code, subpage) = (task.cdb.u8(2) & 0x3f, task.cdb.u8(3));
    let is_known = match subpage {
        0 => code == ALL || PAGES.contains(&code),
        ALL_SUBPAGES => code == ALL,
        _ => false,
    };
    if !is_known {
        return Err(Sense::cdb_field(if subpage == 0 { 2 } else { 3 }).into());
    }
    let may_cache = may_cache(task);
    let of = |code: u8| match task.cdb.u8(2) >> 6 {
        0 => Ok(page(code, unit.mode())),
        1 => Ok(changeable(code, may_cache)),
        2 => Ok(page(code, Mode::new(may_cache))),
        _ => {
            let code = Code::SAVING_NOT_SUPPORTED;
            Err(Failure::from(Sense::new(SenseKey::IllegalRequest, code)))
        }
    };
    let mut pages = Vec::new();
    for known in PAGES {
        if code == ALL || code == known {
            pages.extend(of(known)?);
        }
    }
    let allocation = match is_long(task) {
        true => u64::from(task.cdb.u16(7)),
        false => u64::from(task.cdb.u8(4)),
    };
    Ok(Reply::data(with_header(task, &pages), allocation))
}

/// The header, the block descriptor unless DBD says not, and the pages.
fn with_header(task: &Task<'_>, pages: &[u8]) -> Vec<u8> {
    const WRITE_PROTECTED: u8 = 0x80;
    const DPO_AND_FUA: u8 = 0x10;
    const NO_DESCRIPTOR: u8 = 0x08;
    const LONG_LBA_ACCEPTED: u8 = 0x10;
    let unit = task.unit();
    let is_protected = unit.options().is_write_protected || unit.mode().software_write_protect;
    let device = DPO_AND_FUA | if is_protected { WRITE_PROTECTED } else { 0 };
    let has_long_lba = is_long(task) && task.cdb.flag(1, LONG_LBA_ACCEPTED);
    let descriptor = match (task.cdb.flag(1, NO_DESCRIPTOR), has_long_lba) {
        (true, _) => Vec::new(),
        (false, true) => {
            let count = unit.block_count().to_be_bytes();
            [&count[..], &[0; 4], &unit.block_bytes().to_be_bytes()].concat()
        }
        (false, false) => {
            let count = u32::try_from(unit.block_count()).unwrap_or(u32::MAX);
            // The length of a block has 3 bytes, behind a reserved one that is 0 here too.
            [count.to_be_bytes(), unit.block_bytes().to_be_bytes()].concat()
        }
    };
    let body = descriptor.len() + pages.len();
    let lengths = u8::try_from(descriptor.len()).expect("16 bytes at most");
    let mut data = if is_long(task) {
        let total = u16::try_from(6 + body).expect("a few pages");
        let [high, low] = total.to_be_bytes();
        vec![high, low, 0, device, u8::from(has_long_lba), 0, 0, lengths]
    } else {
        let total = u8::try_from(3 + body).expect("a few pages");
        vec![total, 0, device, lengths]
    };
    data.extend_from_slice(&descriptor);
    data.extend_from_slice(pages);
    data
}

fn may_cache(task: &Task<'_>) -> bool {
    task.unit().options().write_cache == super::unit::WriteCache::On
}

/// MODE SELECT(6) and (10): everything in the list is valid, or nothing is set. A cache that is
/// switched off is stable before GOOD.
pub(super) async fn select(task: &Task<'_>) -> Answer {
    const PAGE_FORMAT: u8 = 0x10;
    const SAVE: u8 = 0x01;
    if !task.cdb.flag(1, PAGE_FORMAT) || task.cdb.flag(1, SAVE) {
        return Err(Sense::cdb_field(1).into());
    }
    let (length, header) = match is_long(task) {
        true => (u64::from(task.cdb.u16(7)), 8),
        false => (u64::from(task.cdb.u8(4)), 4),
    };
    if length == 0 {
        return Ok(Reply::none());
    }
    let list = task.list(length)?;
    if list.len() < header {
        return Err(Sense::list_length().into());
    }
    let (descriptor, descriptor_at) = match is_long(task) {
        true => (u16::from_be_bytes([list[6], list[7]]), 6),
        false => (u16::from(list[3]), 3),
    };
    // One block descriptor at most, and what it says is how it is.
    if !matches!(descriptor, 0 | 8 | 16) {
        return Err(Sense::list_field(descriptor_at).into());
    }
    let start = header + usize::from(descriptor);
    if list.len() < start {
        return Err(Sense::list_length().into());
    }
    check_descriptor(task, &list[header..start], header)?;
    let mode = pages(task, &list, start)?;
    let was_cached = task.unit().is_cached();
    task.unit().set_mode(task.nexus, mode);
    if was_cached && !mode.write_cache {
        task.unit().image().flush().await?;
    }
    Ok(Reply::none())
}

/// The block size cannot change; a number of blocks of 0 or all ones means "as it is".
fn check_descriptor(task: &Task<'_>, descriptor: &[u8], at: usize) -> Result<(), Failure> {
    let Some(block) = descriptor.last_chunk::<3>() else {
        return Ok(());
    };
    let [a, b, c] = *block;
    if u32::from_be_bytes([0, a, b, c]) != task.unit().block_bytes() {
        return Err(list_field(at + descriptor.len() - 3));
    }
    Ok(())
}

/// What the pages from `start` on make of the present parameters.
fn pages(task: &Task<'_>, list: &[u8], start: usize) -> Result<Mode, Failure> {
    let mut mode = task.unit().mode();
    let mut at = start;
    while let Some((given, rest)) = list[at..].split_at_checked(2) {
        let code = given[0];
        let present = page(code, mode);
        // A subpage format bit, a page that is not there, or PS, which is reserved here.
        if present.is_empty() {
            return Err(list_field(at));
        }
        if usize::from(given[1]) != present.len() - 2 {
            return Err(list_field(at + 1));
        }
        let Some(body) = rest.get(..present.len() - 2) else {
            return Err(Sense::list_length().into());
        };
        let mask = changeable(code, may_cache(task));
        for (index, byte) in body.iter().enumerate() {
            if (byte ^ present[index + 2]) & !mask[index + 2] != 0 {
                return Err(list_field(at + 2 + index));
            }
        }
        match code {
            CACHING => mode.write_cache = body[0] & WRITE_CACHE != 0,
            CONTROL => {
                mode.descriptor_sense = body[0] & DESCRIPTOR_SENSE != 0;
                mode.software_write_protect = body[2] & SOFTWARE_WRITE_PROTECT != 0;
            }
            _ => {}
        }
        at += present.len();
    }
    match at == list.len() {
        true => Ok(mode),
        false => Err(Sense::list_length().into()),
    }
}

fn list_field(at: usize) -> Failure {
    Sense::list_field(u16::try_from(at).unwrap_or(u16::MAX)).into()
}
