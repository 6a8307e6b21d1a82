//! What `serve` says on standard output once it serves: where, who, and commands to copy.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::credentials::Credentials;
use crate::root::RootKeys;

/// What there is to say.
#[derive(Clone, Debug)]
pub(crate) struct Banner<'a> {
    pub(crate) data_dir: &'a Path,
    pub(crate) in_memory: bool,
    /// Address, and the certificate where it is TLS.
    pub(crate) s3: Vec<(SocketAddr, Option<&'a Path>)>,
    pub(crate) region: &'a str,
    /// Portals of iSCSI.
    pub(crate) iscsi: Vec<SocketAddr>,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) admin_socket: &'a Path,
    pub(crate) admin_tcp: Option<SocketAddr>,
    pub(crate) root: &'a RootKeys,
    pub(crate) credentials_file: &'a Path,
}

impl Banner<'_> {
    /// The whole text. It holds the secret key only if `root` is `Show`.
    pub(crate) fn render(&self) -> String {
        let mut lines = Lines::default();
        let place = if self.in_memory {
            "from memory: everything is gone when it stops".to_owned()
        } else {
            self.data_dir.display().to_string()
        };
        lines.add(format!(
            "portico {} serves {place}",
            env!("CARGO_PKG_VERSION")
        ));
        lines.add("");
        for (address, certificate) in &self.s3 {
            lines.add(format!(
                "  S3       {}",
                endpoint(*address, certificate.is_some())
            ));
        }
        for address in &self.iscsi {
            lines.add(format!("  iSCSI    {address}"));
        }
        if let Some(address) = self.metrics {
            lines.add(format!("  metrics  http://{address}/metrics"));
            lines.add(format!("  health   http://{address}/health"));
        }
        lines.add(format!("  admin    {}", self.admin_socket.display()));
        if let Some(address) = self.admin_tcp {
            lines.add(format!("  admin    {address} (with a token)"));
        }
        lines.add("");
        self.add_root(&mut lines);
        lines.add("");
        self.add_commands(&mut lines);
        lines.0
    }

    fn add_root(&self, lines: &mut Lines) {
        match self.root {
            RootKeys::Show(credentials) => {
                lines.add("  root access key  ".to_owned() + credentials.access_key.as_str());
                lines.add("  root secret key  ".to_owned() + credentials.secret.expose());
                lines.add("  The secret key is shown only now: keep it.");
            }
            RootKeys::Known { access_key } | RootKeys::Given { access_key } => {
                lines.add("  root access key  ".to_owned() + access_key);
                if self.file_holds(access_key) {
                    let path = self.credentials_file.display();
                    lines.add(format!("  root credentials {path}"));
                }
            }
        }
    }

    /// Whether the file is of use: a key that was replaced since it was written opens nothing.
    fn file_holds(&self, access_key: &str) -> bool {
        Credentials::access_key_in(self.credentials_file)
            .is_some_and(|held| held.as_str() == access_key)
    }

    fn add_commands(&self, lines: &mut Lines) {
        lines.add("Copy into a shell to use it:");
        lines.add("");
        let quoted = |path: &Path| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            shell_quoted(&path.display().to_string())
        };
        match self.root {
            RootKeys::Show(credentials) => {
                lines.add(format!(
                    "  export AWS_ACCESS_KEY_ID={}",
                    credentials.access_key
                ));
                let secret = shell_quoted(credentials.secret.expose());
                lines.add(format!("  export AWS_SECRET_ACCESS_KEY={secret}"));
            }
            RootKeys::Known { access_key } | RootKeys::Given { access_key }
                if self.file_holds(access_key) =>
            {
                let file = quoted(self.credentials_file);
                lines.add(format!("  export AWS_SHARED_CREDENTIALS_FILE={file}"));
            }
            RootKeys::Known { access_key } | RootKeys::Given { access_key } => {
                lines.add(format!("  export AWS_ACCESS_KEY_ID={access_key}"));
                lines.add("  export AWS_SECRET_ACCESS_KEY=   # the secret key that belongs to it");
            }
        }
        let Some((address, certificate)) = self.s3.first() else {
            return;
        };
        let url = reachable(*address, certificate.is_some());
        lines.add(format!(
            "  export AWS_REGION={0} AWS_DEFAULT_REGION={0} AWS_ENDPOINT_URL={url}",
            self.region
        ));
        if let Some(certificate) = certificate {
            let file = quoted(certificate);
            lines.add(format!(
                "  export AWS_CA_BUNDLE={file} RCLONE_CA_CERT={file}   # if it is self-signed"
            ));
        }
        lines.add("  aws s3 mb s3://demo");
        lines.add("  aws s3 cp /etc/hostname s3://demo/ && aws s3 ls s3://demo/");
        lines.add(
            "  python3 -c 'import boto3; print(boto3.client(\"s3\").list_buckets()[\"Buckets\"])'",
        );
        lines.add(format!(
            "  rclone lsd \":s3,provider=Other,env_auth=true,region={},endpoint='{url}':\"",
            self.region
        ));
    }
}

#[derive(Debug, Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, line: impl AsRef<str>) {
        writeln!(self.0, "{}", line.as_ref()).expect("writing to memory does not fail");
    }
}

fn endpoint(address: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// An endpoint that a client on this machine can connect to.
fn reachable(mut address: SocketAddr, tls: bool) -> String {
    if tls {
        // Certificates name hosts rather than addresses.
        return format!("https://localhost:{}", address.port());
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        });
    }
    endpoint(address, false)
}

/// `text` as one word of a POSIX shell.
fn shell_quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+=:@%".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn banner<'a>(root: &'a RootKeys, file: &'a Path) -> Banner<'a> {
        Banner {
            data_dir: Path::new("./portico-data"),
            in_memory: false,
            s3: vec![("0.0.0.0:9000".parse().unwrap(), None)],
            region: "us-east-1",
            iscsi: vec!["127.0.0.1:3260".parse().unwrap()],
            metrics: Some("127.0.0.1:9001".parse().unwrap()),
            admin_socket: Path::new("./portico-data/admin.sock"),
            admin_tcp: None,
            root,
            credentials_file: file,
        }
    }

    #[test]
    fn a_secret_is_there_only_when_it_is_to_be_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("it's secret");
        let credentials = Credentials::draw().unwrap();
        let secret = credentials.secret.clone();
        let access_key = credentials.access_key.to_string();
        let shown = RootKeys::Show(credentials.clone());
        assert!(banner(&shown, &file).render().contains(secret.expose()));

        std::fs::write(&file, credentials.to_file()).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let given = RootKeys::Given { access_key };
        let text = banner(&given, &file).render();
        assert!(!text.contains(secret.expose()));
        assert!(text.contains("it'\\''s secret'\n"), "{text}");
        assert!(text.contains("  S3       http://0.0.0.0:9000\n"), "{text}");
        assert!(
            text.contains("AWS_ENDPOINT_URL=http://127.0.0.1:9000\n"),
            "{text}"
        );

        let replaced = RootKeys::Known {
            access_key: "ANOTHERKEY".to_owned(),
        };
        let text = banner(&replaced, &file).render();
        assert!(!text.contains("secret'"), "{text}");
        assert!(text.contains("AWS_ACCESS_KEY_ID=ANOTHERKEY\n"), "{text}");
    }
}
