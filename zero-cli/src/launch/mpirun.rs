//! Mpirun: the line that starts ranks, in the dialect of the given launcher.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use zero_ranks::launch::RESTART;

use super::Reach;
use crate::error::CommandError;

/// The kind of a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Open MPI 4 and earlier, which have their own launcher.
    Orte,
    /// Open MPI 5 and later, which use PRRTE's launcher.
    Prrte,
    /// PRRTE's own launcher, which passes ranks less information unless an option says that they use Open MPI.
    Prterun,
    /// MPICH, and MPIs derived from it.
    Hydra,
}

/// The kind of launcher that prints this when asked for its version.
fn dialect(version: &str) -> Option<Dialect> {
    if version.contains("HYDRA") || version.contains("MPICH") || version.contains("Intel(R) MPI") {
        return Some(Dialect::Hydra);
    }
    if version.contains("(PRRTE)") {
        return Some(Dialect::Prterun);
    }
    // The launcher of Open MPI 4, started under a name other than mpirun, prints the name of its runtime instead.
    let (_, after) = version.split_once("(Open MPI)").or_else(|| version.split_once("(OpenRTE)"))?;
    let major: u32 = after.trim_start().split('.').next()?.parse().ok()?;
    Some(if major < 5 { Dialect::Orte } else { Dialect::Prrte })
}

/// A command line that starts `each` ranks of a program on each host.
pub struct LaunchLine<'a> {
    reach: &'a Reach,
    dialect: Dialect,
    hosts: &'a [String],
    each: usize,
    /// Whether NCCL sends the bytes between the devices of ranks.
    by_nccl: bool,
    /// The variables that are set here and are meant for ranks.
    set: Vec<(String, String)>,
}

impl<'a> LaunchLine<'a> {
    /// Asks the launcher for its version, to determine its dialect.
    pub fn of(reach: &'a Reach, hosts: &'a [String], each: usize, by_nccl: bool) -> Result<Self, CommandError> {
        let set = meant_for_ranks(std::env::vars_os())?;
        Ok(Self { reach, dialect: dialect_of(&reach.launcher)?, hosts, each, by_nccl, set })
    }

    /// The line for a program. With `restarts`, it passes to the ranks how often they were restarted.
    pub fn command(&self, program: &Path, restarts: Option<u64>) -> Command {
        let mut command = Command::new(&self.reach.launcher);
        let card = self.reach.interface.as_deref().filter(|_| self.by_nccl);
        let variables = variables(&self.set, restarts, card);
        command.args(self.words(&variables, rustix::process::geteuid().is_root())).arg(program);
        command
    }

    /// The words between the launcher and the program.
    fn words(&self, variables: &[Variable], is_root: bool) -> Vec<String> {
        let Self { reach, dialect, hosts, each, .. } = self;
        let slots: Vec<String> = hosts.iter().map(|host| format!("{host}:{each}")).collect();
        let (slots, ranks) = (slots.join(","), (hosts.len() * each).to_string());
        let mut words: Vec<String> = Vec::new();
        let mut add = |given: &[&str]| words.extend(given.iter().map(|&word| word.to_owned()));
        let ssh = (reach.ssh != "ssh").then_some(reach.ssh.as_str());
        match *dialect {
            Dialect::Orte | Dialect::Prrte | Dialect::Prterun => {
                if *dialect == Dialect::Prterun {
                    add(&["--personality", "ompi"]);
                }
                // Ranks themselves divide the cores of their host among their threads.
                add(&["--host", &slots, "--map-by", "slot", "--bind-to", "none", "-n", &ranks]);
                let is_orte = *dialect == Dialect::Orte;
                if is_root {
                    add(&["--allow-run-as-root"]);
                }
                if let Some(ssh) = ssh {
                    add(if is_orte { &["--mca", "plm_rsh_agent"] } else { &["--prtemca", "plm_ssh_agent"] });
                    add(&[ssh]);
                }
                if let Some(card) = &reach.interface {
                    add(&["--mca", "btl_tcp_if_include", card]);
                    add(if is_orte { &["--mca", "oob_tcp_if_include"] } else { &["--prtemca", "prte_if_include"] });
                    add(&[card]);
                }
                for Variable { name, value, is_set } in variables {
                    // A value that a person has set may have characters that these launchers interpret.
                    add(&["-x", &if *is_set { name.clone() } else { format!("{name}={value}") }]);
                }
            }
            Dialect::Hydra => {
                add(&["-hosts", &slots, "-n", &ranks, "-bind-to", "none"]);
                if let Some(ssh) = ssh {
                    add(&["-launcher", "ssh", "-launcher-exec", ssh]);
                }
                if let Some(card) = &reach.interface {
                    add(&["-iface", card]);
                }
                for Variable { name, value, .. } in variables {
                    add(&["-genv", name, value]);
                }
            }
        }
        words
    }
}

fn dialect_of(launcher: &Path) -> Result<Dialect, CommandError> {
    let asked = Command::new(launcher).arg("--version").output();
    let asked = asked.map_err(|source| CommandError::NoLauncher { launcher: launcher.to_owned(), source })?;
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    dialect(&said).ok_or_else(|| CommandError::OtherLauncher { launcher: launcher.to_owned(), said })
}

/// A variable of ranks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Variable {
    name: String,
    value: String,
    /// Whether it is set in this process, so that its name is enough.
    is_set: bool,
}

/// The variable for the network card over which NCCL connects to other hosts, and over which it sends if it uses sockets.
const NCCL_CARD: &str = "NCCL_SOCKET_IFNAME";

/// Those of these variables that are of ranks or of NCCL.
fn meant_for_ranks(here: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<(String, String)>, CommandError> {
    let is_theirs = |name: &str| (name.starts_with("ZERO_") && name != RESTART) || name.starts_with("NCCL_");
    let named = here.filter_map(|(name, value)| Some((name.into_string().ok().filter(|name| is_theirs(name))?, value)));
    named
        .map(|(name, value)| match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(CommandError::NotUnicodeVariable { name }),
        })
        .collect()
}

/// The variables of ranks and of NCCL that are set in this process; how often all ranks were restarted; and the network
/// card, unless one is set.
fn variables(set: &[(String, String)], restarts: Option<u64>, card: Option<&str>) -> Vec<Variable> {
    let set = set.iter().cloned().map(|(name, value)| Variable { name, value, is_set: true });
    let mut variables: Vec<Variable> = set.collect();
    let new = |name: &str, value| Variable { name: name.to_owned(), value, is_set: false };
    variables.extend(restarts.map(|restarts| new(RESTART, restarts.to_string())));
    // Without the `=`, NCCL would use all cards whose names begin with this name.
    let card = card.filter(|_| variables.iter().all(|variable| variable.name != NCCL_CARD));
    variables.extend(card.map(|card| new(NCCL_CARD, format!("={card}"))));
    variables.sort();
    variables
}

/// A command as one would type it.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// A word as one would type it.
pub fn quoted(word: &str) -> String {
    let is_plain = word.chars().all(|it| it.is_ascii_alphanumeric() || "-_./:,=+@%".contains(it));
    if is_plain && !word.is_empty() { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        reach: Reach,
    }

    #[test]
    fn each_launcher_is_known_by_what_it_says() {
        for (said, expected) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", Some(Dialect::Orte)),
            ("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to", Some(Dialect::Orte)),
            ("mpirun (Open MPI) 5.0.11\n", Some(Dialect::Prrte)),
            ("prterun (PRRTE) 3.0.14\n\nReport bugs to", Some(Dialect::Prterun)),
            ("HYDRA build details:\n    Version: 4.0.2\n", Some(Dialect::Hydra)),
            ("srun 22.05", None),
        ] {
            assert_eq!(dialect(said), expected, "{said}");
        }
    }

    #[test]
    fn every_dialect_names_hosts_with_their_slots() {
        let given = ["launch", "--hosts", "a,b", "--ssh", "/my/ssh", "--interface", "eth0"];
        let reach = Options::parse_from(given).reach;
        let hosts = ["a".to_owned(), "b".to_owned()];
        let line = |dialect| {
            LaunchLine { reach: &reach, dialect, hosts: &hosts, each: 2, by_nccl: false, set: Vec::new() }
                .words(&[], true)
                .join(" ")
        };
        let orte = line(Dialect::Orte);
        assert!(orte.starts_with("--host a:2,b:2 --map-by slot --bind-to none -n 4 --allow-run-as-root"), "{orte}");
        assert!(
            orte.contains("--mca plm_rsh_agent /my/ssh --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0")
        );
        let prrte = line(Dialect::Prrte);
        assert!(prrte.contains("--prtemca plm_ssh_agent /my/ssh") && prrte.contains("--prtemca prte_if_include eth0"));
        assert_eq!(line(Dialect::Prterun), format!("--personality ompi {prrte}"));
        let hydra = line(Dialect::Hydra);
        assert!(
            hydra.starts_with("-hosts a:2,b:2 -n 4") && hydra.contains("-launcher-exec /my/ssh -iface eth0"),
            "{hydra}"
        );
    }

    #[test]
    fn ranks_are_told_how_often_they_were_started_and_nothing_that_is_left_of_others() {
        let Options { reach } = Options::parse_from(["launch", "--hosts", "a"]);
        let set = [("ZERO_MPI", "libmpi.so.40"), (RESTART, "7"), ("HOME", "/root")];
        let told = |dialect, restarts| {
            let set = meant(&set).expect("variables");
            let line = LaunchLine { reach: &reach, dialect, hosts: &reach.hosts, each: 2, by_nccl: false, set };
            line.words(&variables(&line.set, restarts, None), false).join(" ")
        };
        assert!(told(Dialect::Orte, Some(0)).ends_with("-x ZERO_MPI -x ZERO_RESTART=0"));
        assert!(told(Dialect::Prrte, None).ends_with("-n 2 -x ZERO_MPI"));
        assert!(told(Dialect::Hydra, Some(1)).ends_with("-genv ZERO_MPI libmpi.so.40 -genv ZERO_RESTART 1"));
    }

    fn meant(set: &[(&str, &str)]) -> Result<Vec<(String, String)>, CommandError> {
        meant_for_ranks(set.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn z0133_a_variable_that_is_no_text_matters_only_if_ranks_are_given_it() {
        let set = |name: &str| meant_for_ranks([(name.into(), OsString::from_vec(vec![0xff]))].into_iter());
        assert!(set("FOO").expect("variables").is_empty());
        for name in ["NCCL_TOPO_FILE", "ZERO_MPI"] {
            let error = set(name).expect_err("no text").to_string();
            assert!(error.starts_with(&format!("error[Z0133]: the variable {name} is not UTF-8")), "{error}");
        }
        let name = OsString::from_vec(vec![0xff]);
        assert!(meant_for_ranks([(name, "x".into())].into_iter()).expect("variables").is_empty());
    }

    #[test]
    fn nccl_is_told_what_a_person_has_set_and_the_card() {
        let told = |set: &[(&str, &str)], card| {
            let told = variables(&meant(set).expect("variables"), None, card).into_iter();
            told.map(|variable| format!("{}={}", variable.name, variable.value)).collect::<Vec<_>>()
        };
        assert_eq!(told(&[("NCCL_DEBUG", "INFO")], Some("eth0")), ["NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME==eth0"]);
        assert_eq!(told(&[("NCCL_SOCKET_IFNAME", "ib0")], Some("eth0")), ["NCCL_SOCKET_IFNAME=ib0"]);
        assert!(told(&[("PATH", "/bin")], None).is_empty());
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("mpirun");
        command.args(["-n", "2", "/tmp/it's", "--data", "my text"]);
        assert_eq!(shown(&command), r"mpirun -n 2 '/tmp/it'\''s' --data 'my text'");
    }
}
