//! Origin: whether the command was built in a clone of the repository or from a package, such as a registry has.

/// Whether it was built in a clone. Only there does its manifest inherit from a workspace: cargo writes out what the manifest of a
/// package inherits.
pub const IN_CLONE: bool = contains(include_str!("../Cargo.toml"), "workspace = true");

const fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let mut start = 0;
    while start + part.len() <= text.len() {
        let mut length = 0;
        while length < part.len() && text[start + length] == part[length] {
            length += 1;
        }
        if length == part.len() {
            return true;
        }
        start += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::contains;

    #[test]
    fn a_part_is_found_anywhere() {
        for (text, found) in
            [("ab", true), ("xab", true), ("aab", true), ("abx", true), ("a", false), ("ba", false), ("", false)]
        {
            assert_eq!(contains(text, "ab"), found, "{text}");
        }
    }
}
