//! Json: the answer as `zero-advise-1`, for other programs. Its shape is documented in `docs/json.md`. Never rounds.

use serde_json::{Value, json};
use zero_plan::TierKind;

use super::candidate::Dimension;
use super::explain::{Advice, Pick, Price};
use super::question::Question;

/// The answer.
pub fn json(question: &Question, advice: &Advice) -> Value {
    let rival = |rival: &super::explain::Rival| {
        let (kind, figure) = match rival.loss {
            Price::Slower(factor) => ("times", json!(factor)),
            Price::AtLeast(factor) => ("times_at_least", json!(factor)),
            Price::Untimed(factor) => ("untimed_times_at_least", json!(factor)),
            Price::TooLarge(bytes) => ("bytes_too_much", json!(bytes)),
        };
        json!({ "dimension": rival.dimension, "value": rival.value, kind: figure })
    };
    let stage = |stage: &super::explain::StageFit| {
        json!({
            "stage": stage.stage,
            "states_bytes": stage.states.total(),
            "least_bytes": stage.least_bytes,
            "fits": stage.fits,
        })
    };
    json!({
        "format": "zero-advise-1",
        "model": question.name,
        "hardware": question.hardware.name,
        "nodes": question.nodes,
        "length": question.length,
        "is_exhaustive": advice.is_exhaustive,
        "timed": advice.timed,
        "untimed": advice.untimed,
        "unfit": advice.unfit,
        "best": advice.picks.iter().map(|pick| of_pick(question, pick)).collect::<Vec<_>>(),
        "others": advice.rivals.iter().map(rival).collect::<Vec<_>>(),
        "stages": advice.stages.iter().map(stage).collect::<Vec<_>>(),
    })
}

fn of_pick(question: &Question, pick: &Pick) -> Value {
    let values = Dimension::ALL
        .iter()
        .filter_map(|dimension| Some((format!("{dimension:?}"), Value::from(pick.candidate.value(*dimension)?))));
    json!({
        "spec": pick.candidate.text(question, &[]),
        "choices": values.collect::<serde_json::Map<_, _>>(),
        "step_s": pick.step_s,
        "tokens_per_step": pick.tokens,
        "tokens_per_s": pick.tokens_per_s,
        "mfu": pick.mfu,
        "memory_bytes": pick.need.bytes,
        "budget_bytes": pick.budget_bytes,
        "compute_s": pick.compute_s,
        "bubble_s": pick.bubble_s,
        "sent": pick.sent,
        "disk": pick.tier.as_ref().filter(|_| pick.candidate.offload.uses(TierKind::Disk)),
        "host": pick.tier.as_ref().filter(|_| pick.candidate.offload.tier() == TierKind::Host),
    })
}
