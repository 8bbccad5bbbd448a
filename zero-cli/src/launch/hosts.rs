//! Hosts: their names, and the copy of the binary and its texts on each host.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zero_files::data::texts_beside;

use super::Reach;
use crate::error::CommandError;

/// The hosts that were named.
pub fn of(reach: &Reach) -> Result<Vec<String>, CommandError> {
    let Some(file) = &reach.hostfile else { return Ok(reach.hosts.clone()) };
    let text =
        std::fs::read_to_string(file).map_err(|source| CommandError::NoHostfile { path: file.clone(), source })?;
    Ok(listed(&text))
}

/// The hosts of a file: the first word of each line except comments, without the slots that MPICH writes after a colon.
fn listed(text: &str) -> Vec<String> {
    // Some editors put a mark in front of a text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.map(|name| name.split(':').next().unwrap_or(name).to_owned()).collect()
}

/// Copies the program at `path` to each host that lacks it, under the name of `named`, with the texts that lie beside
/// `named`, and returns its path there. The path contains a hash of all these files, so that no run finds the program or
/// the text of another run.
pub fn copy(path: &Path, named: &Path, hosts: &[String], reach: &Reach) -> Result<PathBuf, CommandError> {
    let unread = |source| CommandError::Start { binary: named.to_owned(), source };
    // The program is copied last. If it exists, so do the other files.
    let texts = texts_beside(named).into_iter().map(|text| (text.clone(), text));
    let files: Vec<(PathBuf, PathBuf)> = texts.chain([(path.to_owned(), named.to_owned())]).collect();
    let contents: Vec<Vec<u8>> =
        files.iter().map(|(from, _)| std::fs::read(from).map_err(unread)).collect::<Result<_, _>>()?;
    let mut hasher = blake3::Hasher::new();
    contents.iter().for_each(|bytes| _ = hasher.update(bytes));
    let folder = reach.folder.join(&hasher.finalize().to_hex()[..16]);
    let there = |file: &Path| folder.join(file.file_name().unwrap_or_default());
    // A copy gets its name only when it is complete, so that an incomplete copy is not used.
    let steps = files.iter().zip(&contents).map(|((_, name), bytes)| {
        let whole = quoted(&there(name));
        format!(" && head -c {} > {whole}.$$ && chmod +x {whole}.$$ && mv {whole}.$$ {whole}", bytes.len())
    });
    let line = format!(
        "test -x {} || {{ mkdir -p {}{}; }}",
        quoted(&there(named)),
        quoted(&folder),
        steps.collect::<String>()
    );
    for host in hosts {
        send(&contents, host, &line, &reach.ssh)
            .map_err(|why| CommandError::NotCopied { host: host.clone(), why: format!("{}{why}", reach.ssh) })?;
    }
    Ok(there(named))
}

/// Runs a line on a host. The line reads these contents, unless the host already has them.
fn send(contents: &[Vec<u8>], host: &str, line: &str, ssh: &str) -> Result<(), String> {
    let mut child = Command::new(ssh).args([host, line]).stdin(Stdio::piped()).spawn().map_err(|e| format!(": {e}"))?;
    if let Some(mut input) = child.stdin.take() {
        // A host that has the contents, or that is not reached, reads nothing. The exit status tells the two apart.
        let _ = contents.iter().try_for_each(|bytes| input.write_all(bytes));
    }
    let ended = child.wait().map_err(|error| format!(": {error}"))?;
    if ended.success() { Ok(()) } else { Err(format!(" ended with {ended}")) }
}

/// A path, quoted as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use zero_files::data::{put_text_beside, text_beside};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        reach: Reach,
    }

    #[test]
    fn files_of_open_mpi_and_of_mpich_name_hosts() {
        assert_eq!(
            listed("\u{feff}# ours\nnode1 slots=4\n\n  node2:4 # the new one\nnode3\n"),
            ["node1", "node2", "node3"]
        );
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
            copy(&at("built"), &at("zero3"), &reach.hosts, &reach)
        };
        // In place of ssh, `sh` takes the host for a script. This script runs the command, as ssh does on a host that
        // can be reached.
        let here = at("zh0");
        std::fs::write(&here, "eval \"$1\"").unwrap();
        let here = here.to_str().unwrap();
        let folders: Vec<PathBuf> = ["one text", "another text", "another text"]
            .map(|text| {
                put_text_beside(&at("zero3"), text).unwrap();
                let there = to(&[here], "sh").unwrap();
                assert_eq!(std::fs::read(&there).unwrap(), b"a program");
                assert_eq!(std::fs::read(text_beside(&there)).unwrap(), text.as_bytes());
                there
            })
            .into();
        assert!(folders[0] != folders[1] && folders[1] == folders[2], "{folders:?}");
        assert_eq!(texts_beside(&folders[1]).len(), 2, "a run that resumes may need the older text");
        for (hosts, ssh) in [(vec![here, "nowhere"], "sh"), (vec!["nowhere"], "/nowhere/ssh")] {
            let error = to(&hosts, ssh).unwrap_err().to_string();
            assert!(error.starts_with("error[Z0459]: cannot copy the binary to nowhere: "), "{error}");
        }
    }
}
