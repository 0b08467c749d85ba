//! Checks that `docs/faults.md` lists exactly the tests that are named after faults.

use std::{collections::BTreeSet, path::Path};

/// Number of known faults; they are numbered from 1.
const FAULTS: usize = 43;
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn named_after_faults(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            named_after_faults(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let functions = text
                .lines()
                .filter_map(|line| line.trim().split_once("fn f"));
            let names = functions.map(|(_, rest)| rest.split('(').next().unwrap());
            let numbered = names.filter(|name| {
                name.starts_with(|c: char| c.is_ascii_digit()) && name.contains('_')
            });
            found.extend(numbered.map(|name| format!("f{name}")));
        }
    }
}

#[test]
fn faults_page_lists_every_fault_test() {
    let mut tests = BTreeSet::new();
    for dir in ["pkg", "cmd", "tests"] {
        named_after_faults(&Path::new(ROOT).join(dir), &mut tests);
    }
    let table = std::fs::read_to_string(Path::new(ROOT).join("docs/faults.md")).unwrap();
    let mut listed = BTreeSet::new();
    let mut numbers = Vec::new();
    for row in table
        .lines()
        .filter(|line| line.starts_with("| F") && line[3..4].parse::<u8>().is_ok())
    {
        let number = row[2..].split(':').next().unwrap().to_lowercase();
        let before = listed.len();
        for name in row
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.starts_with('f'))
        {
            assert!(name.starts_with(&format!("{number}_")), "{row}");
            listed.insert(name.to_owned());
        }
        assert!(listed.len() > before, "no test: {row}");
        numbers.push(number);
    }
    let all: Vec<_> = (1..=FAULTS).map(|number| format!("f{number}")).collect();
    assert_eq!(numbers, all, "left: rows; right: faults");
    assert_eq!(tests, listed, "left: tests; right: docs/faults.md");
}
