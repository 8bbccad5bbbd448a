//! Budget: the number of lines of Rust that each crate may have, from `tests/lines.txt`. A commit that raises a number there says
//! why. Never counts generated code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::sources;

/// The folder of each crate, and the most lines that its Rust sources may have, tests included.
fn budgets(text: &str) -> BTreeMap<&str, usize> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (folder, most) = line.split_once(' ').unwrap_or_else(|| panic!("no number in `{line}`"));
            (folder, most.trim().parse().unwrap_or_else(|_| panic!("no number in `{line}`")))
        })
        .collect()
}

/// The lines of each crate of the workspace: of the files below its folder that are not in a nested crate.
fn counts(root: &Path) -> BTreeMap<String, usize> {
    let mut files = Vec::new();
    sources(root, &mut files);
    let mut counts = BTreeMap::new();
    // What `golden` holds is written by programs.
    let is_written = |file: &Path| {
        file.extension().is_some_and(|ending| ending == "rs") && !file.starts_with(root.join("tests/golden"))
    };
    for file in files.iter().filter(|file| is_written(file)) {
        let Some(package) = file.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").exists()) else {
            continue;
        };
        let folder = package.strip_prefix(root).expect("a folder of the workspace").to_string_lossy().into_owned();
        *counts.entry(folder).or_default() += fs::read_to_string(file).expect("a text").lines().count();
    }
    counts
}

#[test]
fn no_crate_has_more_lines_than_its_budget() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("tests/lines.txt")).expect("the budgets");
    let (mut budgets, counts) = (budgets(&text), counts(&root));
    for (folder, lines) in &counts {
        let most =
            budgets.remove(folder.as_str()).unwrap_or_else(|| panic!("`{folder}` has no line in tests/lines.txt"));
        assert!(
            *lines <= most,
            "`{folder}` has {lines} lines, and its budget is {most}: make it smaller, or raise the budget in \
             tests/lines.txt and say in the commit why"
        );
    }
    assert!(budgets.is_empty(), "tests/lines.txt names what is no crate: {budgets:?}");
}
