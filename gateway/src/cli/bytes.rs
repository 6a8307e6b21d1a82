//! Sizes on the command line.

/// A number of bytes with a unit: `256MiB`, `2TiB`, `10G` (the same as `10GiB`), `4096`.
///
/// # Errors
/// What is expected instead.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    let expected = || format!("{text:?} is no size; write it as 256MiB, 10GiB or 2TiB");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].trim_start();
    let number: u64 = digits.trim().parse().map_err(|_| expected())?;
    let shift = match unit.trim_end_matches("iB") {
        "" | "B" => 0,
        letter => {
            let place = UNITS.iter().position(|one| *one == letter);
            10 * (place.ok_or_else(expected)? + 1)
        }
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// The same where 32 bits have to do.
///
/// # Errors
/// As [`bytes`].
pub(super) fn bytes_32(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?).map_err(|_| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4_096),
            ("512B", 512),
            ("4K", 4 << 10),
            ("256MiB", 256 << 20),
            ("10 GiB", 10 << 30),
            ("64TiB", 64 << 40),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "GiB",
            "10GB",
            "-1",
            "1.5GiB",
            "10X",
            "99999999PiB",
            "1 2",
        ] {
            bytes(text).unwrap_err();
        }
        bytes_32("4GiB").unwrap_err();
    }
}
