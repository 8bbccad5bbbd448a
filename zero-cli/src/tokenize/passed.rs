//! Passed: the bad records that `--skip-bad` passes over, counted. Never prints.

use std::fmt;

use crate::error::CommandError;

/// Bad records, and what to do with them.
#[derive(Default)]
pub struct PassedRecords {
    skip: bool,
    unread: u64,
    without_text: u64,
    first: Option<CommandError>,
}

impl PassedRecords {
    /// None yet. They are passed over if `skip`, and are errors otherwise.
    pub fn new(skip: bool) -> Self {
        Self { skip, ..Self::default() }
    }

    /// Passes over a record.
    ///
    /// # Errors
    /// Why it is bad, if bad records are not passed over.
    pub fn pass_over(&mut self, bad: CommandError) -> Result<(), CommandError> {
        if !self.skip {
            return Err(bad);
        }
        *if matches!(bad, CommandError::NoText { .. }) { &mut self.without_text } else { &mut self.unread } += 1;
        self.first.get_or_insert(bad);
        Ok(())
    }

    /// Why the first of them is bad.
    pub fn first(self) -> Option<CommandError> {
        self.first
    }
}

impl fmt::Display for PassedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [(self.unread, "cannot be read"), (self.without_text, "without text")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let reasons: Vec<String> = counts.map(|(count, reason)| format!("{reason}: {count}")).collect();
        match &self.first {
            Some(CommandError::Input { place, .. } | CommandError::NoText { place, .. }) => {
                write!(f, "  bad records: {}; the first is {place}", reasons.join(", "))
            }
            _ => write!(f, "  bad records: 0"),
        }
    }
}
