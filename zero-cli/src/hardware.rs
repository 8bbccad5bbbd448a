//! Hardware: descriptions of machines by name or path. The files of `hardware/` are embedded, so that their names work
//! in every directory. `zero-cli/hardware` is a link to that folder, so that the package of the command has the files. Never judges
//! a figure; `zero-study` does.

use std::path::Path;

use zero_plan::diagnostic::{Diagnostic, closest};
use zero_plan::spec::decode;
use zero_study::hardware::{Hardware, Network};

use crate::error::CommandError;

/// Hardware as the command line names it.
#[derive(clap::Args, Clone, Debug, PartialEq)]
pub struct OnHardware {
    /// The hardware: a file, or the name of known hardware, such as `a100-80`
    #[arg(long, value_name = "HARDWARE")]
    pub on: String,
    /// Another network between nodes: a file, or a name such as `ndr-8x400`
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
}

impl OnHardware {
    /// Reads the files.
    ///
    /// # Errors
    /// As [`find`].
    pub fn read(&self) -> Result<Hardware, CommandError> {
        let mut hardware = find(&self.on)?;
        if let Some(name) = &self.network {
            hardware.network = Some(network(name)?);
        }
        Ok(hardware)
    }
}

/// A value as JSON, on several lines.
pub fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("figures can be written")
}

/// The name and the text of an embedded file.
type Embedded = (&'static str, &'static str);

macro_rules! embedded {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../", $folder, "/", $name, ".ron")))),+]
    };
}

/// All files of `hardware/`, in the order of their names.
const NODES: &[Embedded] = embedded!("hardware": "a100-40", "a100-40-pcie", "a100-80", "a100-80-pcie", "a10g-2", "a10g-8",
    "b200", "cpu-2", "cpu-8", "gh200", "h100", "h100-1", "h200");

/// All files of `hardware/networks/`, in the order of their names.
const NETWORKS: &[Embedded] = embedded!("hardware/networks": "100gbe", "10gbe", "1gbe", "25gbe", "efa-4x100", "hdr-1x200", "hdr-4x200",
    "hdr-8x200", "ndr-1x400", "ndr-8x400", "roce-2x100", "roce-4x100");

/// The hardware with this name, or of the file at this path.
///
/// # Errors
/// Z0160 if there is neither; Z0175 and Z0176 for mistakes in a file.
pub fn find(name_or_path: &str) -> Result<Hardware, CommandError> {
    read("hardware", NODES, name_or_path, Hardware::parse)
}

/// The network with this name, or of the file at this path.
///
/// # Errors
/// As [`find`].
pub fn network(name_or_path: &str) -> Result<Network, CommandError> {
    read("network", NETWORKS, name_or_path, Network::parse)
}

fn read<T>(
    kind: &'static str,
    embedded: &[Embedded],
    asked: &str,
    parse: fn(&str) -> Result<T, Vec<Diagnostic>>,
) -> Result<T, CommandError> {
    let known = embedded.iter().find(|(name, _)| *name == asked);
    let rendered = |text: &str, problems: Vec<Diagnostic>| CommandError::mistakes(&problems, Path::new(asked), text);
    if let Some((_, text)) = known {
        return parse(text).map_err(|problems| rendered(text, problems));
    }
    let bytes = std::fs::read(Path::new(asked)).map_err(|source| {
        let names: Vec<_> = embedded.iter().map(|(name, _)| *name).collect();
        let nearest = closest(asked, names.iter().copied()).map(str::to_owned);
        CommandError::UnknownHardware { kind, asked: asked.to_owned(), source, nearest, names: names.join(", ") }
    })?;
    let text = decode(&bytes).map_err(|problem| rendered("", vec![*problem]))?;
    parse(text).map_err(|problems| rendered(text, problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the RON files in a folder of the repository, in order.
    fn files(folder: &str) -> Vec<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".ron").map(str::to_owned)).collect();
        names.sort();
        names
    }

    fn names(embedded: &[Embedded]) -> Vec<String> {
        embedded.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    #[test]
    fn what_is_embedded_is_what_lies_in_the_folders() {
        assert_eq!(names(NODES), files("hardware"));
        assert_eq!(names(NETWORKS), files("hardware/networks"));
    }

    #[test]
    fn every_file_is_understood() {
        for (name, _) in NODES {
            let hardware = find(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(hardware.node.devices == 1 || hardware.node.link.is_some() || name.starts_with("cpu"), "{name}");
            assert!(hardware.measured.is_empty(), "{name}: measured times are of one machine");
        }
        for (name, _) in NETWORKS {
            network(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// Whether a line has a digit outside of names and comments.
    fn has_figure(line: &str) -> bool {
        let value = line.split("//").next().unwrap_or("");
        !value.contains("name:") && value.bytes().any(|byte| byte.is_ascii_digit())
    }

    #[test]
    fn every_figure_has_a_source_beside_it() {
        let mut figures = 0;
        for (name, text) in NODES.iter().chain(NETWORKS) {
            for line in text.lines().filter(|line| has_figure(line)) {
                let source = line.split_once(" // ").map_or("", |(_, source)| source);
                assert!(source.len() >= 5 && !source.contains("assumed"), "{name}: no source beside `{line}`");
                figures += 1;
            }
        }
        assert!(figures > 100, "{figures}: lines are no longer found");
        assert!(!has_figure("    name: \"8 x A100\","));
        assert!(has_figure("    bandwidth: 5, // x"));
    }

    #[test]
    fn z0160_unknown_hardware() {
        let error = find("a100-08").unwrap_err().to_string();
        assert!(error.starts_with("error[Z0160]: no hardware `a100-08`"), "{error}");
        assert!(error.contains("did you mean `a100-80`?") && error.contains("gh200"), "{error}");
        let error = network("nowhere/at/all.ron").unwrap_err().to_string();
        assert!(error.contains("no network `nowhere/at/all.ron`") && !error.contains("did you mean"), "{error}");
        assert!(error.contains("ndr-8x400"), "{error}");
    }

    #[test]
    fn a_file_of_ones_own_is_read_and_its_mistakes_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.ron");
        let (_, text) = NODES.iter().find(|(name, _)| *name == "h100").unwrap();
        std::fs::write(&path, text).unwrap();
        assert_eq!(find(path.to_str().unwrap()).unwrap(), find("h100").unwrap());
        std::fs::write(&path, text.replace("3.35e12", "3.35")).unwrap();
        let error = find(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("error[Z0176]") && error.contains("mine.ron:12"), "{error}");
    }
}
