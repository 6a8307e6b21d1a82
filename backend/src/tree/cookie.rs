//! Where an entry stands in its directory: a keyed hash of its name and a slot among names of the
//! same hash.
//!
//! A cookie depends on the name and on who was there when the name came, and on nothing else: it
//! stays valid while entries come and go and while the directory is split. The key is the tree's
//! own, so that nobody outside finds names that collide.

use super::record::COOKIE_MIN;

/// Bits of the hash. With the slot a cookie has 63: it is positive for clients whose offsets are
/// signed.
const HASH_BITS: u32 = 57;

const SLOT_BITS: u32 = 6;

/// Entries of one hash. By chance not even two meet: the key would have to be known.
pub(super) const SLOTS_MAX: u8 = 8;

const _: () = assert!(
    1 << SLOT_BITS >= COOKIE_MIN,
    "hash 1 and slot 0 are the smallest"
);

/// Hashes are below this.
pub(super) const HASH_END: u64 = 1 << HASH_BITS;

/// The hash of a name, 1 at least.
#[must_use]
pub(super) fn hash(key: &[u8; 16], name: &[u8]) -> u64 {
    (siphash(key, name) >> (64 - HASH_BITS)).max(1)
}

#[must_use]
pub(super) fn cookie(hash: u64, slot: u8) -> u64 {
    (hash << SLOT_BITS) | u64::from(slot)
}

/// Hash and slot of a cookie.
#[must_use]
pub(super) fn parts(cookie: u64) -> (u64, u8) {
    let slot = cookie & ((1 << SLOT_BITS) - 1);
    (cookie >> SLOT_BITS, u8::try_from(slot).expect("6 bits"))
}

/// SipHash-2-4 (Aumasson, Bernstein 2012).
fn siphash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let half = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("8 bytes"));
    let (k0, k1) = (half(0), half(8));
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut absorb = |word: u64| {
        state[3] ^= word;
        round(&mut state);
        round(&mut state);
        state[0] ^= word;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        absorb(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len().to_le_bytes()[0];
    absorb(u64::from_le_bytes(last));
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn round(state: &mut [u64; 4]) {
    let [a, b, c, d] = state;
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of the reference implementation: key 00 .. 0f, input 00 .. of growing length.
    #[test]
    fn the_hash_is_siphash() {
        let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let input: Vec<u8> = (0..64).collect();
        for (length, expected) in [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (7, 0xab02_00f5_8b01_d137),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            assert_eq!(siphash(&key, &input[..length]), expected, "{length}");
        }
    }

    #[test]
    fn cookies_come_apart_and_leave_the_first_ones_free() {
        for (hash, slot) in [(1, 0), (1, SLOTS_MAX - 1), (HASH_END - 1, 3)] {
            let made = cookie(hash, slot);
            assert_eq!(parts(made), (hash, slot));
            assert!((COOKIE_MIN..1 << 63).contains(&made));
        }
    }
}
