//! Omap keys as librados can say them: its scans start behind a text that holds no NUL.
//!
//! A NUL becomes 01 01 and a 01 becomes 01 02; all other bytes stay, so that keys of plain text are
//! stored as they are. The order of keys is kept.

const ESCAPE: u8 = 1;

/// Bytes put behind a start that lies just before the wanted key. A key that is greater all the
/// same is left out by whoever scans.
const TAIL: [u8; 16] = [0xff; 16];

pub(super) fn encode(key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(key.len() + 2);
    for byte in key {
        match byte {
            0 | 1 => stored.extend([ESCAPE, byte + 1]),
            _ => stored.push(*byte),
        }
    }
    stored
}

/// `None` if no key is stored like this.
pub(super) fn decode(stored: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(stored.len());
    let mut bytes = stored.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            0 => return None,
            1 => match bytes.next()? {
                escaped @ (1 | 2) => key.push(escaped - 1),
                _ => return None,
            },
            _ => key.push(*byte),
        }
    }
    Some(key)
}

/// A text below the stored `start` and above all stored keys before it, but for those that only
/// differ behind [`TAIL`].
pub(super) fn just_before(start: &[u8]) -> Vec<u8> {
    let mut text = encode(start);
    match text.pop() {
        // Keys that end here or lie between come before: an escape never stands alone.
        None | Some(ESCAPE) => {}
        Some(last) if last - 1 == ESCAPE && text.last() == Some(&ESCAPE) => {
            text.push(ESCAPE);
            text.extend(TAIL);
        }
        // 02 is the least byte that stands for itself; before it are the escaped ones.
        Some(last) => {
            text.push(last - 1);
            text.extend(TAIL);
        }
    }
    text
}

/// What all stored keys in `start..end` begin with.
pub(super) fn shared_prefix(start: &[u8], end: Option<&[u8]>) -> Vec<u8> {
    let Some(end) = end else {
        return Vec::new();
    };
    let (mut start, end) = (encode(start), encode(end));
    let same = start.iter().zip(&end).take_while(|(a, b)| a == b).count();
    start.truncate(same);
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    fn keys() -> Vec<Vec<u8>> {
        let mut random = Generator::new(7);
        let mut keys: Vec<Vec<u8>> = (0..3_000)
            .map(|_| {
                let bytes = [0, 1, 2, 3, b'a', 0xfe, 0xff];
                let length = random.below(5);
                let pick = |_| bytes[usize::try_from(random.below(7)).unwrap()];
                (0..length).map(pick).collect()
            })
            .collect();
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn stored_keys_keep_order_and_content() {
        let keys = keys();
        let stored: Vec<Vec<u8>> = keys.iter().map(|key| encode(key)).collect();
        assert!(stored.is_sorted());
        assert!(stored.iter().all(|key| !key.contains(&0)));
        for (key, stored) in keys.iter().zip(&stored) {
            assert_eq!(decode(stored).as_ref(), Some(key));
        }
        assert_eq!(encode(b"snapshot_0001"), b"snapshot_0001");
    }

    #[test]
    fn a_start_lies_between_a_key_and_all_before() {
        let keys = keys();
        for (at, key) in keys.iter().enumerate() {
            let before = just_before(key);
            assert!(!before.contains(&0));
            assert!(before < encode(key) || key.is_empty(), "{key:?}");
            for former in &keys[..at] {
                assert!(encode(former) <= before, "{former:?} before {key:?}");
            }
        }
    }

    #[test]
    fn what_no_key_is_stored_like_is_refused() {
        for stored in [&b"a\0"[..], b"\x01", b"a\x01\x03", b"\x01a"] {
            assert_eq!(decode(stored), None);
        }
    }
}
