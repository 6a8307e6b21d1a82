//! The project's own rules, those a program can check and clippy can't say.
//!
//! A rule is a function from the tree of files to complaints. Each has a test that shows it failing on
//! a sample: a rule that can't fail is none. The rules' reasons are in `docs/contributing.md`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines in a source file; a longer one holds a second concept.
const FILE_LINES_MAX: usize = 800;

/// One table each, read by searching and not from top to bottom.
const LONG_TABLES: &[&str] = &[];

/// What may lie at the top, beside dotted files.
const TOP_LEVEL: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "backend",
    "conformance",
    "docs",
    "gateway",
    "iscsi",
    "nfs",
    "s3",
];

/// The only files that may hold `unsafe`.
const UNSAFE_FILES: &[&str] = &[
    "backend/src/local/uring.rs",
    "backend/src/rados/librados/flight.rs",
    "backend/src/rados/librados/mod.rs",
    "backend/src/rados/librados/operation.rs",
    "backend/src/rados/librados/symbols.rs",
    "backend/src/rados/librados/watching.rs",
];

/// A file of the repository.
struct File {
    /// Relative to the top, with slashes.
    path: String,
    text: String,
}

type Rule = fn(&[File]) -> Vec<String>;

const RULES: &[(&str, Rule)] = &[
    ("the top level is fixed", top_level),
    ("files are short", file_length),
    ("sources are ASCII", ascii),
    ("no glob imports outside tests", glob_imports),
    ("one title per document", one_title),
    ("links lead somewhere", links),
    ("decisions are numbered without gaps", decisions),
    ("no leftovers", leftovers),
    ("the project speaks of itself alone", foreign_words),
    ("tests are never switched off", ignored_tests),
    ("hand-checked code has its own files", unsafe_code),
    ("limits are documented", limits),
    ("the ladder goes one way", ladder),
    ("expected failures have reasons", expected_failures),
    ("every module is reachable", reachable),
    ("supported S3 actions are documented", s3_actions),
];

#[test]
fn repository_follows_every_rule() {
    let files = repository();
    assert!(files.len() > 20, "only {} files were found", files.len());
    let complaints: Vec<String> = RULES
        .iter()
        .flat_map(|(name, rule)| {
            rule(&files)
                .into_iter()
                .map(move |c| format!("{name}: {c}"))
        })
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Every text file that is committed or about to be.
fn repository() -> Vec<File> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(&top)
        .output()
        .expect("git is needed to know the files");
    assert!(listed.status.success(), "git ls-files failed");
    let names: BTreeSet<PathBuf> = String::from_utf8(listed.stdout)
        .expect("file names are UTF-8")
        .split_terminator('\0')
        .map(PathBuf::from)
        .collect();
    names
        .iter()
        .filter_map(|name| {
            let text = std::fs::read_to_string(top.join(name)).ok()?;
            let path = name.to_str().expect("came from a string").to_owned();
            Some(File { path, text })
        })
        .collect()
}

fn top_level(files: &[File]) -> Vec<String> {
    let found: BTreeSet<&str> = files
        .iter()
        .filter_map(|f| f.path.split('/').next())
        .collect();
    found
        .into_iter()
        .filter(|name| !name.starts_with('.') && !TOP_LEVEL.contains(name))
        .map(|name| format!("{name} does not belong at the top"))
        .collect()
}

fn file_length(files: &[File]) -> Vec<String> {
    sources(files)
        .filter(|file| !LONG_TABLES.contains(&file.path.as_str()))
        .filter_map(|file| {
            let lines = file.text.lines().count();
            (lines > FILE_LINES_MAX).then(|| format!("{} has {lines} lines", file.path))
        })
        .collect()
}

fn ascii(files: &[File]) -> Vec<String> {
    sources(files)
        .flat_map(|file| lines_where(file, |line| !line.is_ascii()))
        .collect()
}

fn glob_imports(files: &[File]) -> Vec<String> {
    let glob = |line: &str| {
        let line = line.trim_start();
        (line.starts_with("use ") || line.starts_with("pub use ")) && line.contains("::*")
    };
    product(files)
        .flat_map(|file| lines_where(&file, glob))
        .collect()
}

fn one_title(files: &[File]) -> Vec<String> {
    documents(files)
        .filter_map(|file| {
            let titles = prose(&file.text)
                .filter(|line| line.starts_with("# "))
                .count();
            (titles != 1).then(|| format!("{} has {titles} titles", file.path))
        })
        .collect()
}

fn links(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in documents(files) {
        let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        for piece in prose(&file.text).flat_map(|line| line.split("](").skip(1)) {
            let link = piece.split([')', '#']).next().unwrap_or_default();
            if link.is_empty() || link.contains("://") {
                continue;
            }
            let target = normal(&folder.join(link));
            let inside = format!("{target}/");
            if !files
                .iter()
                .any(|f| f.path == target || f.path.starts_with(&inside))
            {
                complaints.push(format!("{} links to {link}, which is not there", file.path));
            }
        }
    }
    complaints
}

fn decisions(files: &[File]) -> Vec<String> {
    let numbers = files.iter().filter_map(|file| {
        let name = file.path.strip_prefix("docs/decisions/")?;
        name.get(..4)?.parse::<usize>().ok()
    });
    let mut complaints = Vec::new();
    for (index, number) in numbers.enumerate() {
        if number != index + 1 {
            complaints.push(format!("decision {:04} is missing or double", index + 1));
            break;
        }
    }
    complaints
}

fn leftovers(files: &[File]) -> Vec<String> {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("HA", "CK"),
    ];
    let left =
        |line: &str| words.iter().any(|word| line.contains(word)) && !line.contains("decision ");
    sources(files)
        .flat_map(|file| lines_where(file, left))
        .collect()
}

fn foreign_words(files: &[File]) -> Vec<String> {
    let words = [
        concat!("/wo", "rk/"),
        concat!(".lib", "rary"),
        concat!("sub", "agent"),
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("deb.debian", ".org"),
        concat!("npmjs", ".org"),
    ];
    files
        .iter()
        .filter(|file| !file.path.ends_with("Cargo.lock"))
        .flat_map(|file| lines_where(file, |line| words.iter().any(|word| line.contains(word))))
        .collect()
}

fn ignored_tests(files: &[File]) -> Vec<String> {
    let off = concat!("#[ig", "nore");
    rust(files)
        .flat_map(|file| lines_where(file, |line| line.contains(off)))
        .collect()
}

fn unsafe_code(files: &[File]) -> Vec<String> {
    let word = concat!("uns", "afe");
    let used = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        code.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|token| token == word)
    };
    rust(files)
        .filter(|file| !UNSAFE_FILES.contains(&file.path.as_str()))
        .flat_map(|file| lines_where(file, used))
        .collect()
}

fn limits(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in rust(files).filter(|file| file.path.ends_with("/limits.rs")) {
        let mut before = "";
        for line in file.text.lines() {
            let constant = line.starts_with("pub const ") || line.starts_with("pub(crate) const ");
            if constant && !before.starts_with("///") {
                complaints.push(format!("{}: no reason for {line}", file.path));
            }
            before = line;
        }
    }
    complaints
}

/// A file that no `mod` names is compiled by nobody.
fn reachable(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in rust(files).filter(|file| file.path.contains("/src/")) {
        let path = Path::new(&file.path);
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new(""));
        let (name, parent) = match stem {
            "lib" | "main" | "build" => continue,
            "mod" => (
                folder
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default(),
                folder.parent(),
            ),
            _ => (stem, Some(folder)),
        };
        let parent = parent.unwrap_or(Path::new(""));
        let last = parent
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        // Targets of their own, found by cargo itself.
        if ["tests", "bin", "examples", "benches", "fuzz_targets"].contains(&last) && stem != "mod"
        {
            continue;
        }
        let above = parent.with_extension("rs");
        let owners = [
            parent.join("mod.rs"),
            parent.join("lib.rs"),
            parent.join("main.rs"),
            above,
        ];
        let declared = format!("mod {name};");
        let found = files.iter().any(|other| {
            owners.iter().any(|owner| owner == Path::new(&other.path))
                && other.text.contains(&declared)
        });
        if !found {
            complaints.push(format!("no module declares {}", file.path));
        }
    }
    complaints
}

/// Which code may not name what. The first column is where, the second is what it may not name.
const LADDER: &[(&[&str], &[&str])] = &[
    // The crates: gateway over protocols over backend.
    (
        &["backend/src/"],
        &["portico", "portico_s3", "portico_iscsi", "portico_nfs"],
    ),
    (&["s3/src/"], &["portico", "portico_iscsi", "portico_nfs"]),
    (&["iscsi/src/"], &["portico", "portico_s3", "portico_nfs"]),
    (&["nfs/src/"], &["portico", "portico_s3", "portico_iscsi"]),
    (&["gateway/src/"], &["portico_conformance"]),
    // Engines never name a volume, volumes never name an engine; they meet in the trait.
    (
        &[
            "backend/src/memory",
            "backend/src/local",
            "backend/src/rados",
            "backend/src/faulty",
        ],
        &[
            "crate::bucket",
            "crate::catalog",
            "crate::claim",
            "crate::image",
            "crate::stripe",
            "crate::tree",
            "crate::volumes",
        ],
    ),
    (
        &[
            "backend/src/bucket/",
            "backend/src/catalog",
            "backend/src/claim",
            "backend/src/image/",
            "backend/src/tree/",
            "backend/src/stripe",
            "backend/src/object/",
            "backend/src/volumes",
        ],
        &[
            "crate::memory",
            "crate::local",
            "crate::rados",
            "crate::faulty",
        ],
    ),
    // Volumes don't use each other.
    (&["backend/src/bucket/"], &["crate::image", "crate::tree"]),
    (&["backend/src/image/"], &["crate::bucket", "crate::tree"]),
    (&["backend/src/tree/"], &["crate::bucket", "crate::image"]),
    // A protocol: wire knows no state, state knows no sockets. Of the backend, wire may name the plain
    // values it decodes into.
    (
        &["s3/src/wire/", "iscsi/src/wire/", "nfs/src/wire/"],
        &[
            "portico_backend::catalog",
            "portico_backend::local",
            "portico_backend::memory",
            "portico_backend::object",
            "crate::op",
            "crate::serve",
            "crate::session",
            "hyper",
            "std::fs",
            "std::net",
            "tokio",
        ],
    ),
    (
        &[
            "s3/src/auth/",
            "s3/src/error",
            "s3/src/lib.rs",
            "s3/src/limits.rs",
            "s3/src/op/",
            "s3/src/stats.rs",
            "iscsi/src/session/",
            "iscsi/src/scsi/",
            "nfs/src/export",
            "nfs/src/filesystem",
            "nfs/src/op/",
            "nfs/src/session/",
            "nfs/src/state/",
        ],
        &["hyper", "std::fs", "std::net", "tokio::io", "tokio::net"],
    ),
];

fn ladder(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in product(files) {
        let names = paths(&file.text);
        for (places, banned) in LADDER {
            if !places.iter().any(|place| file.path.starts_with(place)) {
                continue;
            }
            for name in &names {
                let hit = |b: &&&str| name == **b || name.starts_with(&format!("{b}::"));
                if banned.iter().any(|b| hit(&b)) {
                    complaints.push(format!("{} names {name}", file.path));
                }
            }
        }
    }
    complaints
}

/// The paths that `use` brings in, groups expanded, and those written out in the code.
fn paths(text: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = BTreeSet::new();
    for statement in code.split(';') {
        let Some(start) = statement.rfind("use ") else {
            continue;
        };
        let bare: String = statement[start + 4..].split_whitespace().collect();
        expand("", &bare, &mut found);
    }
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let written = code
        .split(|c| !word(c))
        .filter(|token| token.contains("::"));
    found.extend(written.map(|token| token.trim_matches(':').to_owned()));
    found
}

/// Expands `a::{b, c::{d}}` below a prefix.
fn expand(prefix: &str, tree: &str, found: &mut BTreeSet<String>) {
    let Some(open) = tree.find('{') else {
        found.insert(format!("{prefix}{tree}"));
        return;
    };
    let prefix = format!("{prefix}{}", &tree[..open]);
    let inner = tree[open + 1..].trim_end_matches(|c| c != '}');
    let inner = inner.strip_suffix('}').unwrap_or(inner);
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand(&prefix, &inner[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < inner.len() {
        expand(&prefix, &inner[start..], found);
    }
}

fn expected_failures(files: &[File]) -> Vec<String> {
    let lists = files
        .iter()
        .filter(|f| f.path.starts_with("conformance/expected/") && f.path.ends_with(".txt"));
    let wrong = |line: &str| {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let entry = !line.trim().is_empty() && !line.starts_with('#');
        entry && (fields.len() != 4 || fields.iter().any(|field| field.is_empty()))
    };
    lists.flat_map(|file| lines_where(file, wrong)).collect()
}

/// Every S3 action that is built has a row in the support matrix.
fn s3_actions(files: &[File]) -> Vec<String> {
    let text = |path: &str| {
        files
            .iter()
            .find(|f| f.path == path)
            .map_or("", |f| f.text.as_str())
    };
    let matrix = text("docs/protocols/s3.md");
    let table = text("s3/src/wire/action.rs");
    let variants = table.split("pub enum Action {").nth(1).unwrap_or_default();
    let variants = variants.split('}').next().unwrap_or_default();
    let names = variants
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','));
    let row = |name: &str| {
        matrix
            .lines()
            .any(|line| line.starts_with('|') && has_word(line, name))
    };
    names
        .filter(|name| name.chars().all(char::is_alphanumeric) && !row(name))
        .map(|name| format!("docs/protocols/s3.md has no row for {name}"))
        .collect()
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric())
        .any(|token| token == word)
}

fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

fn sources(files: &[File]) -> impl Iterator<Item = &File> {
    let endings = [".rs", ".py", ".toml", ".sh", "/run"];
    files
        .iter()
        .filter(move |file| endings.iter().any(|ending| file.path.ends_with(ending)))
}

fn documents(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".md"))
}

/// Rust files without their tests.
fn product(files: &[File]) -> impl Iterator<Item = File> {
    rust(files)
        .filter(|file| {
            let test = file.path.ends_with("/tests.rs") || file.path.contains("/tests/");
            !test && !file.path.starts_with("conformance/")
        })
        .map(|file| {
            let inline = [
                "#[cfg(test)]\nmod tests {",
                "#[cfg(test)]\npub(crate) mod tests {",
            ];
            let ends = inline.iter().filter_map(|mark| file.text.find(mark));
            let text = file.text[..ends.min().unwrap_or(file.text.len())].to_owned();
            File {
                path: file.path.clone(),
                text,
            }
        })
}

/// A document's lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn lines_where(file: &File, bad: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = file.text.lines().enumerate().filter(|(_, line)| bad(line));
    lines
        .map(|(index, line)| format!("{}:{}: {}", file.path, index + 1, line.trim()))
        .collect()
}

/// Resolves `..` without looking at a file system.
fn normal(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.components() {
        match part.as_os_str().to_str().unwrap_or_default() {
            "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// A rule complains about the bad sample and not about the good one.
fn shows(rule: Rule, bad: &[(&str, &str)], good: &[(&str, &str)]) {
    let tree = |sample: &[(&str, &str)]| -> Vec<File> {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        sample.iter().map(file).collect()
    };
    assert_eq!(rule(&tree(good)), Vec::<String>::new(), "the good sample");
    assert!(!rule(&tree(bad)).is_empty(), "the bad sample was not found");
}

#[test]
fn top_level_finds_a_stray_folder() {
    shows(
        top_level,
        &[("scripts/a.sh", "")],
        &[("backend/src/lib.rs", ""), (".ci/run", "")],
    );
}

#[test]
fn file_length_finds_a_long_file() {
    let long = "line\n".repeat(FILE_LINES_MAX + 1);
    let full = "line\n".repeat(FILE_LINES_MAX);
    shows(
        file_length,
        &[("s3/src/a.rs", &long)],
        &[("s3/src/a.rs", &full), ("docs/a.md", &long)],
    );
}

#[test]
fn ascii_finds_an_umlaut() {
    shows(
        ascii,
        &[("s3/src/a.rs", "// \u{e4}")],
        &[("s3/src/a.rs", "// a"), ("docs/a.md", "\u{e4}")],
    );
}

#[test]
fn glob_imports_finds_one_outside_tests() {
    let glob = "use crate::op::*;\n";
    let in_tests = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
    shows(
        glob_imports,
        &[("s3/src/a.rs", glob)],
        &[("s3/src/a.rs", in_tests), ("s3/src/a/tests.rs", glob)],
    );
}

#[test]
fn one_title_finds_two() {
    shows(
        one_title,
        &[("docs/a.md", "# A\n# B\n")],
        &[("docs/a.md", "# A\n```\n# comment\n```\n")],
    );
    shows(one_title, &[("docs/a.md", "no title")], &[]);
}

#[test]
fn links_finds_a_dead_one() {
    let page = "# A\nsee [b](../README.md) and [c](c.md#part)";
    let dead = [("docs/a.md", page), ("README.md", "# R")];
    shows(
        links,
        &dead,
        &[
            ("docs/a.md", page),
            ("README.md", "# R"),
            ("docs/c.md", "# C"),
        ],
    );
}

#[test]
fn decisions_finds_a_gap() {
    let (first, second, third) = (
        "docs/decisions/0001-a.md",
        "docs/decisions/0002-b.md",
        "docs/decisions/0003-c.md",
    );
    shows(
        decisions,
        &[(first, ""), (third, "")],
        &[(first, ""), (second, ""), (third, "")],
    );
}

#[test]
fn leftovers_finds_a_note_without_decision() {
    let note = concat!("// TO", "DO: later");
    let decided = concat!("// TO", "DO: later, see decision 0007");
    shows(
        leftovers,
        &[("s3/src/a.rs", note)],
        &[("s3/src/a.rs", decided)],
    );
}

#[test]
fn foreign_words_finds_a_machine_path() {
    shows(
        foreign_words,
        &[("docs/a.md", concat!("in /wo", "rk/x"))],
        &[("docs/a.md", "a network/share")],
    );
}

#[test]
fn ignored_tests_finds_one() {
    shows(
        ignored_tests,
        &[("s3/src/a.rs", concat!("#[ig", "nore]"))],
        &[("s3/src/a.rs", "#[test]")],
    );
}

#[test]
fn unsafe_code_finds_a_block() {
    let block = concat!("uns", "afe { f() }");
    let lint = concat!("#![deny(uns", "afe_code)] // no uns", "afe here");
    shows(
        unsafe_code,
        &[("s3/src/a.rs", block)],
        &[(UNSAFE_FILES[0], block), ("s3/src/b.rs", lint)],
    );
}

#[test]
fn limits_finds_a_constant_without_reason() {
    let bare = "pub const PAGE_MAX: u32 = 1;\n";
    let told = "/// Why.\npub const PAGE_MAX: u32 = 1;\n";
    shows(
        limits,
        &[("s3/src/limits.rs", bare)],
        &[("s3/src/limits.rs", told)],
    );
}

#[test]
fn reachable_finds_an_orphan() {
    let lib = ("s3/src/lib.rs", "pub mod op;\nmod error;\n");
    let good = [
        lib,
        ("s3/src/error.rs", ""),
        ("s3/src/op/mod.rs", "mod a;"),
        ("s3/src/op/a.rs", ""),
    ];
    shows(reachable, &[lib, ("s3/src/orphan.rs", "")], &good);
    shows(
        reachable,
        &[lib, ("s3/src/op/mod.rs", ""), ("s3/src/op/a.rs", "")],
        &[],
    );
}

#[test]
fn ladder_finds_an_engine_that_names_a_volume() {
    let grouped = "use crate::{\n    error::Error,\n    bucket::{Bucket, Entry},\n};\n";
    let in_tests = "#[cfg(test)]\nmod tests {\n    use crate::memory::Memory;\n}\n";
    let good = [
        (
            "backend/src/local/log.rs",
            "use crate::object::{ObjectStore, ReadOp};\n// crate::bucket is above\n",
        ),
        ("backend/src/bucket/index.rs", in_tests),
        ("s3/src/serve.rs", "use tokio::net::TcpStream;\n"),
    ];
    shows(ladder, &[("backend/src/local/log.rs", grouped)], &good);
    shows(
        ladder,
        &[(
            "backend/src/bucket/index.rs",
            "fn f() { crate::memory::open() }",
        )],
        &[],
    );
    shows(
        ladder,
        &[(
            "s3/src/op/get_object.rs",
            "use tokio::{net::TcpStream, sync::Mutex};\n",
        )],
        &[],
    );
    shows(
        ladder,
        &[("s3/src/lib.rs", "use portico_nfs::serve;\n")],
        &[],
    );
}

#[test]
fn expected_failures_finds_a_missing_reason() {
    let list = "conformance/expected/s3-tests.txt";
    shows(
        expected_failures,
        &[(list, "test_a | fail | |\n")],
        &[(list, "# note\ntest_a | fail | why | API\n")],
    );
}

#[test]
fn s3_actions_finds_an_undocumented_one() {
    let table = (
        "s3/src/wire/action.rs",
        "pub enum Action {\n    GetObject,\n    Unset(Unset),\n}\n",
    );
    let row = ("docs/protocols/s3.md", "| GetObject | yes |\n");
    let other = ("docs/protocols/s3.md", "| GetObjectTagging | yes |\n");
    shows(s3_actions, &[table, other], &[table, row]);
}
