//! Publish: Z0108 for copies of nothing, and Z0114 for parameters that cannot be published so.

use super::offload::OPTIMIZER;
use super::{CheckedSpec, Rule};
use crate::config::Config;
use crate::diagnostic::Diagnostic;

const DTYPE: &str = "publish.dtype";
const COPIES: &str = "publish.copies";

pub const RULES: &[Rule] = &[
    Rule { reads: &[DTYPE, COPIES], find: copies_of_nothing },
    Rule { reads: &[DTYPE, OPTIMIZER, "precision"], find: master_copy_in_a_tier },
];

fn copies_of_nothing(subject: &CheckedSpec) -> Option<Diagnostic> {
    if !subject.spec.publish.is_none() {
        return None;
    }
    let problem = Diagnostic::new("Z0108", COPIES, format!("`{COPIES}` has no effect without `{DTYPE}`"));
    let problem = problem.at(subject.given(COPIES)?.key, "nothing is published");
    Some(problem.help(format!("set `{DTYPE}` to F32 or BF16, or remove `publish`")))
}

/// A mistake at the type that parameters are published in.
fn impossible(subject: &CheckedSpec, why: &str, label: &str, help: &str) -> Option<Diagnostic> {
    let dtype = subject.spec.publish.dtype?;
    let problem = Diagnostic::new("Z0114", DTYPE, format!("`{DTYPE}` is {dtype:?}, {why}"));
    Some(problem.at(subject.given(DTYPE)?.value, label).help(help))
}

fn master_copy_in_a_tier(subject: &CheckedSpec) -> Option<Diagnostic> {
    let spec = subject.spec;
    let (precision, offload, publish) = (spec.precision, spec.offload.config(), spec.publish.config());
    let config = Config { precision, offload, publish, ..Config::PLAIN };
    if !config.publishes_master() || !config.offloads_optimizer() {
        return None;
    }
    let why = "more bits than layers read, and the copy that has them is in a tier";
    let label = "the optimizer has it piece by piece, and a publication would read it once more";
    impossible(subject, why, label, "set it to BF16, or remove `offload.optimizer`")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{codes, one};

    #[test]
    fn what_cannot_be_published_is_refused_at_its_key() {
        let text = "(zero: (stage: 3), publish: (copies: 2))";
        one(text, "Z0108", (1, 30), "`publish.copies` has no effect without `publish.dtype`", "nothing is published");
        let precision = "precision: (compute: BF16, params: BF16), offload: (optimizer: Disk)";
        assert_eq!(codes(&format!("(zero: (stage: 3), {precision}, publish: (dtype: F32))")), ["Z0114"]);
        assert_eq!(codes(&format!("(zero: (stage: 3), {precision}, publish: (dtype: BF16))")), [""; 0]);
        assert_eq!(codes("(zero: (stage: 3), device: Cuda, publish: (dtype: BF16))"), [""; 0]);
        assert_eq!(codes("(zero: (stage: 3), offload: (optimizer: Disk), publish: (dtype: F32, copies: 1))"), [""; 0]);
        assert_eq!(codes("(zero: (stage: 3), publish: (dtype: F32, copies: 17))"), ["Z0106"]);
    }
}
