//! Memory: the bytes in use over a step on a rank of the pipeline stage that needs most, below its limits. Never sums
//! numbers that are not in the plan.

use std::fmt::Write;

use maud::{Markup, html};
use zero_plan::Bytes;
use zero_study::picture::{MemoryGroup, Picture, PipelineStagePicture};

use super::{Block, LEFT, LINE, MARGIN, RIGHT, digits, fullest, keys, ticks, wrapped, x};
use crate::view::palette::{GROUPS, OUTSIDE};

const HEIGHT: f64 = 170.0;
/// A limit above this many times the arena is written as text: in a chart up to this limit, the arena would be too
/// small to see.
const FAR: f64 = 2.5;

/// Height of the band of memory outside the arena, if a band to scale would leave too little room for the rest.
const BAND: f64 = 18.0;

/// Positions of bytes, measured from the top of the chart. Memory outside the arena is at the bottom.
struct Level {
    outside: f64,
    most: f64,
    /// Height of the band of memory outside the arena.
    band: f64,
}

impl Level {
    fn new(outside: usize, most: f64) -> Self {
        let (outside, to_scale) = (outside as f64, HEIGHT * outside as f64 / most);
        Self { outside, most, band: if outside > 0.5 * most { BAND } else { to_scale } }
    }

    /// Whether the arena is drawn to another scale than the memory outside of it.
    fn is_cut(&self) -> bool {
        self.outside > 0.5 * self.most
    }

    fn y(&self, bytes: usize) -> f64 {
        let bytes = bytes as f64;
        let inside = (bytes - self.outside).max(0.0) / (self.most - self.outside);
        HEIGHT - self.band * (bytes / self.outside).min(1.0) - (HEIGHT - self.band) * inside
    }
}

pub fn block(picture: &Picture) -> Block {
    let (number, pipeline_stage) = fullest(picture);
    let taken = picture.outside_bytes + pipeline_stage.memory.arena_bytes;
    let is_near =
        |bytes: usize| bytes as f64 - picture.outside_bytes as f64 <= FAR * pipeline_stage.memory.arena_bytes as f64;
    let (near, far): (Vec<_>, Vec<_>) = picture.limits.iter().partition(|(_, bytes)| is_near(*bytes));
    let most = near.iter().map(|(_, bytes)| *bytes).fold(taken, usize::max);
    let room = 0.12 * (most - picture.outside_bytes) as f64;
    let level = Level::new(picture.outside_bytes, most as f64 + room.max(1.0));
    let far: Vec<String> =
        far.iter().map(|(name, bytes)| format!("{name}: {}, above this chart", Bytes(*bytes))).collect();
    let of = if picture.pipeline_stages.len() > 1 { format!(" of pipeline stage {number}") } else { String::new() };
    let legend = keys(
        GROUPS.iter().copied().filter(|paint| is_used(picture, pipeline_stage, paint.name)).chain([OUTSIDE]).collect(),
    );
    let parts = peak(picture, pipeline_stage, number);
    let top = LINE + 2.0;
    let below = top + HEIGHT + 4.0;
    let lines_at = below + legend.height;
    let height = lines_at + LINE * parts.len() as f64;
    let drawn = html! {
        text.head x=(MARGIN) y="11" { "Memory of a rank" (of) " over the step" }
        text.soft.end x=(RIGHT) y="11" { (far.join("; ")) }
        g transform=(format!("translate(0 {top})")) {
            (levels(&level))
            (stack(picture, pipeline_stage, &level))
            @if level.is_cut() {
                (tag(LEFT + 6.0, HEIGHT - 5.0, &format!("outside the arena, at most: {}, not to scale", Bytes(picture.outside_bytes))))
            }
            (limit(&level, "taken", taken, "4 3"))
            @for (name, bytes) in &near { (limit(&level, name, *bytes, "none")) }
            (marker(picture, pipeline_stage, &level))
        }
        g transform=(format!("translate(0 {below})")) { (legend.drawn) }
        @for (number, line) in parts.iter().enumerate() { text x=(MARGIN) y=(lines_at + LINE * number as f64 + 10.0) { (line) } }
    };
    Block { height: height + 4.0, drawn }
}

fn is_used(picture: &Picture, pipeline_stage: &PipelineStagePicture, name: &str) -> bool {
    let kinds = picture.kinds.iter().zip(pipeline_stage.memory.regions);
    kinds.into_iter().any(|(kind, bytes)| {
        bytes > 0 && GROUPS[MemoryGroup::ALL.iter().position(|&group| group == kind.group).unwrap_or(0)].name == name
    })
}

/// The peak, with its parts.
fn peak(picture: &Picture, pipeline_stage: &PipelineStagePicture, number: usize) -> Vec<String> {
    let peak = &pipeline_stage.memory.peak;
    let parts = picture.kinds.iter().zip(peak.bytes).filter(|(_, bytes)| *bytes > 0);
    let mut parts: Vec<_> = parts.map(|(kind, bytes)| (bytes, format!("{} {}", kind.name, Bytes(bytes)))).collect();
    parts.sort_by_key(|(bytes, _)| usize::MAX - bytes);
    let outside = format!("outside {}", Bytes(picture.outside_bytes));
    let head = format!(
        "Most in use: {}, in {}: ",
        Bytes(picture.outside_bytes + peak.total_bytes),
        title(picture, number, peak.op)
    );
    wrapped(head, parts.into_iter().map(|(_, text)| text).chain([outside]).collect())
}

fn title(picture: &Picture, pipeline: usize, op: usize) -> String {
    let ops = &picture.pipeline_stages[pipeline].ops;
    let verb = &picture.verbs[ops.verb[op]];
    let subject = match (verb.about, usize::try_from(ops.about[op])) {
        (zero_study::picture::About::Unit, Ok(unit)) if !verb.alone => format!(" {}", picture.units[unit].name),
        (zero_study::picture::About::Bucket, Ok(bucket)) if !verb.alone => format!(" {bucket}"),
        _ => String::new(),
    };
    let micro = match usize::try_from(ops.micro_batch[op]) {
        Ok(micro) if picture.micro_batches > 1 => format!(" of micro-batch {micro}"),
        _ => String::new(),
    };
    format!("{}{subject}{micro}", verb.name)
}

/// Lines at round numbers of bytes, or of bytes of the arena if the arena has its own scale.
fn levels(level: &Level) -> Markup {
    let from = if level.is_cut() { level.outside } else { 0.0 };
    let unit = 1024f64.powf(((level.most - from).log2() / 10.0).floor());
    html! {
        @for at in ticks((level.most - from) / unit, 4.0) {
            @let bytes = (at * unit) as usize;
            @let y = level.y(from as usize + bytes);
            path.grid d=(format!("M{LEFT} {}H{RIGHT}", digits(y))) {}
            text.soft.end x=(LEFT - 5.0) y=(digits(y + 4.0)) { (Bytes(bytes)) }
        }
    }
}

/// The bytes of each group that are in use during each op, in the order of groups.
fn curves(picture: &Picture, pipeline_stage: &PipelineStagePicture) -> Vec<Vec<usize>> {
    let count = pipeline_stage.ops.start.len();
    let mut curves = vec![vec![0; count]; GROUPS.len()];
    for (kind, changes) in picture.kinds.iter().zip(&pipeline_stage.memory.in_use) {
        let group = MemoryGroup::ALL.iter().position(|&group| group == kind.group).unwrap_or(0);
        for (number, &(from, bytes)) in changes.iter().enumerate() {
            let to = changes.get(number + 1).map_or(count, |(next, _)| *next);
            curves[group][from..to].iter_mut().for_each(|sum| *sum += bytes);
        }
    }
    curves
}

fn stack(picture: &Picture, pipeline_stage: &PipelineStagePicture, level: &Level) -> Markup {
    let outside = picture.outside_bytes;
    let columns = columns(picture, pipeline_stage);
    let mut under = vec![outside; columns.len()];
    let band = format!("M{LEFT} {}H{RIGHT}V{HEIGHT}H{LEFT}z", digits(level.y(outside)));
    let mut bands = vec![(OUTSIDE.name, band)];
    for (paint, curve) in GROUPS.iter().zip(curves(picture, pipeline_stage)) {
        let over: Vec<usize> = columns.iter().zip(&under).map(|((_, op), under)| under + curve[*op]).collect();
        if over != under {
            bands.push((paint.name, outline(&columns, &over, &under, level)));
        }
        under = over;
    }
    html! { @for (name, d) in bands { path fill=(format!("url(#{name})")) d=(d) {} } }
}

/// The outline of a band: its upper edge from left to right, and its lower edge back.
fn outline(columns: &[(f64, usize)], over: &[usize], under: &[usize], level: &Level) -> String {
    let end = |column: usize| columns.get(column + 1).map_or(RIGHT, |(x, _)| *x);
    let mut d = format!("M{LEFT} {}", digits(level.y(over[0])));
    let (mut upper, mut lower) = (over[0], *under.last().unwrap_or(&0));
    for column in 0..columns.len() {
        if over[column] != upper {
            upper = over[column];
            let _ = write!(d, "H{}V{}", digits(columns[column].0), digits(level.y(upper)));
        }
    }
    let _ = write!(d, "H{RIGHT}V{}", digits(level.y(lower)));
    for column in (0..columns.len()).rev() {
        if under[column] != lower {
            lower = under[column];
            let _ = write!(d, "H{}V{}", digits(end(column)), digits(level.y(lower)));
        }
    }
    d + &format!("H{LEFT}z")
}

/// Columns at least half a unit wide: the start of each, and its op. Of the ops in one column, the op that uses most
/// memory is drawn, so that no peak is lost.
fn columns(picture: &Picture, pipeline_stage: &PipelineStagePicture) -> Vec<(f64, usize)> {
    const LEAST: f64 = 0.5;
    let total: Vec<usize> =
        curves(picture, pipeline_stage).into_iter().fold(vec![0; pipeline_stage.ops.start.len()], |sum, curve| {
            sum.iter().zip(curve).map(|(a, b)| a + b).collect()
        });
    let mut columns: Vec<(f64, usize)> = Vec::new();
    for (op, (&start, &waited)) in pipeline_stage.ops.start.iter().zip(&pipeline_stage.ops.waited).enumerate() {
        let (from, to) = (x(picture, start - waited), x(picture, pipeline_stage.ops.end[op]));
        match columns.last_mut() {
            Some((last, shown)) if from < *last + LEAST => {
                if total[op] >= total[*shown] {
                    *shown = op;
                } else if to - from >= LEAST {
                    let late = *last + LEAST;
                    columns.push((late, op));
                }
            }
            _ => columns.push((from, op)),
        }
    }
    columns
}

fn limit(level: &Level, name: &str, bytes: usize, dashes: &str) -> Markup {
    let y = level.y(bytes);
    let width = if dashes == "none" { 2.0 } else { 1.2 };
    html! {
        path.line d=(format!("M{LEFT} {}H{RIGHT}", digits(y))) stroke-dasharray=(dashes) stroke-width=(width) {}
        (tag(LEFT + 6.0, y - 4.0, &format!("{name}: {}", Bytes(bytes))))
    }
}

/// Text on the background colour of the figure, so that it can be read over anything.
fn tag(x: f64, y: f64, text: &str) -> Markup {
    html! {
        rect.back x=(digits(x - 2.0)) y=(digits(y - 10.0)) width=(6.1 * text.len() as f64 + 4.0) height="13" {}
        text x=(digits(x)) y=(digits(y)) font-size="11" { (text) }
    }
}

fn marker(picture: &Picture, pipeline_stage: &PipelineStagePicture, level: &Level) -> Markup {
    let peak = &pipeline_stage.memory.peak;
    let bytes = picture.outside_bytes + peak.total_bytes;
    let at = (x(picture, pipeline_stage.ops.start[peak.op] - pipeline_stage.ops.waited[peak.op])
        + x(picture, pipeline_stage.ops.end[peak.op]))
        / 2.0;
    let text = format!("most in use: {}", Bytes(bytes));
    let left = (at + 8.0).min(RIGHT - 6.1 * text.len() as f64);
    html! {
        circle.dot cx=(digits(at)) cy=(digits(level.y(bytes))) r="4" {}
        (tag(left, level.y(bytes) + 15.0, &text))
    }
}
