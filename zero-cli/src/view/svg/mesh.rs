//! Mesh: nodes with their ranks, and the part of each state that each rank stores. Never knows ops.

use maud::html;
use zero_study::picture::Picture;

use super::{Block, LINE, MARGIN, RIGHT, digits};
use crate::view::palette::GROUPS;

/// If there are more ranks than this, only the first are drawn.
const RANKS_MAX: usize = 32;
const CELL: f64 = 84.0;
const GAP: f64 = 6.0;
const BAR: f64 = 8.0;
/// Height of a cell: its name, and a bar for each of three states.
const HIGH: f64 = 18.0 + 3.0 * (BAR + 3.0);

pub fn block(picture: &Picture) -> Block {
    let mesh = &picture.mesh;
    let per_node = mesh.ranks_per_node;
    let drawn = mesh.ranks.len().min(RANKS_MAX);
    let columns = columns(per_node.min(drawn));
    let rows = per_node.min(drawn).div_ceil(columns);
    let (wide, high) = (columns as f64 * (CELL + GAP) + GAP, rows as f64 * (HIGH + GAP) + 20.0);
    let per_line = (((RIGHT - MARGIN) / (wide + GAP)) as usize).max(1);
    let nodes = drawn.div_ceil(per_node);
    let place = |node: usize| {
        (MARGIN + (node % per_line) as f64 * (wide + GAP), LINE + (node / per_line) as f64 * (high + GAP))
    };
    let cell = |rank: usize| {
        let (x, y) = place(rank / per_node);
        let within = rank % per_node;
        (x + GAP + (within % columns) as f64 * (CELL + GAP), y + 16.0 + (within / columns) as f64 * (HIGH + GAP))
    };
    let height = LINE + nodes.div_ceil(per_line) as f64 * (high + GAP);
    let more = (drawn < mesh.ranks.len()).then(|| format!("and {} more ranks like these", mesh.ranks.len() - drawn));
    let rest = f64::from(u8::from(more.is_some())) * LINE;
    let drawn = html! {
        text.head x=(MARGIN) y="11" { "What each rank holds" tspan.soft dx="8" { (words(picture)) } }
        @for node in 0..nodes {
            rect.box x=(place(node).0) y=(place(node).1) width=(wide) height=(high) rx="6" {}
            text.soft x=(place(node).0 + GAP) y=(place(node).1 + 12.0) { "node " (node) }
        }
        @for rank in 0..drawn { (rank_cell(picture, rank, cell(rank))) }
        @if let Some(more) = more { text.soft x=(MARGIN) y=(height + 10.0) { (more) } }
    };
    Block { height: height + rest + 6.0, drawn }
}

/// Cells side by side in a node: all ranks, if two such nodes fit beside each other; otherwise rows of about equal
/// length.
fn columns(ranks: usize) -> usize {
    let most = ((RIGHT - MARGIN) / (CELL + GAP)) as usize;
    if ranks <= most / 2 { ranks } else { most.min(ranks).min(ranks.div_ceil(ranks.div_ceil(most))) }
}

fn rank_cell(picture: &Picture, rank: usize, (x, y): (f64, f64)) -> maud::Markup {
    let mesh = &picture.mesh;
    let along = |name: &str| {
        let axis = mesh.axes.iter().position(|axis| axis.name == name);
        axis.map_or(0, |axis| mesh.ranks[rank][axis])
    };
    let width = CELL - 22.0;
    let part = |shards: usize| {
        let shard = if shards > 1 { along("zero") } else { 0 };
        (x + 16.0 + width * shard as f64 / shards as f64, (width / shards as f64).max(1.5))
    };
    html! {
        rect.grid.back x=(x) y=(y) width=(CELL) height=(HIGH) rx="4" {}
        text.soft x=(x + 5.0) y=(y + 12.0) { "rank " (rank) }
        @if picture.pipeline_stages.len() > 1 { text.soft.end x=(x + CELL - 5.0) y=(y + 12.0) { "p" (along("pipeline")) } }
        @for (number, state) in mesh.states.iter().enumerate() {
            @let top = y + 18.0 + number as f64 * (BAR + 3.0);
            @let (left, wide) = part(state.shards);
            @let paint = GROUPS.iter().find(|paint| paint.name == state.name).map_or("outside", |paint| paint.name);
            text.soft.small x=(x + 5.0) y=(top + 8.0) { (state.name[..1].to_uppercase()) }
            rect.grid x=(x + 16.0) y=(top) width=(width) height=(BAR) {}
            rect x=(digits(left)) y=(top) width=(digits(wide)) height=(BAR) fill=(format!("url(#{paint})")) {}
        }
    }
}

/// The letters, and the share of each state that a rank stores.
fn words(picture: &Picture) -> String {
    let state = |state: &zero_study::picture::StatePicture| {
        let share = if state.shards > 1 { format!("1/{}", state.shards) } else { "all".to_owned() };
        format!("{} {}: {share}", state.name[..1].to_uppercase(), state.name)
    };
    let axes =
        picture.mesh.axes.iter().filter(|axis| axis.ranks > 1).map(|axis| format!("{} {}", axis.name, axis.ranks));
    let states = picture.mesh.states.iter().map(state).collect::<Vec<_>>().join(", ");
    let of = if picture.pipeline_stages.len() > 1 { " of its pipeline stage" } else { "" };
    [format!("{states}{of}")].into_iter().chain(axes).collect::<Vec<_>>().join("; ")
}
