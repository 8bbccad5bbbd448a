//! Sources: facts about the text of the workspace. Each code in it is in the catalogue, and each entry of the catalogue
//! is used; public types have one path; modules form no circles. `budget` has the lines of each crate, `storeys` the dependencies
//! of each, `packages` what a registry asks of them, `specs` the plans of all specs, and `surface` what a user sees. Never judges the
//! explanation of a code.

mod budget;
mod packages;
mod specs;
mod storeys;
mod surface;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use zero_plan::diagnostic::CODES;

/// Bytes of a code: a `Z`, a zero and three more digits.
const CODE_BYTES: usize = 5;

/// Directories of cargo and of version control, whose files are not sources.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// The codes in a text, in order. A longer word that begins like a code is not one.
fn codes(text: &str) -> Vec<&str> {
    let is_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let windows = bytes.windows(CODE_BYTES).enumerate();
    windows
        .filter(|(_, window)| window.starts_with(b"Z0") && window[1..].iter().all(u8::is_ascii_digit))
        .filter(|(at, _)| !is_word(bytes.get(at + CODE_BYTES)) && !is_word(bytes[..*at].last()))
        .map(|(at, _)| &text[at..at + CODE_BYTES])
        .collect()
}

/// All Rust sources and expected errors below `directory`.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if path.is_dir() && !SKIPPED.contains(&name) {
            sources(&path, found);
        } else if [Some("rs"), Some("stderr")].contains(&path.extension().and_then(OsStr::to_str)) {
            found.push(path);
        }
    }
}

/// Each code in use, and a file other than the catalogue that uses it.
fn used() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let catalogue = root.join("zero-plan/src/diagnostic");
    let is_catalogue = |path: &Path| path == catalogue.join("codes.rs") || path.starts_with(catalogue.join("codes"));
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.iter().any(|path| is_catalogue(path)), "the catalogue has moved");
    let mut used = BTreeMap::new();
    for path in files.into_iter().filter(|path| !is_catalogue(path)) {
        let text = fs::read_to_string(&path).expect("a text");
        used.extend(codes(&text).into_iter().map(|code| (code.to_owned(), path.clone())));
    }
    used
}

#[test]
fn every_code_in_use_is_in_the_catalogue() {
    for (code, path) in used() {
        assert!(CODES.iter().any(|entry| entry.code == code), "{code} in {} is not explained", path.display());
    }
}

#[test]
fn every_code_of_the_catalogue_is_in_use() {
    let used = used();
    let dead: Vec<_> = CODES.iter().map(|entry| entry.code).filter(|code| !used.contains_key(*code)).collect();
    assert_eq!(dead, [""; 0], "nothing says these");
}

/// The libraries, the command, and the benchmark.
const PACKAGES: [&str; 12] = [
    "zero-plan",
    "zero-plan/study",
    "zero-macros",
    "zero-runtime",
    "zero-runtime/core",
    "zero-runtime/cpu",
    "zero-runtime/cuda",
    "zero-runtime/engine",
    "zero-runtime/files",
    "zero-runtime/ranks",
    "zero-cli",
    "tests/bench",
];

/// The sources of the libraries and of the command, without those of their tests.
fn library_sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for package in PACKAGES {
        sources(&root.join(package).join("src"), &mut files);
    }
    let is_test = |path: &PathBuf| {
        let inside = path.iter().skip_while(|part| *part != "src");
        inside.into_iter().any(|part| part.to_string_lossy().contains("tests"))
    };
    let inside = |path: &PathBuf| path.strip_prefix(&root).expect("a file of the workspace").to_owned();
    files.retain(|path| !is_test(&inside(path)));
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).expect("a text"))).collect()
}

/// A type in a public module has no other public path. Code that the macros generate uses one hidden module.
#[test]
fn public_types_have_one_path() {
    let mut modules = 0;
    for (path, text) in library_sources().into_iter().filter(|(path, _)| !path.ends_with("build/tables.rs")) {
        let public: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
        modules += public.len();
        // A list may span several lines.
        let uses = text.split("\npub use ").skip(1).filter_map(|rest| rest.split_once(';')?.0.split_once("::"));
        for (from, names) in uses.filter(|(_, names)| names.contains(char::is_uppercase)) {
            let is_again = from == "crate" || public.contains(&from) && !names.contains("::");
            assert!(!is_again, "{}: `pub use {from}::{names}` is a second path", path.display());
        }
    }
    assert!(modules > 20, "modules are written in another way");
}

/// The other modules that each module at the root of a crate names, outside of tests: by their own names, or by a name that the
/// root imports from them.
fn named_modules(package: &str) -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src");
    let mut named = BTreeMap::<String, BTreeSet<String>>::new();
    let mut owners = BTreeMap::new();
    for (path, text) in library_sources() {
        let Ok(inside) = path.strip_prefix(&root) else { continue };
        let module = Path::new(inside.iter().next().expect("a file")).file_stem().expect("a name");
        let module = module.to_string_lossy().into_owned();
        let code = without_tests(&text);
        if inside.as_os_str() == "lib.rs" {
            owners = taken_by_root(&code);
        }
        // As many `super` as this file needs to reach the root of the crate.
        let depth = inside.iter().count() - usize::from(inside.ends_with("mod.rs"));
        let code = code.replace(&"super::".repeat(depth.max(1)), "crate::");
        named.entry(module).or_default().extend(code.split("crate::").skip(1).flat_map(first_words));
    }
    let owner = |name: String| owners.get(&name).cloned().unwrap_or(name);
    named.into_iter().map(|(module, names)| (module, names.into_iter().map(owner).collect())).collect()
}

/// Code without its comments and its module of tests, but with the code after that module.
fn without_tests(text: &str) -> String {
    let code: String =
        text.lines().filter_map(|line| line.split("//").next()).map(|line| format!("{line}\n")).collect();
    match code.split_once("\nmod tests {\n") {
        Some((before, tests)) => {
            let after = tests.split_once("\n}\n").expect("a module that ends").1;
            format!("{before}\n{after}")
        }
        None => code,
    }
}

/// The names that the root of a crate imports from its modules, each with its module.
fn taken_by_root(code: &str) -> BTreeMap<String, String> {
    let uses = code.split("use ").skip(1).filter_map(|rest| rest.split_once(';')?.0.split_once("::"));
    uses.flat_map(|(module, names)| words(names).map(|word| (word, module.to_owned()))).collect()
}

/// The next name of a path, or all names of a list in braces.
fn first_words(path: &str) -> Vec<String> {
    let (list, count) = match path.strip_prefix('{') {
        Some(list) => (list.split('}').next().unwrap_or_default(), usize::MAX),
        None => (path, 1),
    };
    words(list).take(count).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    parts.filter(|word| !word.is_empty()).map(str::to_owned)
}

/// The modules of each package can be read in an order in which each follows the modules that it names.
#[test]
fn modules_form_no_circles() {
    let mut circles = Vec::new();
    for (package, modules, known) in [
        ("zero-plan", 30, ("place", "plan")),
        ("zero-plan/study", 8, ("picture", "simulate")),
        ("zero-macros", 10, ("expand", "ast")),
        ("zero-runtime", 8, ("run", "profile")),
        ("zero-runtime/core", 12, ("layer", "device")),
        ("zero-runtime/cpu", 25, ("gemm", "product")),
        ("zero-runtime/cuda", 25, ("device", "activation")),
        ("zero-runtime/engine", 10, ("checkpoint", "parameters")),
        ("zero-runtime/files", 4, ("checkpoint", "weights")),
        ("zero-runtime/ranks", 4, ("launch", "terminal")),
        ("zero-cli", 25, ("build", "sizes")),
        ("tests/bench", 12, ("checkpoints", "figures")),
    ] {
        let mut left = named_modules(package);
        let is_read = left.len() > modules && left[known.0].contains(known.1);
        assert!(is_read, "modules of {package} are written in another way");
        loop {
            let modules: BTreeSet<String> = left.keys().cloned().collect();
            let before = left.len();
            left.retain(|module, named| named.iter().any(|name| name != module && modules.contains(name)));
            if left.len() == before {
                break;
            }
        }
        // The remaining modules, each with the remaining modules that it names.
        for (module, named) in &left {
            let named: Vec<_> = named.iter().filter(|name| *name != module && left.contains_key(*name)).collect();
            circles.push(format!("{package}: {module} names {named:?}"));
        }
    }
    assert_eq!(circles, [""; 0], "these name one another in a circle, or name such");
}

#[test]
fn codes_are_whole_words() {
    let code = |digits: &str| format!("Z{digits}");
    let text = format!("[{}] {}, {}x x{} {}", code("0107"), code("0105"), code("0106"), code("0108"), code("01"));
    assert_eq!(codes(&text), [code("0107"), code("0105")]);
}
