//! Text for people: aligned columns, sizes, times.

use std::fmt::Write;

use portico_s3::wire::time::iso8601;

/// Columns with a heading, as wide as their longest value.
pub(super) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = headings.map(|heading| heading.chars().count());
    for row in rows {
        for (width, value) in widths.iter_mut().zip(row) {
            *width = (*width).max(value.chars().count());
        }
    }
    let mut text = String::new();
    let headings = headings.map(str::to_owned);
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (value, width) in row.iter().zip(widths) {
            write!(line, "{value:width$}  ").expect("writing to a string");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A point in time to the second.
pub(super) fn time(ms: u64) -> String {
    let text = iso8601(ms);
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// Bytes in the largest unit that leaves at least one.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = bytes;
    let mut rest = 0;
    let mut unit = "B";
    for next in UNITS {
        if scaled < 1_024 {
            break;
        }
        rest = scaled % 1_024;
        scaled /= 1_024;
        unit = next;
    }
    if unit == "B" {
        format!("{scaled} B")
    } else {
        format!("{scaled}.{} {unit}", rest * 10 / 1_024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [
            ["a".to_owned(), "1".to_owned()],
            ["long".to_owned(), String::new()],
        ];
        assert_eq!(table(["NAME", "N"], &rows), "NAME  N\na     1\nlong\n");
        assert_eq!(table(["NAME"], &[]), "NAME\n");
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1_023), "1023 B");
        assert_eq!(size(1_536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "15.9 EiB");
        assert_eq!(time(1_000), "1970-01-01T00:00:01Z");
    }
}
