//! Form uploads: the policy that a form carries, its signature and its conditions (S3 API,
//! "Browser-based uploads using POST", and its older form with Signature V2).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portico_backend::catalog::Credential;
use serde_json::Value;

use super::{Identity, Lookup, Verifier, access_denied, credential, sigv2, sigv4};
use crate::error::{Code, S3Error};
use crate::limits::POLICY_CONDITIONS_MAX;
use crate::wire::form::FormFields;
use crate::wire::time::parse_iso8601;

/// What a form may do.
#[derive(Clone, Debug)]
pub struct FormGrant {
    pub identity: Identity,
    /// Least and greatest size of the file in bytes, if the policy bounds it.
    pub length_range: Option<(u64, u64)>,
}

impl FormGrant {
    /// # Errors
    /// `EntityTooSmall` or `EntityTooLarge` if the policy does not allow a file of this size.
    pub fn check_size(&self, size: u64) -> Result<(), S3Error> {
        match self.length_range {
            Some((min, _)) if size < min => Err(S3Error::new(Code::EntityTooSmall)
                .with_field("ProposedSize", size.to_string())
                .with_field("MinSizeAllowed", min.to_string())),
            Some((_, max)) if size > max => Err(S3Error::new(Code::EntityTooLarge)
                .with_field("ProposedSize", size.to_string())
                .with_field("MaxSizeAllowed", max.to_string())),
            Some(_) | None => Ok(()),
        }
    }
}

impl Verifier {
    /// Checks the policy and signature of a form whose fields are known, sent to `bucket`, with
    /// `key` as it will be used. A form without a policy is anonymous.
    ///
    /// # Errors
    /// `InvalidArgument` for missing fields, `InvalidPolicyDocument` for a policy that cannot be
    /// read, `AccessDenied` if it does not allow the form, `InvalidAccessKeyId`,
    /// `SignatureDoesNotMatch`.
    pub fn verify_form(
        &self,
        fields: &FormFields,
        bucket: &str,
        key: &str,
        now_ms: u64,
        lookup: Lookup<'_>,
    ) -> Result<FormGrant, S3Error> {
        let Some(encoded) = fields.first("policy").filter(|policy| !policy.is_empty()) else {
            return if fields
                .first("signature")
                .or(fields.first("x-amz-signature"))
                .is_some()
            {
                Err(missing("policy"))
            } else {
                Ok(FormGrant {
                    identity: Identity::Anonymous,
                    length_range: None,
                })
            };
        };
        let credential = self.check_form_signature(fields, encoded, lookup)?;
        let policy = STANDARD
            .decode(encoded.trim())
            .map_err(|_| invalid("Invalid Policy: Invalid Base64 encoding."))?;
        let policy = Policy::parse(&policy)?;
        if now_ms >= policy.expiration_ms {
            return Err(access_denied(
                "Invalid according to Policy: Policy expired.",
            ));
        }
        policy.check(fields, bucket, key)?;
        Ok(FormGrant {
            identity: Identity::User(credential),
            length_range: policy.length_range,
        })
    }

    fn check_form_signature(
        &self,
        fields: &FormFields,
        encoded: &str,
        lookup: Lookup<'_>,
    ) -> Result<Arc<Credential>, S3Error> {
        let field = |name: &'static str| fields.first(name).ok_or_else(|| missing(name));
        if fields.first("x-amz-algorithm").is_some() || fields.first("x-amz-signature").is_some() {
            if field("x-amz-algorithm")? != sigv4::ALGORITHM {
                return Err(S3Error::invalid_argument(
                    "x-amz-algorithm",
                    field("x-amz-algorithm")?,
                    "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"",
                ));
            }
            let (access_key, scope) =
                sigv4::form_scope(field("x-amz-credential")?, &self.options.region)?;
            let credential = credential(&access_key, lookup)?;
            let signature = field("x-amz-signature")?;
            return if sigv4::check_text(&self.keys, &credential, &scope, encoded, signature) {
                Ok(credential)
            } else {
                Err(Code::SignatureDoesNotMatch.into())
            };
        }
        let access_key = field("awsaccesskeyid")?;
        let signature = field("signature")?;
        if !self.options.signature_v2 {
            return Err(S3Error::new(Code::InvalidRequest).with_message(
                "The authorization mechanism you have provided is not supported. Please use \
                 AWS4-HMAC-SHA256.",
            ));
        }
        let credential = credential(access_key, lookup)?;
        sigv2::check(credential.secret.expose(), encoded, signature)?;
        Ok(credential)
    }
}

/// A policy document.
#[derive(Clone, Debug, PartialEq)]
struct Policy {
    expiration_ms: u64,
    conditions: Vec<Condition>,
    length_range: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    /// The field, in lower case, has this value.
    Equals(String, String),
    StartsWith(String, String),
}

impl Policy {
    fn parse(document: &[u8]) -> Result<Self, S3Error> {
        // serde_json bounds the depth; the form's fields are bounded before.
        let document: Value = serde_json::from_slice(document)
            .map_err(|_| invalid("Invalid Policy: Invalid JSON."))?;
        let Value::Object(members) = document else {
            return Err(invalid("Invalid Policy: Invalid JSON."));
        };
        let expiration_ms = members
            .get("expiration")
            .ok_or_else(|| invalid("Invalid Policy: Policy missing expiration."))?
            .as_str()
            .and_then(parse_iso8601)
            .ok_or_else(|| invalid("Invalid Policy: Invalid 'expiration' value"))?;
        let Some(Value::Array(list)) = members.get("conditions") else {
            return Err(invalid("Invalid Policy: Policy missing conditions."));
        };
        if list.len() > POLICY_CONDITIONS_MAX {
            return Err(invalid("Invalid Policy: Too many conditions."));
        }
        let mut policy = Self {
            expiration_ms,
            conditions: Vec::new(),
            length_range: None,
        };
        for condition in list {
            policy.add(condition)?;
        }
        Ok(policy)
    }

    fn add(&mut self, condition: &Value) -> Result<(), S3Error> {
        let refused = || invalid("Invalid Policy: Invalid Simple-Condition or Conditions.");
        match condition {
            Value::Object(members) => {
                if members.len() != 1 {
                    return Err(invalid(
                        "Invalid Policy: Invalid Simple-Condition: Simple-Conditions must have \
                         exactly one property specified.",
                    ));
                }
                for (name, value) in members {
                    let value = scalar(value).ok_or_else(refused)?;
                    let equals = Condition::Equals(name.to_ascii_lowercase(), value);
                    self.conditions.push(equals);
                }
                Ok(())
            }
            Value::Array(parts) => {
                let [operator, first, second] = parts.as_slice() else {
                    return Err(invalid(
                        "Invalid Policy: Invalid Condition: wrong number of arguments.",
                    ));
                };
                let operator = operator.as_str().ok_or_else(refused)?.to_ascii_lowercase();
                if operator == "content-length-range" {
                    let range = (length(first).ok_or_else(refused)?, length(second));
                    self.length_range = Some((range.0, range.1.ok_or_else(refused)?));
                    return Ok(());
                }
                let field = first
                    .as_str()
                    .and_then(|name| name.strip_prefix('$'))
                    .ok_or_else(refused)?
                    .to_ascii_lowercase();
                let value = scalar(second).ok_or_else(refused)?;
                self.conditions.push(match operator.as_str() {
                    "eq" => Condition::Equals(field, value),
                    "starts-with" => Condition::StartsWith(field, value),
                    _ => return Err(refused()),
                });
                Ok(())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(refused()),
        }
    }

    /// Every condition holds, and every field is named by one.
    fn check(&self, fields: &FormFields, bucket: &str, key: &str) -> Result<(), S3Error> {
        for condition in &self.conditions {
            let (name, holds) = match condition {
                Condition::Equals(name, value) => (
                    name,
                    value_of(fields, name, bucket, key) == Some(value.as_str()),
                ),
                Condition::StartsWith(name, start) => {
                    let given = value_of(fields, name, bucket, key);
                    // An empty start allows anything, also that the field is missing.
                    let holds = given.map_or(start.is_empty(), |value| value.starts_with(start));
                    (name, holds)
                }
            };
            if !holds {
                return Err(S3Error::new(Code::AccessDenied).with_message(format!(
                    "Invalid according to Policy: Policy Condition failed: [\"{name}\"]"
                )));
            }
        }
        let sent = fields.iter().map(|(name, _)| name.to_ascii_lowercase());
        for name in sent.chain(["bucket".to_owned(), "key".to_owned()]) {
            if !is_exempt(&name) && !self.conditions.iter().any(|one| one.field() == name) {
                return Err(S3Error::new(Code::AccessDenied).with_message(format!(
                    "Invalid according to Policy: Extra input fields: {name}"
                )));
            }
        }
        Ok(())
    }
}

impl Condition {
    fn field(&self) -> &str {
        match self {
            Self::Equals(field, _) | Self::StartsWith(field, _) => field,
        }
    }
}

/// The value a condition looks at: bucket and key as they will be used, whatever the form says.
fn value_of<'a>(
    fields: &'a FormFields,
    name: &str,
    bucket: &'a str,
    key: &'a str,
) -> Option<&'a str> {
    match name {
        "bucket" => Some(bucket),
        "key" => Some(key),
        _ => fields.first(name),
    }
}

/// Fields that no condition needs to name. Checksums only ever refuse an upload.
fn is_exempt(name: &str) -> bool {
    matches!(
        name,
        "awsaccesskeyid" | "signature" | "x-amz-signature" | "policy" | "file"
    ) || name.starts_with("x-ignore-")
        || name.starts_with("x-amz-checksum-")
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A length, as a number or in digits.
fn length(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn missing(field: &str) -> S3Error {
    S3Error::invalid_argument(
        field,
        "",
        format!(
            "Bucket POST must contain a field named '{field}'. If it is specified, please \
                 check the order of the fields."
        ),
    )
}

fn invalid(message: &'static str) -> S3Error {
    S3Error::new(Code::InvalidPolicyDocument).with_message(message)
}

#[cfg(test)]
mod tests;
