//! Hosts: their names, and the copy of the binary and its texts on each host.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zero_files::data::texts_beside;

use super::Reach;
use crate::error::CommandError;

/// The hosts that were named, each once. They become words of command lines, so what is no name is refused.
pub fn of(reach: &Reach) -> Result<Vec<String>, CommandError> {
    let Some(file) = &reach.hostfile else {
        return checked(reach.hosts.iter().map(|name| ("--hosts".to_owned(), name.trim())));
    };
    let text =
        std::fs::read_to_string(file).map_err(|source| CommandError::NoHostfile { path: file.clone(), source })?;
    checked(listed(&text).map(|(line, name)| (format!("{}:{line}", file.display()), name)))
}

/// The hosts of a file, with the numbers of their lines: the first word of each line except comments, without the slots that MPICH
/// writes after a colon.
fn listed(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    lines.filter_map(|(line, number)| {
        let name = line.split('#').next()?.split_whitespace().next()?;
        let slots = |slots: &str| slots.bytes().all(|byte| byte.is_ascii_digit());
        // The colons of an address with brackets or with several of them are no slots.
        let name = match name.rsplit_once(':') {
            Some((host, after)) if slots(after) && (!host.contains(':') || host.ends_with(']')) => host,
            _ => name,
        };
        Some((number, name))
    })
}

/// The hosts, unless one is no name of a host or occurs twice. Each comes with its place.
fn checked<'a>(hosts: impl Iterator<Item = (String, &'a str)>) -> Result<Vec<String>, CommandError> {
    let mut names: Vec<String> = Vec::new();
    for (place, name) in hosts {
        if let Some(why) = fault(name).or_else(|| names.iter().any(|known| known == name).then_some(TWICE)) {
            return Err(CommandError::NoHost { place, name: name.to_owned(), why });
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

const TWICE: &str = "it occurs twice";

/// Why a word is not the name of a host.
fn fault(name: &str) -> Option<&'static str> {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || "-._@".contains(c);
    if name.is_empty() {
        Some("there is nothing between two commas")
    } else if name.starts_with('-') {
        Some("ssh and mpirun would take it for an option")
    } else if name.trim_matches(['[', ']']).parse::<std::net::Ipv6Addr>().is_ok() {
        Some(
            "mpirun and mpiexec read what follows a colon as a number of ranks, so they take no address of IPv6: give the host a name",
        )
    } else if !name.chars().all(is_usual) {
        Some("a name has letters, digits, `-`, `.` and `_`, and may begin with `user@`")
    } else {
        None
    }
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
        let text = "\u{feff}# ours\nnode1 slots=4\n\n  node2:4 # the new one\nnode3\nfd00::1 slots=4\n[fd00::2]:4\n";
        let expected = [(2, "node1"), (4, "node2"), (5, "node3"), (6, "fd00::1"), (7, "[fd00::2]")];
        assert_eq!(listed(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn z0459_a_word_that_is_no_host_is_refused_at_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        let read =
            |line: &[&str]| of(&Line::parse_from([&["reach"], line].concat()).reach).map_err(|error| error.to_string());
        assert_eq!(
            read(&["--hosts", "a, b ,ann@node-1.site_2,10.0.0.1"]).unwrap(),
            ["a", "b", "ann@node-1.site_2", "10.0.0.1"]
        );
        for (name, why) in [
            ("-oProxyCommand=touch${IFS}x", "ssh and mpirun would take it for an option"),
            ("b;reboot", "a name has letters"),
            ("b'c", "a name has letters"),
            ("$(reboot)", "a name has letters"),
            ("fd00::1", "no address of IPv6"),
            ("[fd00::1]", "no address of IPv6"),
            ("a", "it occurs twice"),
        ] {
            let error = read(&[&format!("--hosts=a,{name}")]).unwrap_err();
            assert!(error.starts_with(&format!("error[Z0459]: --hosts names the host `{name}`")), "{error}");
            assert!(error.contains(why), "{error}");
            std::fs::write(&file, format!("a\n\n{name}\n")).unwrap();
            let error = read(&["--hostfile", file.to_str().unwrap()]).unwrap_err();
            assert!(
                error.starts_with(&format!("error[Z0459]: {}:3 names the host `{name}`", file.display())),
                "{error}"
            );
        }
        for empty in ["a,,b", "a,", "a, ,b"] {
            assert!(read(&["--hosts", empty]).unwrap_err().contains("nothing between two commas"), "{empty}");
        }
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
