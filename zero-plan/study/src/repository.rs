//! Repository: files of the repository that tests read. They are not in the package of this crate, so they are read when a test
//! runs: what is in the package compiles.

/// The text of the file at this path in the repository.
pub(crate) fn text(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
