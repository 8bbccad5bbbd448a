//! Hosts: their names, and the copy of the binary on each of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Reach;
use crate::error::CommandError;

/// The hosts that were named.
pub fn of(reach: &Reach) -> Result<Vec<String>, CommandError> {
    let Some(file) = &reach.hostfile else { return Ok(reach.hosts.clone()) };
    let text =
        std::fs::read_to_string(file).map_err(|source| CommandError::NoHostfile { path: file.clone(), source })?;
    Ok(listed(&text))
}

/// The hosts of a file: the first word of each line that is no comment, without the slots that MPICH writes after a colon.
fn listed(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.map(|name| name.split(':').next().unwrap_or(name).to_owned()).collect()
}

/// Copies the program at `path` to each host that lacks it, under the name of `named`, and gives its path there. The
/// path contains a hash of the program, so that no run finds the program of another.
pub fn copy(path: &Path, named: &Path, hosts: &[String], reach: &Reach) -> Result<PathBuf, CommandError> {
    let unread = |source| CommandError::Start { binary: named.to_owned(), source };
    let (ssh, folder) = (&reach.ssh, &reach.folder);
    let contents = std::fs::read(path).map_err(unread)?;
    let name = named.file_name().unwrap_or_default();
    let there = folder.join(&blake3::hash(&contents).to_hex()[..16]).join(name);
    let (whole, parent) = (quoted(&there), quoted(there.parent().unwrap_or(folder)));
    // A copy gets its name only when it is whole, so that one that was cut short is not started.
    let line = format!(
        "test -x {whole} || {{ mkdir -p {parent} && cat > {whole}.$$ && chmod +x {whole}.$$ && mv {whole}.$$ {whole}; }}"
    );
    for host in hosts {
        let source = File::open(path).map_err(unread)?;
        let status = Command::new(ssh).args([host, &line]).stdin(Stdio::from(source)).status();
        let ended =
            status.map_err(|source| CommandError::NotCopied { host: host.clone(), why: format!("{ssh}: {source}") })?;
        if !ended.success() {
            return Err(CommandError::NotCopied { host: host.clone(), why: format!("{ssh} ended with {ended}") });
        }
    }
    Ok(there)
}

/// A path, quoted as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        reach: Reach,
    }

    #[test]
    fn files_of_open_mpi_and_of_mpich_name_hosts() {
        assert_eq!(listed("# ours\nnode1 slots=4\n\n  node2:4 # the new one\nnode3\n"), ["node1", "node2", "node3"]);
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quoted(Path::new("/tmp/it's here")), r"'/tmp/it'\''s here'");
    }

    #[test]
    fn z0459_a_host_that_is_not_reached_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("built"), "a program").unwrap();
        let to = |hosts: &[&str], ssh: &str| {
            let folder = at("there");
            let line = ["reach", "--hosts", &hosts.join(","), "--ssh", ssh, "--folder", folder.to_str().unwrap()];
            let Line { reach } = Line::parse_from(line);
            copy(&at("built"), Path::new("zero3"), &reach.hosts, &reach)
        };
        // In place of ssh, `sh` takes the host for a script. This one runs the command, as ssh does on a host that can
        // be reached.
        let here = at("zh0");
        std::fs::write(&here, "eval \"$1\"").unwrap();
        let here = here.to_str().unwrap();
        assert_eq!(std::fs::read(to(&[here], "sh").unwrap()).unwrap(), b"a program");
        for (hosts, ssh) in [(vec![here, "nowhere"], "sh"), (vec!["nowhere"], "/nowhere/ssh")] {
            let error = to(&hosts, ssh).unwrap_err().to_string();
            assert!(error.starts_with("error[Z0459]: cannot copy the binary to nowhere: "), "{error}");
        }
    }
}
