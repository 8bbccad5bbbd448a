//! Name: the names that a package may have, so that cargo, rustc and a spec all accept them. Never reads a file.

/// Rust's keywords, of every edition.
const KEYWORDS: [&str; 53] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "_",
];

/// Crates of Rust's own, folders that cargo creates, and crates that the new crate is built from.
const TAKEN: [&str; 12] = [
    "test",
    "core",
    "std",
    "alloc",
    "proc_macro",
    "deps",
    "examples",
    "build",
    "incremental",
    "zero_plan",
    "zero_macros",
    "zero_runtime",
];

/// The length of the longest name; a name becomes part of file names.
const LEN_MAX: usize = 64;

/// Why a package cannot have a name.
pub fn check(name: &str) -> Result<(), String> {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
    let in_rust = name.replace('-', "_");
    let why = match name.chars().next() {
        None => "it is empty",
        Some(first) if !first.is_ascii_alphabetic() => "it does not begin with a letter",
        _ if name.len() > LEN_MAX => "it is longer than 64 characters",
        _ if !name.chars().all(is_letter) => "a name has only letters, digits, `-` and `_`",
        _ if KEYWORDS.contains(&in_rust.as_str()) => "it is a word of Rust",
        _ if TAKEN.contains(&in_rust.as_str()) => "cargo, Rust or zero have something of that name",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z0158_names_that_no_package_can_have() {
        for name in ["mine", "a", "my-model", "gpt_2", "Mine7b"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for (name, why) in [
            ("", "it is empty"),
            ("7b", "it does not begin with a letter"),
            ("_x", "it does not begin with a letter"),
            ("../x", "it does not begin with a letter"),
            ("a/b", "a name has only letters, digits, `-` and `_`"),
            ("modèle", "a name has only letters, digits, `-` and `_`"),
            ("a b", "a name has only letters, digits, `-` and `_`"),
            ("match", "it is a word of Rust"),
            ("std", "cargo, Rust or zero have something of that name"),
            ("zero-runtime", "cargo, Rust or zero have something of that name"),
        ] {
            assert_eq!(check(name), Err(why.to_owned()), "{name}");
        }
        assert!(check(&"x".repeat(65)).is_err());
    }
}
