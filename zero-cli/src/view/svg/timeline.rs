//! Timeline: the ops of each pipeline stage along the time axis, and transfers below them. Never merges bars that can be
//! distinguished.

use std::fmt::Write;

use maud::{Markup, html};
use zero_plan::Class;
use zero_study::picture::{Flights, Picture, PipelineStagePicture};

use super::{Block, LINE, MARGIN, RIGHT, clocked, digits, ticks, x};
use crate::view::palette::{CLASSES, Paint, WAIT};

const ROW: f64 = 20.0;
const TRACK: f64 = 5.0;
/// Below this width two bars cannot be distinguished.
const SEEN: f64 = 0.25;
/// Width of the shortest label.
const LABEL: f64 = 17.0;
/// Classes whose flights are drawn, from top to bottom.
const TRACKED: [Class; 4] = [Class::Gather, Class::Reduce, Class::Parcel, Class::Agree];
/// If there are more pipeline stages than this, only the first are drawn.
const PIPELINE_STAGES_MAX: usize = 16;

pub fn block(picture: &Picture) -> Block {
    let mut y = LINE + 4.0;
    let mut lanes = Vec::new();
    for (number, pipeline_stage) in picture.pipeline_stages.iter().enumerate().take(PIPELINE_STAGES_MAX) {
        let (height, drawn) = lane(picture, number, pipeline_stage);
        lanes.push((y, drawn));
        y += height;
    }
    let more = picture.pipeline_stages.len().saturating_sub(PIPELINE_STAGES_MAX);
    if more > 0 {
        lanes.push((y, html! { text.soft x=(MARGIN) y="10" { "and " (more) " more pipeline stages" } }));
        y += LINE;
    }
    let at = ticks(picture.end as f64, 7.0);
    let drawn = html! {
        text.head x=(MARGIN) y="11" { "Schedule of a step" }
        @for &at in &at { path.grid d=(format!("M{0} {LINE}V{y}", digits(x(picture, at as u64)))) {} }
        @for (y, lane) in lanes { g transform=(format!("translate(0 {y})")) { (lane) } }
        @for &at in &at { (tick(picture, at as u64, y + 11.0)) }
    };
    Block { height: y + LINE + 6.0, drawn }
}

fn tick(picture: &Picture, at: u64, y: f64) -> Markup {
    let place = x(picture, at);
    let class = if place > RIGHT - 60.0 {
        "soft end"
    } else if at == 0 {
        "soft"
    } else {
        "soft mid"
    };
    html! { text class=(class) x=(digits(place)) y=(y) { (clocked(picture, at)) } }
}

/// The row of a pipeline stage, and its height.
fn lane(picture: &Picture, number: usize, pipeline_stage: &PipelineStagePicture) -> (f64, Markup) {
    let mut y = ROW + 2.0;
    let mut tracks = Vec::new();
    for class in TRACKED {
        let used = flights(&pipeline_stage.flights, class)
            .map(|flight| pipeline_stage.flights.track[flight] + 1)
            .max()
            .unwrap_or(0);
        tracks.push((class, y));
        y += used as f64 * TRACK;
    }
    let name = if picture.pipeline_stages.len() > 1 { format!("pipeline {number}") } else { "each rank".to_owned() };
    let drawn = html! {
        text x=(MARGIN) y=(ROW - 6.0) { (name) }
        path fill=(format!("url(#{})", WAIT.name)) d=(waits(picture, pipeline_stage)) {}
        @for (class, paint) in Class::ALL.into_iter().zip(CLASSES) {
            @let bars = ops(picture, pipeline_stage, class);
            @if !bars.is_empty() { path.gap fill=(format!("url(#{})", paint.name)) d=(bars) {} }
        }
        @for (class, top) in tracks {
            @let bars = travels(picture, &pipeline_stage.flights, class, top);
            @if !bars.is_empty() { path fill=(format!("url(#{})", CLASSES[class as usize].name)) d=(bars) {} }
        }
        @for Label { middle, text, paint } in labels(picture, pipeline_stage) {
            // The text is drawn on the colour without its pattern, so that it can be read.
            rect x=(digits(middle - 8.0)) y="4" width="16" height="12" fill=[paint.fill] {}
            text.mid.label x=(digits(middle)) y="14" fill=(paint.ink) { (text) }
        }
    };
    (y + 10.0, drawn)
}

/// Bars as the outline of a path; bars that cannot be distinguished are drawn as one bar.
fn outline(bars: impl Iterator<Item = (f64, f64, f64)>, height: f64) -> String {
    let (mut d, mut last) = (String::new(), (f64::MIN, f64::MIN));
    for (left, right, top) in bars {
        if top == last.1 && right < last.0 + SEEN {
            continue;
        }
        let width = (right - left).max(SEEN);
        last = (left + width, top);
        let _ = write!(d, "M{} {}h{}v{}h-{2}z", digits(left), digits(top), digits(width), digits(height));
    }
    d
}

fn ops(picture: &Picture, pipeline_stage: &PipelineStagePicture, class: Class) -> String {
    let of_class = |&op: &usize| {
        picture.verbs[pipeline_stage.ops.verb[op]].class == class
            && pipeline_stage.ops.end[op] > pipeline_stage.ops.start[op]
    };
    let chosen = (0..pipeline_stage.ops.start.len()).filter(of_class);
    outline(
        chosen.map(|op| (x(picture, pipeline_stage.ops.start[op]), x(picture, pipeline_stage.ops.end[op]), 0.0)),
        ROW,
    )
}

/// The waits of ops and, at the end, the wait for the last rank.
fn waits(picture: &Picture, pipeline_stage: &PipelineStagePicture) -> String {
    let ops = &pipeline_stage.ops;
    let waited = (0..ops.start.len()).filter(|&op| ops.waited[op] > 0);
    let waited = waited.map(|op| (ops.start[op] - ops.waited[op], ops.start[op]));
    let last = ops.end.last().copied().unwrap_or(picture.end);
    let all = waited.chain([(last, picture.end)]).filter(|(from, to)| to > from);
    outline(all.map(|(from, to)| (x(picture, from), x(picture, to), 4.0)), ROW - 8.0)
}

fn flights(flights: &Flights, class: Class) -> impl Iterator<Item = usize> {
    (0..flights.op.len()).filter(move |&flight| flights.class[flight] == class)
}

fn travels(picture: &Picture, all: &Flights, class: Class, top: f64) -> String {
    let mut chosen: Vec<usize> = flights(all, class).collect();
    chosen.sort_by_key(|&flight| (all.track[flight], all.start[flight]));
    let bar = |flight: usize| {
        (x(picture, all.start[flight]), x(picture, all.end[flight]), top + all.track[flight] as f64 * TRACK)
    };
    outline(chosen.into_iter().map(bar), TRACK - 1.0)
}

/// Text on a bar.
struct Label {
    middle: f64,
    text: String,
    paint: Paint,
}

/// A label for each run of computations on one micro-batch that is wide enough.
fn labels(picture: &Picture, pipeline_stage: &PipelineStagePicture) -> Vec<Label> {
    let ops = &pipeline_stage.ops;
    let turn = |op: usize| (picture.verbs[ops.verb[op]].class, ops.micro_batch[op]);
    let computes = |&op: &usize| matches!(turn(op).0, Class::Forward | Class::Backward);
    let computed: Vec<usize> = (0..ops.start.len()).filter(computes).collect();
    let label = |run: &[usize]| {
        let (class, micro_batch) = turn(run[0]);
        let (left, right) = (x(picture, ops.start[run[0]]), x(picture, ops.end[run[run.len() - 1]]));
        let letter = if class == Class::Forward { "F" } else { "B" };
        let label = Label {
            middle: (left + right) / 2.0,
            text: format!("{letter}{micro_batch}"),
            paint: CLASSES[class as usize],
        };
        (right - left >= LABEL).then_some(label)
    };
    computed.chunk_by(|&a, &b| turn(a) == turn(b)).filter_map(label).collect()
}
