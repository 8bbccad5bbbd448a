//! Text: the answer for people: the best layouts, the cost of the others, what does not fit, and the decision in plain
//! words. Never computes a figure that the answer already has.

use core::fmt::Write;

use zero_plan::{Axis, Bytes, Kind, Recompute};

use super::candidate::{Dimension, sketch, widths};
use super::explain::{Advice, Pick, Price, Rival, StageFit};
use super::fit::Demand;
use super::question::Question;
use crate::simulate::{ShownTime, TierPrediction};

/// Kinds of memory that micro-batches take.
pub(super) const BATCH: [Kind; 5] =
    [Kind::Activations, Kind::Recomputed, Kind::ActivationGradients, Kind::Outgoing, Kind::Workspace];

/// Seconds, as all commands print them.
pub(super) fn time(seconds: f64) -> String {
    ShownTime(seconds).to_string()
}

fn percent(factor: f64) -> String {
    format!("{:.1} %", (factor - 1.0) * 100.0)
}

/// The cost of a choice.
pub(super) fn cost(loss: Price) -> String {
    match loss {
        Price::Slower(factor) if factor < 1.0005 => "as fast".to_owned(),
        Price::Slower(factor) if factor < 2.0 => format!("{} slower", percent(factor)),
        Price::Slower(factor) => format!("{factor:.1} times as long"),
        Price::AtLeast(factor) if factor < 1.0005 => "no faster".to_owned(),
        Price::AtLeast(factor) if factor < 2.0 => format!("at least {} slower", percent(factor)),
        Price::AtLeast(factor) => format!("at least {factor:.1} times as long"),
        Price::Untimed(factor) if factor > 0.0 => {
            format!("not timed, at best {:.1} % faster", (1.0 - factor) * 100.0)
        }
        Price::Untimed(_) => "not timed".to_owned(),
        Price::TooLarge(bytes) => format!("does not fit: {} too much", Bytes(bytes)),
    }
}

/// The answer as text.
pub fn answer(question: &Question, advice: &Advice) -> String {
    let mut text = String::new();
    let devices = question.nodes * question.hardware.node.devices;
    let nodes = if question.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", question.nodes) };
    let _ = writeln!(text, "{} on {nodes} of {} ({devices} devices)\n", question.name, question.hardware.name);
    for (i, pick) in advice.picks.iter().enumerate() {
        let _ = writeln!(text, "{}. {}", i + 1, sketch(&pick.candidate));
        for line in figures(pick) {
            let _ = writeln!(text, "   {line}");
        }
    }
    let _ = writeln!(text, "\nwhy not another\n{}", rivals(advice).join("\n"));
    let _ = writeln!(text, "\nthe decision");
    for line in decision(question, advice) {
        let _ = writeln!(text, "  - {line}");
    }
    let _ = writeln!(text, "\n{}", searched(question, advice));
    text
}

/// The figures of a layout, in a few lines.
pub(super) fn figures(pick: &Pick) -> Vec<String> {
    let Pick { step_s, tokens, tokens_per_s, mfu, budget_bytes, .. } = pick;
    let memory = format!("memory {} of {} a rank", Bytes(pick.need.bytes), Bytes(*budget_bytes));
    let sent: usize = pick.flows.iter().filter(|it| !it.flow.is_of_tier()).map(|sent| sent.bytes).sum();
    let to_ranks = pick.sent.iter().filter(|it| !it.flow.is_of_tier());
    let (link_s, exposed_s) = to_ranks.fold((0.0, 0.0), |(l, e), sent| (l + sent.link_s, e + sent.exposed_s));
    let mut lines = vec![
        format!("step {} of {tokens} tokens, {tokens_per_s:.0} tokens/s, MFU {:.1} %", time(*step_s), mfu * 100.0),
        format!("{memory}; sends {}, {} on links, of which {} exposed", Bytes(sent), time(link_s), time(exposed_s)),
    ];
    lines.extend(pick.tier.iter().map(TierPrediction::in_a_line));
    lines
}

/// How many values of a dimension are listed: of those that fit, and of those that do not.
const TOLD: [usize; 2] = [4, 2];

/// For each dimension, the cost of its other values, each in the best layout that has it.
pub(super) fn rivals(advice: &Advice) -> Vec<String> {
    let told = |rival: &Rival| format!("{} ({})", rival.value, cost(rival.loss));
    let mut lines = Vec::new();
    for dimension in Dimension::ALL {
        let all: Vec<&Rival> = advice.rivals.iter().filter(|rival| rival.dimension == dimension).collect();
        // Values that do not fit come last.
        let (fit, unfit) = all.split_at(all.partition_point(|rival| !matches!(rival.loss, Price::TooLarge(_))));
        let shown: Vec<String> =
            fit.iter().take(TOLD[0]).chain(unfit.iter().take(TOLD[1])).copied().map(told).collect();
        if !shown.is_empty() {
            let more = all.len() - shown.len();
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            lines.push(format!("  {}: {}{more}", name(dimension), shown.join(", ")));
        }
    }
    lines
}

const fn name(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Mesh => "mesh",
        Dimension::Nodes => "nodes",
        Dimension::Stage => "stage",
        Dimension::Prefetch => "prefetch",
        Dimension::Bucket => "buckets",
        Dimension::Gather => "gathers",
        Dimension::Reduce => "reductions",
        Dimension::Schedule => "schedule",
        Dimension::Split => "split",
        Dimension::Recompute => "recomputation",
        Dimension::MicroBatches => "micro-batches",
        Dimension::Widths => "widths",
        Dimension::Offload => "offload",
    }
}

/// The memory that one stage needs, and whether it fits.
fn asked(question: &Question, advice: &Advice, stage: &StageFit) -> String {
    let what = match stage.stage {
        0 => "does everything fit on each device (stage 0)?",
        1 => "if the optimizer state is shared out (stage 1)?",
        2 => "if gradients are shared out too (stage 2)?",
        _ => "if parameters are shared out too (stage 3)?",
    };
    let budget = question.budget(*question.ranks_per_node().last().unwrap_or(&1));
    let states = stage.states.total();
    let verdict = match (stage.fits, stage.least_bytes) {
        (true, Some(least)) => format!("yes: at least {} with the rest", Bytes(least)),
        (false, Some(least)) => {
            format!("no: at least {} with the rest, {} too much", Bytes(least), Bytes(least.saturating_sub(budget)))
        }
        _ => "not tried".to_owned(),
    };
    let value = format!("stage {}", stage.stage);
    let rival = advice.rivals.iter().find(|rival| rival.dimension == Dimension::Stage && rival.value == value);
    let slower = match rival {
        Some(rival) if stage.fits => format!("; its best layout: {}", cost(rival.loss)),
        _ => String::new(),
    };
    format!("{what} model states are {} of {}: {verdict}{slower}", Bytes(states), Bytes(budget))
}

/// The decision tree, applied.
pub(super) fn decision(question: &Question, advice: &Advice) -> Vec<String> {
    let (pick, mut lines) = (&advice.picks[0], Vec::new());
    for stage in &advice.stages {
        lines.push(asked(question, advice, stage));
        if stage.fits && stage.stage >= pick.candidate.stage {
            break;
        }
    }
    let kept = pick.candidate.kept_elsewhere();
    let cost = pick.tier.iter().map(TierPrediction::in_a_line);
    lines.extend(cost.map(|cost| format!("with {kept} (`offload`)? {cost}")));
    lines.extend(activations(question, pick));
    if question.nodes > 1 {
        let crosses = Axis::ALL.into_iter().filter(|axis| pick.candidate.mesh.crosses_nodes(*axis)).map(Axis::name);
        let network: f64 = pick.sent.iter().filter(|it| it.link.name() == "network").map(|it| it.exposed_s).sum();
        let crosses = crosses.collect::<Vec<_>>().join(" and ");
        lines.push(format!("axes across nodes: {crosses}; a step waits {} for the network", time(network)));
    }
    if pick.candidate.mesh.pipeline > 1 {
        lines.push(format!("a pipeline of {} idles {} of a step", pick.candidate.mesh.pipeline, time(pick.bubble_s)));
    }
    if question.tokens_per_step.is_none() {
        let tokens = pick.tokens;
        lines.push(format!(
            "without `--tokens-per-step`, each data-parallel rank has the fastest number of tokens: {tokens} in all"
        ));
    }
    lines.push(format!("so: {}", sketch(&pick.candidate)));
    lines
}

/// The memory of activations, which is independent of the stage: if they are kept, and if they are recomputed.
fn activations(question: &Question, pick: &Pick) -> Option<String> {
    let units = (question.units)(pick.candidate.precision.compute, pick.candidate.sequences)?;
    let config = pick.candidate.config(question);
    let of = |recompute| {
        let need = Demand::of(&zero_plan::Config { recompute, ..config }, &units)?;
        Some(need.of_kinds(&BATCH))
    };
    let (kept, again) = (of(Recompute::None)?, of(Recompute::Every(1)));
    let again = again.map_or(String::new(), |again| format!(", {} if every unit is recomputed", Bytes(again)));
    let (n, length) = (pick.candidate.sequences, question.length);
    Some(format!(
        "no ZeRO stage shrinks activations: micro-batches of {n} x {length} tokens take {} if kept{again}",
        Bytes(kept)
    ))
}

/// How many layouts were looked at.
pub(super) fn searched(question: &Question, advice: &Advice) -> String {
    let exhaustive = if advice.is_exhaustive {
        "among the values that the search tries (buckets, prefetch, recomputation, micro-batches), no untimed layout can be \
         faster: the search was exhaustive"
            .to_owned()
    } else {
        format!("the search was bounded by {} plans, so a faster layout may exist", question.effort.plans)
    };
    let refused = match advice.refused {
        0 => String::new(),
        refused => format!(", and {refused} were refused as specs, which is a bug in this command"),
    };
    format!(
        "timed {} layouts; {} more fit, {} do not{refused}; {exhaustive}",
        advice.timed, advice.untimed, advice.unfit
    )
}

/// The comment at the top of a spec: the machines that it is planned for, its figures, and how it compares.
pub fn comment(question: &Question, advice: &Advice, pick: &Pick) -> Vec<String> {
    let mut lines = vec![format!("Planned for {} x {}.", question.nodes, question.hardware.name)];
    lines.extend(figures(pick).into_iter().map(|line| format!("Predicted: {line}.")));
    lines.push(format!("Widths: {}.", widths(&pick.candidate.precision)));
    lines.extend(
        pick.tier
            .iter()
            .filter(|tier| tier.wear.is_some())
            .map(|_| "Its states on disk need a folder: the argument `--offload FOLDER`.".to_owned()),
    );
    let best = advice.picks.iter().position(|other| other == pick).unwrap_or(0);
    lines.push(match best {
        0 => "The fastest layout found.".to_owned(),
        _ => format!(
            "Compared with the fastest layout found: {}.",
            cost(Price::Slower(per_token(pick) / per_token(&advice.picks[0])))
        ),
    });
    lines
}

fn per_token(pick: &Pick) -> f64 {
    pick.step_s / pick.tokens as f64
}
