//! The real program from outside: started, asked, stopped, started again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin;
mod program;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use program::{Certificate, Output, Program, S3, Terminal, command, http, run};
use rustix::process::Signal;
use tokio::time::Instant;

#[test]
fn the_first_start_makes_all_and_the_second_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let file = directory.path().join("portico-data/root-credentials");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let store = directory.path().join("portico-data/store");
    assert_eq!(
        fs::metadata(store).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let credentials = fs::read_to_string(&file).unwrap();
    assert!(
        program.banner.contains(file.to_str().unwrap()),
        "{}",
        program.banner
    );

    let s3 = S3::new(&program, &credentials);
    assert_eq!(s3.put("/first", b"").status, 200);
    assert_eq!(s3.put("/first/key", b"kept").status, 200);
    assert_eq!(http(program.metrics, "GET", "/health/live").status, 200);
    assert_eq!(http(program.metrics, "GET", "/health").text(), "ready\n");
    let metrics = http(program.metrics, "GET", "/metrics").text();
    for line in [
        "portico_ready 1",
        "portico_s3_requests_total{verb=\"CreateBucket\"} 1",
        "portico_s3_requests_total{verb=\"PutObject\"} 1",
        "portico_bucket_changes_total 1",
        "portico_s3_received_bytes_total{verb=\"PutObject\"} 4",
        "portico_s3_service_seconds_count{verb=\"PutObject\"} 1",
    ] {
        assert!(
            metrics.contains(&format!("\n{line}\n")),
            "{line}: {metrics}"
        );
    }

    let second = run(directory.path(), &["serve"]);
    assert_eq!(second.code, 3, "{second:?}");
    let holder = format!("another portico (process {})", program.id());
    assert!(second.stderr.contains(&holder), "{second:?}");

    let first = program.stop();
    assert_eq!(first.code, 0, "{first:?}");
    let again = Program::start(directory.path(), &[]);
    assert_eq!(fs::read_to_string(&file).unwrap(), credentials);
    let reply = S3::new(&again, &credentials).get("/first/key");
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (200, b"kept".as_slice())
    );
    let again = again.stop();
    assert_eq!(again.code, 0, "{again:?}");

    let secret = secret_of(&credentials);
    for Output { stdout, stderr, .. } in [&first, &again] {
        assert!(!stdout.contains(secret) && !stderr.contains(secret));
    }
}

#[test]
fn keys_may_come_from_the_environment_and_never_show() {
    let directory = tempfile::tempdir().unwrap();
    let secret = "hunter2/hunter2+hunter2";
    let environment = [
        ("PORTICO_ROOT_ACCESS_KEY", "ROOTKEY"),
        ("PORTICO_ROOT_SECRET_KEY", secret),
    ];
    let program = Program::start(directory.path(), &environment);
    let credentials = format!("aws_access_key_id = ROOTKEY\naws_secret_access_key = {secret}\n");
    assert_eq!(S3::new(&program, &credentials).get("/").status, 200);
    let wrong = credentials.replace("hunter2", "hunter3");
    assert_eq!(S3::new(&program, &wrong).get("/").status, 403);
    assert!(
        !directory
            .path()
            .join("portico-data/root-credentials")
            .exists()
    );
    let output = program.stop();
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!format!("{output:?}").contains("hunter"), "{output:?}");
}

#[test]
fn a_terminal_is_shown_the_secret_once() {
    let directory = tempfile::tempdir().unwrap();
    let terminal = Terminal::open();
    let program = Program::start_on(directory.path(), &terminal);
    let value = |label: &str| {
        let line = program
            .banner
            .lines()
            .find_map(|line| line.strip_prefix(label));
        line.map(str::trim).map(str::to_owned)
    };
    let access_key = value("  root access key").unwrap();
    let secret = value("  root secret key").unwrap();
    let credentials =
        format!("aws_access_key_id = {access_key}\naws_secret_access_key = {secret}\n");
    assert_eq!(S3::new(&program, &credentials).get("/").status, 200);
    assert!(
        !directory
            .path()
            .join("portico-data/root-credentials")
            .exists()
    );
    let first = program.stop();
    assert!(!first.stderr.contains(&secret), "{first:?}");

    let again = Program::start_on(directory.path(), &terminal);
    assert!(again.banner.contains(&access_key), "{}", again.banner);
    assert!(!again.banner.contains(&secret), "{}", again.banner);
    assert_eq!(S3::new(&again, &credentials).get("/").status, 200);
    assert_eq!(again.stop().code, 0);
}

#[test]
fn the_credentials_file_is_named_while_its_key_is_of_use() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("portico-data/root-credentials");
    let named = format!("AWS_SHARED_CREDENTIALS_FILE={}", file.to_str().unwrap());
    let program = Program::start(directory.path(), &[]);
    // Keys come in the order of their ids: one before and one behind the drawn one.
    let secret = directory.path().join("secret");
    fs::write(&secret, "another-secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    for id in ["0000", "zzzz"] {
        let add = ["user", "key", "create", "root", "--access-key", id];
        let added = run(
            directory.path(),
            &[&add[..], &["--secret-file", "secret"]].concat(),
        );
        assert_eq!(added.code, 0, "{added:?}");
    }
    program.stop();
    let program = Program::start(directory.path(), &[]);
    assert!(program.banner.contains(&named), "{}", program.banner);

    let credentials = fs::read_to_string(&file).unwrap();
    let drawn = credentials
        .lines()
        .find_map(|it| it.strip_prefix("aws_access_key_id = "));
    let deleted = run(
        directory.path(),
        &["user", "key", "delete", "root", drawn.unwrap()],
    );
    assert_eq!(deleted.code, 0, "{deleted:?}");
    program.stop();
    let program = Program::start(directory.path(), &[]);
    assert!(
        !program.banner.contains("CREDENTIALS_FILE"),
        "{}",
        program.banner
    );
    assert!(
        program.banner.contains("AWS_ACCESS_KEY_ID=0000\n"),
        "{}",
        program.banner
    );
}

#[test]
fn a_renewed_certificate_is_shown_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = Certificate::write(directory.path());
    let configuration = "data_dir = \"data\"\n[log]\nformat = \"json\"\n\
        [metrics]\naddress = \"127.0.0.1:0\"\n[[s3.listen]]\naddress = \"127.0.0.1:0\"\n\
        tls = { certificate = \"certificate.pem\", key = \"key.pem\" }\n";
    fs::write(directory.path().join("portico.toml"), configuration).unwrap();
    let program = Program::start_with(directory.path(), &["--config", "portico.toml"]);
    assert!(first.is_shown_at(program.s3));

    let second = Certificate::write(directory.path());
    program.signal(Signal::HUP);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !second.is_shown_at(program.s3) {
        assert!(
            Instant::now() < deadline,
            "the new certificate is never shown"
        );
    }
    assert!(!first.is_shown_at(program.s3));
    let output = program.stop();
    assert_eq!(output.code, 0, "{output:?}");
    let told = "\"message\":\"a new certificate is in use\"";
    assert!(output.stderr.contains(told), "{output:?}");
    for line in output.stderr.lines() {
        assert!(
            line.starts_with("{\"timestamp\":\"20") && line.ends_with('}'),
            "{line}"
        );
    }
}

#[test]
fn a_wrong_configuration_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("portico.toml");
    fs::write(&file, "data_dir = \"data\"\n[s3]\nregin = \"x\"\n").unwrap();
    let output = run(directory.path(), &["serve", "--config", "portico.toml"]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(
        output
            .stderr
            .contains("portico.toml, line 3, key s3.regin: unknown field"),
        "{output:?}"
    );
    assert!(!directory.path().join("data").exists());
    assert_eq!(run(directory.path(), &["serve", "--colour"]).code, 2);
}

/// Each file that the configuration names and that is not there: one exit code, and the key.
#[test]
fn a_missing_file_is_told_with_the_key_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let tcp = "[admin.tcp]\naddress = \"127.0.0.1:0\"\ntoken_file = \"token\"\n";
    let tls = "tls = { certificate = \"certificate.pem\", key = \"key.pem\" }\n";
    let s3 = format!("[[s3.listen]]\naddress = \"127.0.0.1:0\"\n{tls}");
    let refused = |configuration: &str, told: &str| {
        let text = format!("data_dir = \"data\"\n{configuration}");
        fs::write(directory.join("portico.toml"), text).unwrap();
        let output = run(directory, &["serve", "--config", "portico.toml"]);
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.stderr.contains(told), "{told}: {output:?}");
        // It never served, so it has nothing to say about an end.
        assert!(!output.stderr.contains("closed"), "{output:?}");
    };
    let quiet = "[metrics]\nenabled = false\n";
    refused(
        &format!("{quiet}{s3}"),
        "portico: key s3.listen.tls.certificate: cannot read",
    );
    fs::write(directory.join("certificate.pem"), "junk").unwrap();
    refused(
        &format!("{quiet}{s3}"),
        "portico: key s3.listen.tls.certificate: ",
    );
    Certificate::write(directory);
    fs::remove_file(directory.join("key.pem")).unwrap();
    refused(
        &format!("{quiet}{s3}"),
        "portico: key s3.listen.tls.key: cannot read",
    );
    let plain = "[[s3.listen]]\naddress = \"127.0.0.1:0\"\n";
    refused(
        &format!("{quiet}{plain}{tcp}"),
        "portico: key admin.tcp.token_file: the token",
    );
    fs::remove_file(directory.join("data/keyring")).unwrap();
    refused(
        &format!("{quiet}{plain}"),
        "portico: key keyring.file: the keyring",
    );
    fs::remove_dir_all(directory.join("data")).unwrap();
    let socket = format!("{quiet}{plain}[admin]\nsocket = \"run/portico.sock\"\n");
    let text = format!("data_dir = \"data\"\n{socket}");
    fs::write(directory.join("portico.toml"), text).unwrap();
    let output = run(directory, &["serve", "--config", "portico.toml"]);
    assert_eq!(output.code, 1, "{output:?}");
    for told in [
        "key admin.socket: cannot listen on",
        "there is no directory run: make it",
    ] {
        assert!(output.stderr.contains(told), "{told}: {output:?}");
    }
}

#[test]
fn a_capacity_beyond_the_file_system_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let text = format!("[backend]\ncapacity_bytes = {}\n", 1_u64 << 60);
    fs::write(directory.join("portico.toml"), text).unwrap();
    let config = ["--config", "portico.toml"];
    let program = Program::start_with(directory, &config);
    let status = run(directory, &["status", "--config", "portico.toml"]);
    let told = "key backend.capacity_bytes lets the store grow to 1.0 EiB, but";
    assert!(
        status.stdout.contains(&format!("warning  {told}")),
        "{status:?}"
    );
    let output = program.stop();
    assert!(output.stderr.contains(told), "{output:?}");
}

/// A client that does not finish its request holds the first stop up; the second one cuts it.
#[test]
fn a_store_that_is_gone_from_beside_its_keyring_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let first = Program::start(directory.path(), &[]).stop();
    let told = "making an empty store in ./portico-data/store, although the keyring";
    assert!(!first.stderr.contains(told), "{first:?}");
    let again = Program::start(directory.path(), &[]).stop();
    assert!(!again.stderr.contains(told), "{again:?}");
    fs::remove_dir_all(directory.path().join("portico-data/store")).unwrap();
    let emptied = Program::start(directory.path(), &[]).stop();
    assert!(emptied.stderr.contains(told), "{emptied:?}");
}

#[test]
fn a_second_stop_cuts_requests_and_leaves_no_socket() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let socket = directory.path().join("portico-data/admin.sock");
    assert!(socket.exists());
    let mut stream = TcpStream::connect(program.s3).unwrap();
    let head = "PUT /bucket/key HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12";
    stream.write_all(head.as_bytes()).unwrap();
    program.signal(Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(program.s3).is_ok() {
        assert!(Instant::now() < deadline, "it goes on accepting");
    }
    let output = program.stop();
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("told twice to stop"), "{output:?}");
    assert!(!socket.exists());
}

/// What a killed program leaves is taken over; another kind of file is not.
#[test]
fn a_stale_socket_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("portico-data/admin.sock");
    let program = Program::start(directory.path(), &[]);
    program.signal(Signal::KILL);
    drop(program);
    assert!(socket.exists());
    let program = Program::start(directory.path(), &[]);
    assert_eq!(run(directory.path(), &["status"]).code, 0);
    assert_eq!(program.stop().code, 0);
    assert!(!socket.exists());
    fs::write(&socket, "not a socket").unwrap();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--metrics-listen",
        "127.0.0.1:0",
    ];
    let output = run(directory.path(), &arguments);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("another kind of file"), "{output:?}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "not a socket");
}

#[test]
fn check_tells_whole_from_damaged_and_leaves_alone_what_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let credentials = directory.path().join("portico-data/root-credentials");
    let credentials = fs::read_to_string(credentials).unwrap();
    let s3 = S3::new(&program, &credentials);
    assert_eq!(s3.put("/bucket", b"").status, 200);
    // Larger than what lies inline, so that it has blocks of its own.
    assert_eq!(s3.put("/bucket/key", &vec![0xA5; 1 << 20]).status, 200);
    assert_eq!(run(directory.path(), &["check"]).code, 3);
    assert_eq!(program.stop().code, 0);

    let whole = run(directory.path(), &["check"]);
    assert_eq!(whole.code, 0, "{whole:?}");
    let told = "The store ./portico-data/store is whole: nothing is damaged.\n";
    assert!(whole.stdout.ends_with(told), "{whole:?}");
    let store = directory.path().join("portico-data/store");
    flip_a_byte_of_data(&store);
    let damaged = run(directory.path(), &["check"]);
    assert_eq!(damaged.code, 1, "{damaged:?}");
    assert!(damaged.stdout.lines().count() > 1, "{damaged:?}");

    let nowhere = run(directory.path(), &["check", "--data-dir", "nowhere"]);
    assert_eq!(nowhere.code, 2, "{nowhere:?}");
    assert!(!directory.path().join("nowhere").exists());
}

#[test]
fn output_that_nobody_reads_or_that_finds_no_room_is_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let ask = |arguments: &[&str], stdout: Stdio| {
        let mut asked = command(directory.path(), arguments);
        let output = asked.stdout(stdout).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        (output.status.code().unwrap(), stderr)
    };
    let running: [&[&str]; 4] = [
        &["user", "list"],
        &["user", "show", "root"],
        &["bucket", "list", "--json"],
        &["status"],
    ];
    let check = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(ask(arguments, writer.into()), (0, String::new()));
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let (code, stderr) = ask(arguments, full.into());
        assert_eq!(code, 1, "{stderr}");
        assert!(
            stderr.contains("cannot write to standard output"),
            "{stderr}"
        );
    };
    for arguments in running {
        check(arguments);
    }
    program.stop();
    check(&["check"]);
    check(&["keyring", "rotate"]);
}

#[test]
fn a_rotated_keyring_opens_the_same_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let keyring = directory.path().join("portico-data/keyring");
    assert_eq!(run(directory.path(), &["keyring", "rotate"]).code, 2);
    let program = Program::start(directory.path(), &[]);
    assert_eq!(run(directory.path(), &["keyring", "rotate"]).code, 3);
    assert_eq!(program.stop().code, 0);
    let credentials = directory.path().join("portico-data/root-credentials");
    let credentials = fs::read_to_string(credentials).unwrap();
    let old = fs::read_to_string(&keyring).unwrap();

    let rotated = run(directory.path(), &["keyring", "rotate"]);
    assert_eq!(rotated.code, 0, "{rotated:?}");
    assert!(
        rotated.stdout.contains("1 secrets are sealed"),
        "{rotated:?}"
    );
    let new = fs::read_to_string(&keyring).unwrap();
    let old_key = old.lines().find(|line| line.starts_with("key ")).unwrap();
    assert!(!new.contains(old_key));
    let program = Program::start(directory.path(), &[]);
    assert_eq!(S3::new(&program, &credentials).get("/").status, 200);
    assert_eq!(program.stop().code, 0);

    // The keyring of before the rotation is refused, and so is one that others may read.
    fs::write(&keyring, &old).unwrap();
    let refused = run(directory.path(), &["keyring", "rotate"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("\"k2\""), "{refused:?}");
    assert_eq!(fs::read_to_string(&keyring).unwrap(), old);
    let refused = run(directory.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("\"k2\""), "{refused:?}");
    fs::write(&keyring, new).unwrap();
    fs::set_permissions(&keyring, fs::Permissions::from_mode(0o640)).unwrap();
    let refused = run(directory.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("chmod 600"), "{refused:?}");
}

fn secret_of(credentials: &str) -> &str {
    let line = credentials
        .lines()
        .find_map(|line| line.strip_prefix("aws_secret_access_key = "));
    line.expect("the file has a secret")
}

/// Finds the object's bytes in the store's files and changes one of them.
fn flip_a_byte_of_data(store: &Path) {
    let mut entries: Vec<PathBuf> = vec![store.to_owned()];
    while let Some(path) = entries.pop() {
        if path.is_dir() {
            entries.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        let found = bytes
            .chunks_exact(4_096)
            .position(|chunk| chunk == [0xA5; 4_096]);
        if let Some(index) = found {
            bytes[index * 4_096 + 2_048] ^= 1;
            fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("the object's bytes are in no file of the store");
}
