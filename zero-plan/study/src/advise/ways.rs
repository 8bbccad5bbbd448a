//! Ways: what would make a layout fit where none does. Each way asks a changed question, and is told only if a layout fits
//! then, by the check with which the search sorts layouts. Never times a layout.

use zero_plan::spec::RANKS_MAX;
use zero_plan::{Bytes, Kind};

use super::candidate::{Candidate, sketch};
use super::fit::Demand;
use super::least::{LeastBytes, UnitShapes};
use super::question::{NoAdvice, Question};
use super::space::{coarse, with_nodes};

/// The error if nothing fits: the layout that needs the least memory, and what would make it fit.
pub(super) fn nothing_fits(question: &Question, unfit: &[(Candidate, usize)]) -> NoAdvice {
    let over = |&(candidate, bytes): &(Candidate, usize)| bytes - question.budget(candidate.mesh.ranks_per_node());
    let least = unfit.iter().min_by_key(|it| over(it)).expect("nothing fits, so something does not");
    let (candidate, bytes) = *least;
    let per_node = candidate.mesh.ranks_per_node();
    let budget = question.budget(per_node);
    let told = format!(
        "the smallest layout needs {} a rank, and a rank has {} ({} less {} reserved): {}",
        Bytes(bytes),
        Bytes(budget),
        question.hardware.device.name,
        Bytes(question.hardware.device.reserved.bytes() as usize),
        sketch(&candidate),
    );
    let would = ways(&Stuck { question, least: candidate, bytes });
    NoAdvice::NothingFits { least: told, would }
}

/// A question in which nothing fits, and the layout that needs the least memory with its bytes.
struct Stuck<'q, 'a> {
    question: &'q Question<'a>,
    least: Candidate,
    bytes: usize,
}

/// A way out, in words that follow "it fits"; none if it does not lead out.
type Way = fn(&Stuck) -> Option<String>;

/// All ways, the cheapest first.
const WAYS: [Way; 3] = [in_bf16, on_more_nodes, with_more_memory];

/// The ways that lead out, and what else is known.
fn ways(stuck: &Stuck) -> Vec<String> {
    let out = WAYS.iter().filter_map(|way| way(stuck)).enumerate();
    let mut told: Vec<String> =
        out.map(|(i, way)| format!("{} {way}", if i == 0 { "it fits" } else { "or" })).collect();
    told.extend(activations(stuck));
    told
}

fn in_bf16(Stuck { question, .. }: &Stuck) -> Option<String> {
    let other = Question { pure_bf16: true, ..with_nodes(question, question.nodes) };
    let (bytes, layout) = least_fitting(&other).filter(|_| !question.pure_bf16)?;
    Some(format!(
        "with `--pure-bf16`, which changes the result of training: {} a rank, {}",
        Bytes(bytes),
        sketch(&layout)
    ))
}

/// The fewest nodes on which a layout fits. They are bracketed by doubling, because most numbers of nodes are large.
fn on_more_nodes(Stuck { question, .. }: &Stuck) -> Option<String> {
    let most = RANKS_MAX as usize / question.hardware.node.devices;
    let doubled =
        std::iter::successors(Some(2 * question.nodes), |nodes| Some(2 * nodes)).take_while(|nodes| *nodes <= most);
    let enough = doubled.into_iter().find(|nodes| least_fitting_on(question, *nodes).is_some())?;
    let found = (enough / 2 + 1..=enough).find_map(|nodes| Some((nodes, least_fitting_on(question, nodes)?)));
    let (nodes, (tokens, bytes, layout)) = found?;
    let network = if question.hardware.network.is_none() { " and a network between them" } else { "" };
    let ranks = nodes * layout.mesh.ranks_per_node();
    let changed = tokens.filter(|_| tokens != question.tokens_per_step);
    let tokens = changed.map_or(String::new(), |tokens| format!(" --tokens-per-step {tokens}"));
    Some(format!(
        "with `--nodes {nodes}{tokens}`{network} ({ranks} ranks): {} a rank, {}",
        Bytes(bytes),
        sketch(&layout)
    ))
}

fn with_more_memory(Stuck { question, bytes, .. }: &Stuck) -> Option<String> {
    let needed = bytes + question.hardware.device.reserved.bytes() as usize;
    Some(format!("if a rank has {} of memory", Bytes(rounded_up(needed))))
}

/// More bytes, by a tenth of the unit in which they are shown, because what is shown is cut there.
fn rounded_up(bytes: usize) -> usize {
    bytes + (1 << (bytes.max(1).ilog2() / 10 * 10)) / 10 + 1
}

/// What micro-batches take of the smallest layout.
fn activations(Stuck { question, least, .. }: &Stuck) -> Option<String> {
    let mut shapes = UnitShapes::new(question);
    let need = Demand::of(&least.config(question), shapes.of(least)?)?;
    let kept = need.of_kinds(&[Kind::Activations, Kind::Recomputed, Kind::ActivationGradients, Kind::Workspace]);
    let how = match (least.recompute, least.sequences) {
        (Some(1), 1) => "shorter sequences reduce them",
        (Some(1), _) => "smaller micro-batches or shorter sequences reduce them",
        _ => "`recompute: Every(1)`, smaller micro-batches or shorter sequences reduce them",
    };
    Some(format!("activations and workspace are {} of it: {how}", Bytes(kept)))
}

/// The tokens of a step with which a layout fits on a number of nodes, its bytes, and the layout. The tokens stay as they were
/// asked for if such layouts fit; otherwise they grow with the nodes.
fn least_fitting_on(question: &Question, nodes: usize) -> Option<(Option<usize>, usize, Candidate)> {
    let of = |other: Question| least_fitting(&other).map(|(bytes, layout)| (other.tokens_per_step, bytes, layout));
    let more = with_nodes(question, nodes);
    let same = Question { tokens_per_step: question.tokens_per_step, ..with_nodes(question, nodes) };
    of(same).or_else(|| of(more))
}

/// The layout that needs the least memory, if it fits.
fn least_fitting(question: &Question) -> Option<(usize, Candidate)> {
    let (mut shapes, mut least_bytes) = (UnitShapes::new(question), LeastBytes::default());
    let least = |layout: Candidate| {
        let bytes = least_bytes.of(question, layout, shapes.of(&layout)?)?;
        (bytes <= question.budget(layout.mesh.ranks_per_node())).then_some((bytes, layout))
    };
    coarse(question, &question.offloads().concat()).into_iter().filter_map(least).min_by_key(|(bytes, _)| *bytes)
}
