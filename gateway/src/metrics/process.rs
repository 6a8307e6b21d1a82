//! What Linux says about this process, under the names that Prometheus clients use.

use std::fs;

use super::text::Text;

/// Adds what can be read; a field that cannot is left out.
pub(super) fn render(text: &mut Text) {
    if let Some(bytes) = resident_bytes() {
        text.gauge("process_resident_memory_bytes", "Memory in use, in bytes.")
            .sample(&[], bytes);
    }
    if let Some(ms) = cpu_ms() {
        let (seconds, rest) = (ms / 1_000, ms % 1_000);
        text.counter(
            "process_cpu_seconds_total",
            "Processor time spent, in seconds.",
        )
        .sample(&[], format_args!("{seconds}.{rest:03}"));
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        text.gauge("process_open_fds", "Open file descriptors.")
            .sample(&[], entries.count());
    }
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

/// User and system time (proc_pid_stat(5)).
fn cpu_ms() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may hold blanks and parentheses; the fields follow the last one.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * 1_000 / rustix::param::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_files() {
        assert!(resident_bytes().unwrap() > 100_000);
        assert!(cpu_ms().is_some());
        let mut text = Text::default();
        render(&mut text);
        assert!(text.finish().contains("\nprocess_open_fds "));
    }
}
