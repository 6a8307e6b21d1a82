//! Codes of the standard: a table of values and their codes is read in both directions.

use super::WireError;

/// # Panics
/// If the table does not have the value: it names every one that is written.
pub(super) fn code_of<T: Copy + PartialEq, C: Copy>(codes: &[(T, C)], of: T) -> C {
    let found = codes.iter().find(|(one, _)| *one == of);
    found.expect("the table names every variant").1
}

/// # Errors
/// `Field` with this name if no value has the code.
pub(super) fn of_code<T: Copy, C: Copy + PartialEq>(
    codes: &[(T, C)],
    code: C,
    field: &'static str,
) -> Result<T, WireError> {
    let found = codes.iter().find(|(_, one)| *one == code);
    found.map(|(of, _)| *of).ok_or(WireError::Field(field))
}
