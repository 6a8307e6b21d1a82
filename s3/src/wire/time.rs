//! Dates of the S3 API. All times are milliseconds since the epoch, UTC, in the proleptic
//! Gregorian calendar without leap seconds.

const DAY_MS: u64 = 86_400_000;
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A moment taken apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Civil {
    year: u64,
    /// 1 to 12.
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    millisecond: u64,
}

impl Civil {
    fn from_ms(ms: u64) -> Self {
        // Days are counted from 1 March of year 0, so that a leap day ends its year
        // (H. Hinnant, "chrono-compatible low-level date algorithms").
        let days = ms / DAY_MS + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        let in_day = ms % DAY_MS;
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
            hour: in_day / 3_600_000,
            minute: in_day / 60_000 % 60,
            second: in_day / 1_000 % 60,
            millisecond: in_day % 1_000,
        }
    }

    /// `None` if a field is out of range or the moment lies before the epoch.
    fn to_ms(self) -> Option<u64> {
        let in_range = (1970..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_in_month(self.year, self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            // A leap second counts as the first of the next minute.
            && self.second <= 60
            && self.millisecond < 1_000;
        if !in_range {
            return None;
        }
        let year = self.year - u64::from(self.month <= 2);
        let shifted_month = (self.month + 9) % 12;
        let day_of_year = (153 * shifted_month + 2) / 5 + self.day - 1;
        let year_of_era = year % 400;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = (year / 400 * 146_097 + day_of_era).checked_sub(719_468)?;
        let seconds = self.hour * 3_600 + self.minute * 60 + self.second;
        Some(days * DAY_MS + seconds * 1_000 + self.millisecond)
    }
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        _ => 31,
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7), for `Last-Modified` and `Date`.
#[must_use]
pub fn imf_fixdate(ms: u64) -> String {
    let civil = Civil::from_ms(ms);
    let weekday = usize::try_from(ms / DAY_MS % 7).expect("less than 7");
    format!(
        "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
        WEEKDAYS[weekday],
        civil.day,
        month_name(civil.month),
        civil.year,
        civil.hour,
        civil.minute,
        civil.second
    )
}

/// `1994-11-06T08:49:37.123Z`, for XML.
#[must_use]
pub fn iso8601(ms: u64) -> String {
    let civil = Civil::from_ms(ms);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        civil.year,
        civil.month,
        civil.day,
        civil.hour,
        civil.minute,
        civil.second,
        civil.millisecond
    )
}

/// `19941106T084937Z`, the time of Signature V4.
#[must_use]
pub fn amz_date(ms: u64) -> String {
    let civil = Civil::from_ms(ms);
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
    )
}

/// Reads `19941106T084937Z`.
#[must_use]
pub fn parse_amz_date(text: &str) -> Option<u64> {
    let mut scan = Scan(text.as_bytes());
    let civil = Civil {
        year: scan.digits(4)?,
        month: scan.digits(2)?,
        day: scan.digits(2)?,
        hour: scan.literal(b"T").and_then(|()| scan.digits(2))?,
        minute: scan.digits(2)?,
        second: scan.digits(2)?,
        millisecond: 0,
    };
    scan.literal(b"Z")?;
    scan.end()?;
    civil.to_ms()
}

/// Reads `1994-11-06T08:49:37Z`, with or without a fraction and `Z`.
#[must_use]
pub fn parse_iso8601(text: &str) -> Option<u64> {
    let mut scan = Scan(text.as_bytes());
    let mut civil = Civil {
        year: scan.digits(4)?,
        month: scan.literal(b"-").and_then(|()| scan.digits(2))?,
        day: scan.literal(b"-").and_then(|()| scan.digits(2))?,
        hour: scan.literal(b"T").and_then(|()| scan.digits(2))?,
        minute: scan.literal(b":").and_then(|()| scan.digits(2))?,
        second: scan.literal(b":").and_then(|()| scan.digits(2))?,
        millisecond: 0,
    };
    if scan.literal(b".").is_some() {
        civil.millisecond = scan.fraction_ms()?;
    }
    let zulu = scan.literal(b"Z").is_some() || scan.literal(b"+00:00").is_some();
    if !zulu && !scan.0.is_empty() {
        return None;
    }
    scan.end()?;
    civil.to_ms()
}

/// Reads a date of HTTP in any of its three forms (RFC 9110, section 5.6.7), and that of RFC 2822
/// with a numeric zone, which some clients sign. The weekday is not checked.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<u64> {
    let text = text.trim();
    let rest = text.split_once(' ').map(|(_, rest)| rest.trim_start())?;
    if text.contains(',') {
        parse_fixdate(rest)
    } else {
        parse_asctime(rest)
    }
}

/// `06 Nov 1994 08:49:37 GMT` or `06-Nov-94 08:49:37 GMT`.
fn parse_fixdate(rest: &str) -> Option<u64> {
    let mut words = rest.split_ascii_whitespace();
    let first = words.next()?;
    let (day, month, year) = if first.contains('-') {
        let mut parts = first.split('-');
        (parts.next()?, parts.next()?, parts.next()?)
    } else {
        (first, words.next()?, words.next()?)
    };
    let (hour, minute, second) = clock_time(words.next()?)?;
    let zone_minutes = zone(words.next().unwrap_or("GMT"))?;
    if words.next().is_some() {
        return None;
    }
    let civil = Civil {
        year: full_year(year)?,
        month: month_number(month)?,
        day: decimal(day)?,
        hour,
        minute,
        second,
        millisecond: 0,
    };
    civil.to_ms()?.checked_add_signed(-zone_minutes * 60_000)
}

/// `Nov  6 08:49:37 1994`.
fn parse_asctime(rest: &str) -> Option<u64> {
    let mut words = rest.split_ascii_whitespace();
    let month = month_number(words.next()?)?;
    let day = decimal(words.next()?)?;
    let (hour, minute, second) = clock_time(words.next()?)?;
    let year = full_year(words.next()?)?;
    if words.next().is_some() {
        return None;
    }
    let civil = Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
        millisecond: 0,
    };
    civil.to_ms()
}

/// Two digits are of this century or, from 70 on, of the last.
fn full_year(text: &str) -> Option<u64> {
    let year = decimal(text)?;
    match text.len() {
        2 if year >= 70 => Some(1900 + year),
        2 => Some(2000 + year),
        4 => Some(year),
        _ => None,
    }
}

fn clock_time(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.split(':').map(decimal);
    let time = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(time)
}

/// Minutes east of Greenwich.
fn zone(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes() {
        b"GMT" | b"UTC" | b"Z" => return Some(0),
        [b'+', ..] => (1, text.get(1..)?),
        [b'-', ..] => (-1, text.get(1..)?),
        _ => return None,
    };
    if digits.len() != 4 {
        return None;
    }
    let number = i64::try_from(decimal(digits)?).ok()?;
    Some(sign * (number / 100 * 60 + number % 100))
}

fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn month_name(month: u64) -> &'static str {
    let index = usize::try_from(month - 1).expect("a month is 1 to 12");
    MONTHS[index]
}

fn month_number(name: &str) -> Option<u64> {
    MONTHS
        .iter()
        .zip(1..)
        .find(|(month, _)| month.eq_ignore_ascii_case(name))
        .map(|(_, number)| number)
}

/// Reads fixed fields from the front.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn digits(&mut self, count: usize) -> Option<u64> {
        let (head, tail) = self.0.split_at_checked(count)?;
        let number = std::str::from_utf8(head).ok().and_then(decimal)?;
        self.0 = tail;
        Some(number)
    }

    fn literal(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// Digits of a fraction of a second, as milliseconds cut off.
    fn fraction_ms(&mut self) -> Option<u64> {
        let count = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        if count == 0 || count > 9 {
            return None;
        }
        let mut ms = 0;
        for place in 0..3 {
            let digit = if place < count {
                self.0[place] - b'0'
            } else {
                0
            };
            ms = ms * 10 + u64::from(digit);
        }
        self.0 = &self.0[count..];
        Some(ms)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110.
    const EXAMPLE_MS: u64 = 784_111_777_000;

    #[test]
    fn the_example_of_the_standard_in_every_form() {
        assert_eq!(imf_fixdate(EXAMPLE_MS), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(iso8601(EXAMPLE_MS + 5), "1994-11-06T08:49:37.005Z");
        assert_eq!(amz_date(EXAMPLE_MS), "19941106T084937Z");
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 10:49:37 +0200",
            "Sun, 06 Nov 1994 08:19:37 -0030",
        ] {
            assert_eq!(parse_http_date(text), Some(EXAMPLE_MS), "{text}");
        }
        assert_eq!(parse_amz_date("19941106T084937Z"), Some(EXAMPLE_MS));
        assert_eq!(parse_iso8601("1994-11-06T08:49:37Z"), Some(EXAMPLE_MS));
        assert_eq!(
            parse_iso8601("1994-11-06T08:49:37.5Z"),
            Some(EXAMPLE_MS + 500)
        );
    }

    #[test]
    fn every_day_of_eight_centuries_reads_back() {
        for day in 0..292_000 {
            let ms = day * DAY_MS + 12_345_678;
            assert_eq!(parse_iso8601(&iso8601(ms)), Some(ms));
            assert_eq!(parse_amz_date(&amz_date(ms)), Some(ms - 678));
            assert_eq!(parse_http_date(&imf_fixdate(ms)), Some(ms - 678));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 EST",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nov 99999999999999 08:49:37 GMT",
            "2015-10-32",
        ] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
        for text in [
            "",
            "19941106T084937",
            "19941106T084937Zx",
            "19941306T084937Z",
            "1994",
        ] {
            assert_eq!(parse_amz_date(text), None, "{text}");
        }
        for text in [
            "2015-02-29T00:00:00Z",
            "2015-02-28T00:00:00.Z",
            "2015-02-28 00:00:00Z",
        ] {
            assert_eq!(parse_iso8601(text), None, "{text}");
        }
    }
}
