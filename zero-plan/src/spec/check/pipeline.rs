//! Pipeline: whether micro-batches fill it (Z0113), and whether an explicit split is possible (Z0115). Whether the
//! split matches the model's units is checked later, where those are known.

use super::super::locate::{KeySpans, items};
use super::super::{Schedule, Units};
use super::{CheckedSpec, Rule};
use crate::diagnostic::Diagnostic;

pub const RULES: &[Rule] = &[
    Rule { reads: &["mesh.pipeline", "pipeline.schedule", "pipeline.units"], find: split },
    Rule { reads: &["mesh.pipeline", "pipeline.schedule", "batch.micro_batches"], find: micro_batches },
];

fn micro_batches(subject: &CheckedSpec) -> Option<Diagnostic> {
    let spec = subject.spec;
    let (pipeline_stages, micro_batches) = (spec.mesh.pipeline, spec.batch.micro_batches);
    let (axis, name) = (subject.name("mesh.pipeline"), subject.name("batch.micro_batches"));
    let fixed = micro_batches.next_multiple_of(pipeline_stages);
    let (why, help) = match spec.pipeline.schedule {
        Schedule::Interleaved { .. } if !micro_batches.is_multiple_of(pipeline_stages) => (
            format!("not a multiple of {pipeline_stages}: chunks take turns every {pipeline_stages} micro-batches"),
            format!("set `{name}` to {fixed}, or choose `OneFOneB`, which takes any number from {pipeline_stages} up"),
        ),
        _ if micro_batches < pipeline_stages => {
            (bubble(pipeline_stages, micro_batches), format!("set `{name}` to {fixed} or more, or lower `{axis}`"))
        }
        _ => return None,
    };
    let found = match micro_batches {
        1 => "1 micro-batch does".to_owned(),
        _ => format!("{micro_batches} micro-batches do"),
    };
    let message = format!("{found} not fit {pipeline_stages} pipeline stages");
    let (path, spans) = subject.first_given(&["batch.micro_batches", "mesh.pipeline"])?;
    Some(Diagnostic::new("Z0113", path, message).at(spans.value, why).help(help))
}

/// The part of a step in which a pipeline stage idles: (p - 1) / (m + p - 1) for p pipeline stages and m micro-batches
/// (Huang et al., 2019).
fn bubble(pipeline_stages: u32, micro_batches: u32) -> String {
    let (idle, all) = (u64::from(pipeline_stages) - 1, u64::from(micro_batches) + u64::from(pipeline_stages) - 1);
    format!("fewer than pipeline stages: each would idle for {idle}/{all} of a step, {}%", 100 * idle / all)
}

fn split(subject: &CheckedSpec) -> Option<Diagnostic> {
    let spec = subject.spec;
    let path = "pipeline.units";
    let Units::Split(units) = &spec.pipeline.units else { return None };
    let KeySpans { value, .. } = subject.given(path)?;
    let (pipeline_stages, per_rank, name) = (spec.mesh.pipeline, spec.pipeline.schedule.chunks(), subject.name(path));
    let chunks = u64::from(pipeline_stages) * u64::from(per_rank);
    if units.len() as u64 != chunks {
        let needed = match per_rank {
            1 => format!("{pipeline_stages} pipeline stages"),
            _ => format!("{pipeline_stages} pipeline stages x {per_rank} chunks are {chunks}"),
        };
        let entries = if units.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", units.len()) };
        let problem =
            Diagnostic::new("Z0115", path, format!("`{name}` has {entries} for {chunks} chunks of the model"));
        let help = format!("give {chunks} entries, or choose `Balanced`, which needs none");
        return Some(problem.at(value, needed).help(help));
    }
    let empty = units.iter().position(|units| *units == 0)?;
    let pipeline = empty as u64 % u64::from(pipeline_stages);
    let span = items(subject.report.text, &value).get(empty).cloned().unwrap_or(value);
    Some(
        Diagnostic::new("Z0115", path, format!("`{name}` leaves a chunk of the model empty"))
            .at(span, format!("chunk {empty}, on pipeline stage {pipeline}, has no units"))
            .help("give each chunk 1 unit or more, or lower the number of pipeline stages or chunks"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::{codes, one};

    #[test]
    fn z0113_fewer_micro_batches_than_pipeline_stages() {
        let text = "(zero: (stage: 1), mesh: (pipeline: 4), batch: (micro_batches: 2))";
        let label = "fewer than pipeline stages: each would idle for 3/5 of a step, 60%";
        let problem = one(text, "Z0113", (1, 64), "2 micro-batches do not fit 4 pipeline stages", label);
        let help = "set `batch.micro_batches` to 4 or more, or lower `mesh.pipeline`";
        assert_eq!(problem.help.as_deref(), Some(help));
        let text = "(zero: (stage: 1), mesh: (pipeline: 2))";
        let label = "fewer than pipeline stages: each would idle for 1/2 of a step, 50%";
        one(text, "Z0113", (1, 37), "1 micro-batch does not fit 2 pipeline stages", label);
        assert_eq!(codes("(zero: (stage: 1), mesh: (pipeline: 2), batch: (micro_batches: 3))"), [""; 0]);
    }

    #[test]
    fn z0113_interleaved_micro_batches_are_no_multiple() {
        let text = "(zero: (stage: 1), mesh: (pipeline: 4), batch: (micro_batches: 6), \
            pipeline: (schedule: Interleaved(chunks: 2)))";
        let label = "not a multiple of 4: chunks take turns every 4 micro-batches";
        let problem = one(text, "Z0113", (1, 64), "6 micro-batches do not fit 4 pipeline stages", label);
        let help = "set `batch.micro_batches` to 8, or choose `OneFOneB`, which takes any number from 4 up";
        assert_eq!(problem.help.as_deref(), Some(help));
        assert_eq!(codes(&text.replace("6", "8")), [""; 0]);
    }

    #[test]
    fn z0115_split_that_cannot_be() {
        let text =
            "(zero: (stage: 1), mesh: (pipeline: 2), batch: (micro_batches: 2), pipeline: (units: Split([1, 2, 3])))";
        let message = "`pipeline.units` has 3 entries for 2 chunks of the model";
        one(text, "Z0115", (1, 86), message, "2 pipeline stages");
        let text = text.replace("units", "schedule: Interleaved(chunks: 2), units");
        let message = "`pipeline.units` has 3 entries for 4 chunks of the model";
        one(&text, "Z0115", (1, 120), message, "2 pipeline stages x 2 chunks are 4");
        assert_eq!(codes(&text.replace("1, 2, 3", "1, 2, 3, 4")), [""; 0]);
        let message = "`pipeline.units` leaves a chunk of the model empty";
        let empty = text.replace("1, 2, 3", "1, 2, 3, 0");
        one(&empty, "Z0115", (1, 136), message, "chunk 3, on pipeline stage 1, has no units");
    }
}
