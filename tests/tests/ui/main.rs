//! Ui: rustc's error for a model with one mistake, word for word, and only once; and, in `expansions`, the results for structs
//! without a mistake. Never trains.
//!
//! A case is a file of `ui/` with one mistake, named after its code if it has one. An error that only a build finds is
//! a doctest instead, like that of `zero_runtime::main`.
//!
//! `TRYBUILD=overwrite cargo test -p zero-tests --test ui` writes rustc's current output; read it before you keep it.

mod expanded;
mod expansions;
mod zero_spec;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use zero_plan::diagnostic::CODES;

/// Files of `ui/` with that extension, in order.
fn cases(extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("ui").unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = entries.filter(|path| path.extension() == Some(OsStr::new(extension))).collect();
    cases.sort();
    cases
}

/// The name of a case, such as `z0107_unknown_key`.
fn name(case: &Path) -> &str {
    case.file_stem().unwrap().to_str().unwrap()
}

/// Cases are compiled in a package of trybuild, which is where `spec = "specs/zero3.ron"` is searched.
fn place_specs() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let specs = target.join("tests/trybuild").join(env!("CARGO_PKG_NAME")).join("specs");
    fs::create_dir_all(&specs).unwrap();
    for spec in fs::read_dir("ui/specs").unwrap() {
        let spec = spec.unwrap();
        fs::copy(spec.path(), specs.join(spec.file_name())).unwrap();
    }
}

#[test]
fn rustc_says_what_it_should() {
    place_specs();
    let cases = trybuild::TestCases::new();
    // No case may pass: trybuild would then build all dependencies instead of checking them.
    cases.compile_fail("ui/*.rs");
}

#[test]
fn one_mistake_is_one_error() {
    let (sources, outputs) = (cases("rs"), cases("stderr"));
    let names = |cases: &[PathBuf]| cases.iter().map(|case| name(case).to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&sources), names(&outputs));
    for case in &outputs {
        let said = fs::read_to_string(case).unwrap();
        let errors = said.lines().filter(|line| line.starts_with("error"));
        assert_eq!(errors.count(), 1, "{}", case.display());
        assert!(!said.lines().any(|line| line.starts_with("warning")), "{}", case.display());
    }
}

#[test]
fn a_case_is_named_for_the_code_that_is_shown() {
    for case in cases("stderr").iter().filter(|case| name(case).starts_with("z0")) {
        let code = name(case)[..5].to_uppercase();
        assert!(fs::read_to_string(case).unwrap().contains(&format!("[{code}]")), "{}", case.display());
    }
}

/// The codes of specs, attributes and structs. The others are reported by the command or at run time, or by a build whose sizes are
/// out of reach here.
#[test]
fn every_code_of_an_expansion_has_a_case() {
    let cases = cases("rs");
    // The command finds a package without a model.
    let of_structs = |code: &str| ("Z0140"..="Z0153").contains(&code) && code != "Z0148";
    for code in CODES.iter().filter(|code| code.code < "Z0120" || of_structs(code.code)) {
        let prefix = code.code.to_lowercase();
        assert!(cases.iter().any(|case| name(case).starts_with(&prefix)), "{}", code.code);
    }
}
