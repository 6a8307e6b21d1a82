//! The commands that talk to a running program: over its socket, and over TCP with a token.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::program::{Output, Program, S3, run};

/// Runs a command that must succeed; gives its standard output.
fn succeed(directory: &Path, arguments: &[&str]) -> String {
    let output = run(directory, arguments);
    assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
    output.stdout
}

/// Runs a command that must fail, saying `expected`.
fn fail(directory: &Path, arguments: &[&str], expected: &str) {
    fail_with(1, directory, arguments, expected);
}

fn fail_with(code: i32, directory: &Path, arguments: &[&str], expected: &str) {
    let output = run(directory, arguments);
    assert_eq!(output.code, code, "{arguments:?}: {output:?}");
    assert!(
        output.stderr.contains(expected),
        "{arguments:?}: {output:?}"
    );
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_user_works_from_its_making_to_its_deletion() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fail(directory, &["status"], "is \"portico serve\" running?");
    let program = Program::start(directory, &[]);
    succeed(
        directory,
        &["user", "create", "alice", "--display-name", "Alice A"],
    );
    fail(
        directory,
        &["user", "create", "alice"],
        "exists already (UserExists)",
    );
    let made = succeed(directory, &["user", "key", "create", "alice", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let (id, secret) = (&made["access_key"], &made["secret_key"]);
    let (id, secret) = (id.as_str().unwrap(), secret.as_str().unwrap());
    let credentials = format!("aws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    let s3 = S3::new(&program, &credentials);

    succeed(
        directory,
        &["bucket", "create", "photos", "--owner", "alice"],
    );
    assert_eq!(s3.put("/photos/key", b"data").status, 200);
    let owner = s3.get("/").text();
    assert!(
        owner.contains("<DisplayName>Alice A</DisplayName>"),
        "{owner}"
    );
    let shown = succeed(directory, &["bucket", "show", "photos"]);
    assert!(shown.contains("owner    alice\n"), "{shown}");
    assert!(shown.contains("objects  1\nsize     4 B\n"), "{shown}");
    assert!(succeed(directory, &["bucket", "list"]).contains("photos  alice  live"));
    fail(
        directory,
        &["bucket", "delete", "photos"],
        "(BucketNotEmpty)",
    );
    fail(
        directory,
        &["user", "delete", "alice"],
        "among them \"photos\"",
    );

    succeed(directory, &["user", "disable", "alice"]);
    assert_eq!(s3.get("/photos/key").status, 403);
    assert!(succeed(directory, &["user", "list"]).contains("disabled"));
    succeed(directory, &["user", "enable", "alice"]);
    assert_eq!(s3.get("/photos/key").status, 200);
    assert!(succeed(directory, &["user", "key", "list", "alice"]).contains(id));
    succeed(directory, &["user", "key", "delete", "alice", id]);
    assert_eq!(s3.get("/photos/key").status, 403);

    let listed = succeed(directory, &["user", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["users"].as_array().unwrap().len(), 2);
    succeed(directory, &["bucket", "create", "empty", "--owner", "root"]);
    succeed(directory, &["bucket", "delete", "empty"]);
    fail(directory, &["bucket", "show", "empty"], "(NoSuchBucket)");
    let status = succeed(directory, &["status"]);
    assert!(
        status.contains("ready    yes\nusers    2\nbuckets  1\n"),
        "{status}"
    );
    let Output { stderr, .. } = program.stop();
    assert!(!stderr.contains(secret));
}

#[test]
fn a_user_is_shown_with_keys_and_buckets_and_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let _program = Program::start(directory, &[]);
    succeed(
        directory,
        &["user", "create", "alice", "--display-name", "Alice A"],
    );
    let made = succeed(directory, &["user", "key", "create", "alice", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let (id, secret) = (&made["access_key"], &made["secret_key"]);
    let (id, secret) = (id.as_str().unwrap(), secret.as_str().unwrap());
    for (bucket, owner) in [("photos", "alice"), ("roots", "root")] {
        succeed(directory, &["bucket", "create", bucket, "--owner", owner]);
    }
    let shown = succeed(directory, &["user", "show", "alice"]);
    for part in [
        "display name  Alice A\n",
        "state         enabled\n",
        id,
        "photos  alice  live",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(
        !shown.contains(secret) && !shown.contains("roots"),
        "{shown}"
    );
    let shown = succeed(directory, &["user", "show", "alice", "--json"]);
    assert!(!shown.contains(secret), "{shown}");
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["buckets"][0]["name"], "photos");
    assert_eq!(shown["access_keys"][0]["access_key"], id);
    fail(directory, &["user", "show", "nobody"], "(NoSuchUser)");
}

#[test]
fn keys_are_chosen_from_a_private_file() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let program = Program::start(directory, &[]);
    let create = ["user", "key", "create", "root", "--access-key", "CHOSEN"];
    let create = [&create[..], &["--secret-file", "secret"]].concat();
    fs::write(directory.join("secret"), "a-chosen-secret\n").unwrap();
    fail_with(2, directory, &create, "chmod 600");
    write_private(&directory.join("secret"), "a-chosen-secret\n");
    // Whoever chose the secret knows it: it is not shown.
    let made = succeed(directory, &create);
    assert_eq!(made, "access key  CHOSEN\n");
    let second = ["user", "key", "create", "root", "--access-key", "CHOSEN2"];
    let create = [&second[..], &["--secret-file", "secret", "--json"]].concat();
    let made = succeed(directory, &create);
    assert!(
        made.contains("CHOSEN2") && !made.contains("secret"),
        "{made}"
    );
    let credentials = "aws_access_key_id = CHOSEN\naws_secret_access_key = a-chosen-secret\n";
    assert_eq!(S3::new(&program, credentials).get("/").status, 200);
}

/// Starts it with the admin API over TLS, and gives its URL.
fn start_over_tcp(directory: &Path, certificate: &str, key: &rcgen::KeyPair) -> (Program, String) {
    fs::write(directory.join("certificate.pem"), certificate).unwrap();
    fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
    write_private(&directory.join("token"), "a-token-of-some-length\n");
    let configuration = "[admin.tcp]\naddress = \"127.0.0.1:0\"\ntoken_file = \"token\"\n\
                         tls = { certificate = \"certificate.pem\", key = \"key.pem\" }\n";
    fs::write(directory.join("portico.toml"), configuration).unwrap();
    let program = Program::start_with(directory, &["--config", "portico.toml"]);
    let line = program
        .banner
        .lines()
        .find(|line| line.ends_with("(with a token)"));
    let mut port = line
        .unwrap()
        .split([':', ' '])
        .filter_map(|word| word.parse::<u16>().ok());
    let url = format!("https://localhost:{}", port.next_back().unwrap());
    (program, url)
}

/// What `openssl req -x509` makes: a certificate of the server that calls itself an authority.
#[test]
fn over_tcp_a_self_signed_authority_is_trusted_for_its_own_name_only() {
    for (name, is_trusted) in [("localhost", true), ("elsewhere", false)] {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let (_program, url) = start_over_tcp(directory, &made.pem(), &key);
        let status = ["status", "--url", &url, "--token-file", "token"];
        let right = [&status[..], &["--ca-file", "certificate.pem"]].concat();
        if is_trusted {
            assert!(succeed(directory, &right).contains("ready    yes"));
        } else {
            fail(directory, &right, "cannot reach portico at localhost");
        }
        // Another one of the same form and name is another one.
        let other = params.self_signed(&rcgen::KeyPair::generate().unwrap());
        fs::write(directory.join("other.pem"), other.unwrap().pem()).unwrap();
        let other = [&status[..], &["--ca-file", "other.pem"]].concat();
        fail(directory, &other, "cannot reach portico at localhost");
    }
}

#[test]
fn over_tcp_the_token_opens_and_the_certificate_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (_program, url) = start_over_tcp(directory, &made.cert.pem(), &made.signing_key);
    write_private(&directory.join("wrong"), "another-token-of-some-length\n");
    let status = ["status", "--url", &url];

    let right = ["--token-file", "token", "--ca-file", "certificate.pem"];
    let status_right = [&status[..], &right].concat();
    assert!(succeed(directory, &status_right).contains("ready    yes"));
    let wrong = ["--token-file", "wrong", "--ca-file", "certificate.pem"];
    let status_wrong = [&status[..], &wrong].concat();
    fail(directory, &status_wrong, "(Unauthorized)");

    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(directory.join("other.pem"), other.cert.pem()).unwrap();
    let other = ["--token-file", "token", "--ca-file", "other.pem"];
    let status_other = [&status[..], &other].concat();
    fail(
        directory,
        &status_other,
        "cannot reach portico at localhost",
    );
    // The private key, given by mistake, is told from a token before anybody is asked.
    write_private(&directory.join("no-token"), "two\nlines\n");
    let confused = ["--token-file", "no-token", "--ca-file", "certificate.pem"];
    let refused = run(directory, &[&status[..], &confused].concat());
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("token in no-token"), "{refused:?}");
    // A token never leaves without a check of whom it goes to.
    let unchecked = [&status[..], &["--token-file", "token"]].concat();
    assert_eq!(run(directory, &unchecked).code, 2);
    assert_eq!(run(directory, &status).code, 2);
    let clear = [
        "status",
        "--url",
        "http://192.0.2.1:9002",
        "--token-file",
        "token",
    ];
    let refused = run(directory, &clear);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("in the clear"), "{refused:?}");
}
