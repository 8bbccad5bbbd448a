//! Progress: the step of the newest checkpoint in a folder, by the names of what lies there. Never looks into one.

use std::path::Path;

/// What the name of a checkpoint begins with; its step follows.
const PREFIX: &str = "step-";

/// The step of the newest checkpoint. None if there is none, or no folder.
pub(super) fn newest_step(folder: &Path) -> Option<u64> {
    let names = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix(PREFIX)?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_step_is_the_highest_number() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(newest_step(folder.path()), None);
        for name in ["lock", ".partial-step-000000900", ".old-step-000000800", "step-", "step-x"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(newest_step(folder.path()), None);
        for (name, newest) in [("step-000000000", 0), ("step-000000020", 20), ("step-000000003", 20)] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            assert_eq!(newest_step(folder.path()), Some(newest));
        }
        std::fs::create_dir(folder.path().join("step-1000000000")).unwrap();
        assert_eq!(newest_step(folder.path()), Some(1_000_000_000));
        assert_eq!(newest_step(&folder.path().join("nowhere")), None);
    }
}
