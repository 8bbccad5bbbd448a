//! Finding: the errors that ranks have found by themselves, as text for a person: equal errors once, each with the ranks
//! that found it, unless all did. Errors of a run are printed here and nowhere else.

use core::fmt;

use super::wire::Finding;

/// Prints an error.
pub fn print(error: &str) {
    crate::terminal::tell(&error);
}

/// Errors that some ranks of a job have found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankFindings {
    found: Vec<Finding>,
    /// Number of ranks that could have found it: those of this host.
    here: usize,
    /// Number of all ranks.
    world: usize,
}

impl RankFindings {
    pub(super) fn new(here: usize, world: usize) -> Self {
        Self { found: Vec::new(), here, world }
    }

    /// The finding of one rank.
    pub(super) fn of(here: usize, world: usize, finding: Finding) -> Self {
        Self { found: vec![finding], here, world }
    }

    pub(super) fn push(&mut self, finding: Finding) {
        self.found.push(finding);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

impl fmt::Display for RankFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut errors: Vec<&str> = Vec::new();
        self.found.iter().map(|found| found.error.trim_end()).for_each(|error| {
            if !errors.contains(&error) {
                errors.push(error);
            }
        });
        for (number, error) in errors.into_iter().enumerate() {
            let of_this = self.found.iter().filter(|found| found.error.trim_end() == error);
            let mut ranks: Vec<u64> = of_this.map(|found| found.rank).collect();
            ranks.sort_unstable();
            ranks.dedup();
            write!(f, "{}{error}", if number == 0 { "" } else { "\n" })?;
            if ranks.len() < self.here {
                write!(f, "\n  = note: found by {} of {}", super::error::ranks(&ranks), self.world)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(world: usize, found: &[(u64, &str)]) -> String {
        let mut findings = RankFindings::new(world, world);
        found.iter().for_each(|&(rank, error)| findings.push(Finding { rank, code: 2, error: error.to_owned() }));
        findings.to_string()
    }

    #[test]
    fn what_all_find_is_told_once_and_names_nobody() {
        assert_eq!(told(2, &[(1, "error: a"), (0, "error: a\n")]), "error: a");
    }

    #[test]
    fn what_some_find_names_them() {
        assert_eq!(told(3, &[(2, "error: a"), (1, "error: a")]), "error: a\n  = note: found by ranks 1, 2 of 3");
        assert_eq!(
            told(2, &[(1, "error: a"), (0, "error: b")]),
            "error: a\n  = note: found by rank 1 of 2\nerror: b\n  = note: found by rank 0 of 2"
        );
    }
}
