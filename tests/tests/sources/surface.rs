//! Surface: what a user's crate sees of `zero-runtime`. Never judges names.

use std::fs;
use std::path::Path;

/// The most names of the prelude. A new layer adds none: it goes to `layers`.
const NAMES_MAX: usize = 30;

/// The most modules that the documentation of `zero-runtime` shows.
const MODULES_MAX: usize = 8;

fn lib() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../zero-runtime/src/lib.rs")).expect("a source")
}

#[test]
fn the_prelude_has_the_names_that_most_models_need() {
    let lib = lib();
    let (_, prelude) = lib.split_once("pub mod prelude {").expect("a prelude");
    let (uses, _) = prelude.split_once("\n}").expect("an end");
    let mut names = Vec::new();
    for item in uses.split(';').filter_map(|item| item.trim().strip_prefix("pub use ")) {
        assert!(!item.contains('*'), "`{item}` would add a name with each new one");
        let (_, last) = item.rsplit_once("::").expect("a path");
        names
            .extend(last.trim_matches(['{', '}', '\n', ' ']).split(',').map(str::trim).filter(|name| !name.is_empty()));
    }
    assert!(names.contains(&"LayerNorm") && names.len() <= NAMES_MAX, "{} names: {names:?}", names.len());
}

#[test]
fn the_documentation_shows_few_modules() {
    let lib = lib();
    let lines: Vec<&str> = lib.lines().collect();
    let shown = (1..lines.len()).filter(|&at| !lines[at - 1].starts_with("#[doc(hidden)]"));
    // A crate that is re-exported is shown as a module.
    let modules: Vec<&str> = shown
        .map(|at| lines[at])
        .filter(|line| line.starts_with("pub mod ") || line.starts_with("pub use zero_") && line.contains(" as "))
        .collect();
    assert!(modules.len() > 4 && modules.len() <= MODULES_MAX, "{} modules: {modules:?}", modules.len());
}
