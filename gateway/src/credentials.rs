//! The root user's keys at the first start: taken from the environment or a file, or drawn, and
//! kept in a form that S3 clients read as they are.

use std::path::Path;

use portico_backend::catalog::{AccessKeyId, Secret, access_key_draw};

use crate::environment::{Environment, ROOT_ACCESS_KEY, ROOT_SECRET_KEY};
use crate::error::{Exit, Failure};
use crate::private_file;

/// An access key and its secret. `Debug` does not show the secret.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) access_key: AccessKeyId,
    pub(crate) secret: Secret,
}

/// Where the root user's keys came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    Drawn,
    Environment,
    File,
}

/// The key of the configuration that says where the file is.
const KEY: &str = "root.credentials_file";

impl Credentials {
    /// The keys for a store that has no root user yet: those of the environment, else those in
    /// `file`, else fresh ones.
    ///
    /// # Errors
    /// If keys break the rules for keys, or the file is open to others.
    pub(crate) fn for_first_start(
        environment: &Environment,
        file: &Path,
    ) -> Result<(Self, Origin), Failure> {
        if let Some((access, secret)) = &environment.root {
            let keys = Self::checked(access, secret).map_err(|problem| {
                let place = format!("{ROOT_ACCESS_KEY} and {ROOT_SECRET_KEY}");
                Failure::new(Exit::Usage, format!("{place}: {problem}"))
            })?;
            return Ok((keys, Origin::Environment));
        }
        if let Some(text) = private_file::read(file).map_err(|failure| failure.of_key(KEY))? {
            let keys = Self::from_file(&text).map_err(|problem| {
                Failure::new(Exit::Usage, format!("{}: {problem}", file.display()))
                    .with_help("write it as an AWS shared credentials file, or remove it")
                    .of_key(KEY)
            })?;
            return Ok((keys, Origin::File));
        }
        Ok((Self::draw()?, Origin::Drawn))
    }

    /// The access key that `file` holds, if there is one that could be used.
    pub(crate) fn access_key_in(file: &Path) -> Option<AccessKeyId> {
        let text = private_file::read(file).ok()??;
        Some(Self::from_file(&text).ok()?.access_key)
    }

    /// Fresh random keys.
    ///
    /// # Errors
    /// If the machine gives no random numbers.
    pub(crate) fn draw() -> Result<Self, Failure> {
        let (access_key, secret) = access_key_draw()
            .map_err(|error| Failure::from_source("cannot make an access key", &error))?;
        Ok(Self { access_key, secret })
    }

    /// An AWS shared credentials file: clients use it with `AWS_SHARED_CREDENTIALS_FILE`.
    pub(crate) fn to_file(&self) -> String {
        format!(
            "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
            self.access_key,
            self.secret.expose()
        )
    }

    fn from_file(text: &str) -> Result<Self, String> {
        let value = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim())
                .ok_or_else(|| format!("it has no line \"{name} = ...\""))
        };
        Self::checked(value("aws_access_key_id")?, value("aws_secret_access_key")?)
    }

    fn checked(access: &str, secret: &str) -> Result<Self, String> {
        let access_key =
            AccessKeyId::new(access).map_err(|error| format!("the access key {error}"))?;
        let secret = Secret::new(secret).map_err(|error| format!("the secret key {error}"))?;
        Ok(Self { access_key, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(access: &str, secret: &str) -> Environment {
        Environment {
            root: Some((access.to_owned(), secret.to_owned())),
        }
    }

    #[test]
    fn drawn_keys_survive_the_file_and_are_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("root-credentials");
        let none = Environment::default();
        let (drawn, origin) = Credentials::for_first_start(&none, &file).unwrap();
        assert_eq!(origin, Origin::Drawn);
        private_file::replace(&file, &drawn.to_file()).unwrap();
        let (read, origin) = Credentials::for_first_start(&none, &file).unwrap();
        assert_eq!(origin, Origin::File);
        assert_eq!(read.access_key, drawn.access_key);
        assert!(read.secret.matches(drawn.secret.expose()));

        let given = environment("rootkey", "rootsecret");
        let (taken, origin) = Credentials::for_first_start(&given, &file).unwrap();
        assert_eq!(origin, Origin::Environment);
        assert_eq!(taken.access_key.as_str(), "rootkey");
    }

    #[test]
    fn a_secret_shows_neither_in_debug_nor_in_errors() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("root-credentials");
        let given = environment("rootkey", "hunter2hunter2");
        let (keys, _) = Credentials::for_first_start(&given, &file).unwrap();
        assert!(!format!("{given:?} {keys:?}").contains("hunter"));

        for (access, secret) in [
            ("ab", "hunter2hunter2"),
            ("a b c", "hunter2"),
            ("abcd", "hunter2"),
        ] {
            let given = environment(access, secret);
            let failure = Credentials::for_first_start(&given, &file).unwrap_err();
            assert!(!failure.to_string().contains("hunter"), "{failure}");
        }
        private_file::replace(&file, "[default]\naws_secret_access_key = hunter2hunter2\n")
            .unwrap();
        let failure = Credentials::for_first_start(&Environment::default(), &file).unwrap_err();
        let told = failure.to_string();
        assert!(
            told.contains("aws_access_key_id") && !told.contains("hunter"),
            "{told}"
        );
    }
}
