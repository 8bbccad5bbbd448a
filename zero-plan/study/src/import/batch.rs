//! Batch: the numbers of ranks, sequences and micro-batches that follow from a configuration and the options. Never
//! writes a spec.

use std::ops::Range;

use zero_plan::bounds::MICRO_BATCHES_MAX;
use zero_plan::diagnostic::Diagnostic;
use zero_plan::spec::RANKS_MAX;

use super::settings::Settings;
use super::{ImportOptions, SettingFate};

/// A number in the file, with its place.
pub(super) type PlacedNumber = Option<(u64, Range<usize>)>;

/// Z0157: the values contradict one another.
pub(super) fn contradiction(message: impl Into<String>, at: Option<Range<usize>>, help: &str) -> Box<Diagnostic> {
    let problem = Diagnostic::new("Z0157", "", message).help(help);
    Box::new(match at {
        Some(at) => problem.at(at, "this does not match"),
        None => problem,
    })
}

/// The number of all ranks, from the file or the options.
pub(super) fn ranks(found: PlacedNumber, options: &ImportOptions) -> Result<u32, Box<Diagnostic>> {
    let help = "give the number of all ranks by `--ranks N`";
    match (found, options.ranks) {
        (Some((found, at)), Some(asked)) if found != u64::from(asked) => {
            let message = format!("the file is for {found} ranks, but `--ranks` is {asked}");
            Err(contradiction(message, Some(at), "leave `--ranks` out, or correct the file"))
        }
        (_, Some(asked)) => Ok(asked),
        (Some((found, _)), None) if (1..=u64::from(RANKS_MAX)).contains(&found) => Ok(found as u32),
        (Some((found, at)), None) => {
            let message = format!("the file means {found} ranks, but at most {RANKS_MAX} are possible");
            Err(contradiction(message, Some(at), help))
        }
        (None, None) => Err(contradiction("the file does not say how many ranks there are", None, help)),
    }
}

/// The number of nodes of this many ranks, from the file or the options.
pub(super) fn nodes(
    settings: &mut Settings,
    found: PlacedNumber,
    options: &ImportOptions,
    ranks: u32,
) -> Result<u32, Box<Diagnostic>> {
    let help = "give the number of nodes by `--nodes N`: all nodes have the same number of ranks";
    let at = found.as_ref().map(|(_, at)| at.clone());
    let nodes = match (found, options.nodes) {
        (Some((found, at)), Some(asked)) if found != u64::from(asked) => {
            let message = format!("the file is for {found} nodes, but `--nodes` is {asked}");
            return Err(contradiction(message, Some(at), "leave `--nodes` out, or correct the file"));
        }
        (_, Some(asked)) => asked,
        (Some((found, _)), None) => found as u32,
        (None, None) => {
            if ranks > 1 {
                settings.note(
                    SettingFate::Missing,
                    "mesh.nodes",
                    "all ranks lie on one node, unless `--nodes N` is given",
                );
            }
            1
        }
    };
    match ranks.is_multiple_of(nodes) {
        true => Ok(nodes),
        false => Err(contradiction(format!("{ranks} ranks do not divide by {nodes} nodes"), at, help)),
    }
}

/// DeepSpeed's batch: any two of three numbers, or all three.
#[derive(Debug, Default)]
pub(super) struct BatchSizes {
    /// Samples of all ranks in a step.
    pub all: PlacedNumber,
    /// Samples of a micro-batch of a rank.
    pub sequences: PlacedNumber,
    /// Micro-batches of a step.
    pub micro_batches: PlacedNumber,
}

impl BatchSizes {
    /// Fills in the numbers that the file leaves out from the options.
    pub fn with(mut self, options: &ImportOptions) -> Result<Self, Box<Diagnostic>> {
        let given = [
            (&mut self.sequences, options.sequences, "--sequences"),
            (&mut self.micro_batches, options.micro_batches, "--micro-batches"),
        ];
        for (place, option, name) in given {
            match (&*place, option) {
                (Some((found, at)), Some(asked)) if *found != u64::from(asked) => {
                    let message = format!("the file says {found}, but `{name}` is {asked}");
                    return Err(contradiction(message, Some(at.clone()), "leave the option out, or correct the file"));
                }
                (None, Some(asked)) => *place = Some((asked.into(), 0..0)),
                _ => {}
            }
        }
        Ok(self)
    }

    /// The number of ranks that follows from all three numbers.
    pub fn ranks(&self) -> PlacedNumber {
        let ((all, at), (sequences, _), (micro_batches, _)) =
            (self.all.clone()?, self.sequences.clone()?, self.micro_batches.clone()?);
        let of_rank = sequences * micro_batches;
        all.is_multiple_of(of_rank).then_some((all / of_rank, at))
    }

    /// Sequences of a micro-batch, if they are known, and micro-batches of a step, on this many ranks. They follow
    /// DeepSpeed's rules, except that numbers whose product does not match are an error.
    pub fn of(self, ranks: u32) -> Result<(Option<u32>, u32), Box<Diagnostic>> {
        let (sequences, micro_batches) =
            (self.sequences.map(|(number, _)| number), self.micro_batches.map(|(number, _)| number));
        let Some((all, at)) = self.all else {
            return Ok((sequences.map(|it| it as u32), micro_batches.unwrap_or(1) as u32));
        };
        let known = u64::from(ranks) * sequences.unwrap_or(1) * micro_batches.unwrap_or(1);
        let rest = all / known;
        let is_whole = all == rest * known && rest > 0;
        let found = match (sequences, micro_batches) {
            (Some(sequences), Some(micro_batches)) if all == known => (sequences, micro_batches),
            (Some(sequences), None) if is_whole && rest <= MICRO_BATCHES_MAX as u64 => (sequences, rest),
            (None, micro_batches) if is_whole => (rest, micro_batches.unwrap_or(1)),
            _ => {
                let of = |number: Option<u64>, what| number.map(|number| format!(" x {number} {what}"));
                let [sequences, micro_batches] =
                    [of(sequences, "samples"), of(micro_batches, "micro-batches")].map(Option::unwrap_or_default);
                let message =
                    format!("`train_batch_size` is {all}, which is not {ranks} ranks{sequences}{micro_batches}");
                let help = "correct one of them, or `--ranks`: a step has `train_micro_batch_size_per_gpu` x \
                            `gradient_accumulation_steps` x ranks samples";
                return Err(contradiction(message, Some(at), help));
            }
        };
        Ok((Some(found.0 as u32), found.1 as u32))
    }
}
