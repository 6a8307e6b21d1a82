//! The text format of Prometheus, version 0.0.4: families of samples with a help line each.

use std::fmt::{Display, Write};

use portico_backend::stats::{LATENCY_BOUNDS_US, LatencyHistogram};

/// A page of metrics in the making.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// One metric and its samples, which stand together as the format asks.
#[derive(Debug)]
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Text {
    /// Starts a family of counters; `name` ends in `_total`.
    pub(super) fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, help, "counter")
    }

    pub(super) fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, help, "gauge")
    }

    /// Starts a family of histograms; `name` ends in `_seconds`.
    pub(super) fn histogram<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, help, "histogram")
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn family<'a>(&'a mut self, name: &'a str, help: &str, kind: &str) -> Family<'a> {
        line(&mut self.0, format_args!("# HELP {name} {help}"));
        line(&mut self.0, format_args!("# TYPE {name} {kind}"));
        Family {
            text: &mut self.0,
            name,
        }
    }
}

impl Family<'_> {
    /// A sample; `labels` are names with values.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        let labels = braces(labels, None);
        line(self.text, format_args!("{}{labels} {value}", self.name));
        self
    }

    /// All buckets, the sum and the count of one histogram.
    pub(super) fn latency(
        &mut self,
        labels: &[(&str, &str)],
        histogram: &LatencyHistogram,
    ) -> &mut Self {
        let (counts, sum_us) = histogram.cumulative();
        let bounds = LATENCY_BOUNDS_US.map(seconds).into_iter();
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            let labels = braces(labels, Some(&bound));
            line(
                self.text,
                format_args!("{}_bucket{labels} {count}", self.name),
            );
        }
        let labels = braces(labels, None);
        let sum = seconds(sum_us);
        line(self.text, format_args!("{}_sum{labels} {sum}", self.name));
        let count = counts[LATENCY_BOUNDS_US.len()];
        line(
            self.text,
            format_args!("{}_count{labels} {count}", self.name),
        );
        self
    }
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to memory does not fail");
}

/// Exact, without the rounding of binary fractions.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn braces(labels: &[(&str, &str)], bound: Option<&str>) -> String {
    let bound = bound.map(|bound| ("le", bound));
    let pairs: Vec<String> = labels
        .iter()
        .copied()
        .chain(bound)
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    if pairs.is_empty() {
        return String::new();
    }
    format!("{{{}}}", pairs.join(","))
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn families_look_as_prometheus_wants_them() {
        let mut text = Text::default();
        text.counter("a_total", "What a is.")
            .sample(&[("verb", "Put\"Object\\")], 3)
            .sample(&[], 4);
        let histogram = LatencyHistogram::default();
        histogram.record(Duration::from_micros(20));
        histogram.record(Duration::from_secs(2_000));
        text.histogram("b_seconds", "What b is.")
            .latency(&[("verb", "x")], &histogram);
        let text = text.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "# HELP a_total What a is.",
                "# TYPE a_total counter",
                "a_total{verb=\"Put\\\"Object\\\\\"} 3",
                "a_total 4",
                "# HELP b_seconds What b is.",
            ]
        );
        assert_eq!(lines[6], "b_seconds_bucket{verb=\"x\",le=\"0.000016\"} 0");
        assert_eq!(lines[7], "b_seconds_bucket{verb=\"x\",le=\"0.000064\"} 1");
        assert_eq!(
            lines[lines.len() - 3..],
            [
                "b_seconds_bucket{verb=\"x\",le=\"+Inf\"} 2",
                "b_seconds_sum{verb=\"x\"} 2000.000020",
                "b_seconds_count{verb=\"x\"} 2",
            ]
        );
    }
}
