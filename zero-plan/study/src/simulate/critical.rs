//! Critical: the chain of ops and transfers that is as long as a step. Only follows causes; never computes a time.

use serde::Serialize;

use super::timeline::{Cause, Timeline};

/// A stretch of the critical path. It begins when the previous stretch ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CriticalStretch {
    /// The op, or the transfer, that takes this time.
    pub what: Cause,
    /// Its start, in seconds since the step began.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
}

impl Timeline {
    /// The chain that is as long as the step, from start to end. If part of it were shorter, the step might be shorter.
    pub fn critical_path(&self) -> Vec<CriticalStretch> {
        let last = (0..self.lanes.len()).filter(|&lane| !self.lanes[lane].spans.is_empty());
        let Some(lane) = last.max_by(|&a, &b| self.lanes[a].stored_s().total_cmp(&self.lanes[b].stored_s())) else {
            return Vec::new();
        };
        let mut path = Vec::new();
        let mut end_s = self.lanes[lane].stored_s();
        let mut what = match self.lanes[lane].last_of_tier() {
            Some(transfer) if end_s > self.lanes[lane].end_s() => Cause::Transfer { lane, transfer },
            _ => Cause::Op { lane, op: self.lanes[lane].spans.len() - 1 },
        };
        loop {
            let (start_s, cause) = match what {
                Cause::Start => break,
                Cause::Op { lane, op } => {
                    let span = &self.lanes[lane].spans[op];
                    (span.start_s, span.cause)
                }
                Cause::Transfer { lane, transfer } => {
                    let transfer = &self.lanes[lane].transfers[transfer];
                    (transfer.start_s, transfer.cause)
                }
            };
            if end_s > start_s {
                path.push(CriticalStretch { what, start_s, end_s });
            }
            (what, end_s) = (cause, start_s);
        }
        path.reverse();
        path
    }
}
