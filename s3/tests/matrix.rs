//! The support matrix of `docs/protocols/s3.md` is the table of actions, line by line.

use std::fmt::Write as _;
use std::path::Path;

use portico_s3::wire::action::{ACTIONS, Answer, Row, Scope, Term};

const HEADER: &str = "| Action | Request | Answer |\n|---|---|---|\n";

fn line(row: &Row) -> String {
    let scope = match row.scope {
        Scope::Service => "/",
        Scope::Bucket => "/bucket",
        Scope::Object => "/bucket/key",
    };
    let mut request = format!("{} {scope}", row.verb.as_str());
    let mut separator = '?';
    for term in row.terms {
        match term {
            Term::Query(name) => write!(request, "{separator}{name}"),
            Term::QueryIs(name, value) => write!(request, "{separator}{name}={value}"),
            Term::Header(name) => write!(request, " with {name}"),
        }
        .expect("a string takes all");
        separator = '&';
    }
    let answer = match row.answer {
        Answer::Built(_) => "built",
        Answer::NotBuilt => "NotImplemented",
        Answer::Unset(_) => "as never set",
    };
    format!("| {} | `{request}` | {answer} |\n", row.name)
}

#[test]
fn the_document_shows_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocols/s3.md");
    let document = std::fs::read_to_string(path).expect("the document is there");
    let table: String = ACTIONS.iter().map(line).collect();
    let expected = HEADER.to_owned() + &table;
    assert!(
        document.contains(&expected),
        "the matrix should be:\n\n{expected}"
    );
}
