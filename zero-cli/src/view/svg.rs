//! Svg: a plan as one figure for a page of text: mesh, schedule and memory, with their numbers as text. Never computes a number.

mod looks;
mod memory;
mod mesh;
mod timeline;

use maud::{Markup, PreEscaped, html};
use zero_plan::{Bytes, Class};
use zero_study::picture::{Picture, PipelineStagePicture, TimeAxis};
use zero_study::simulate::ShownTime;

use super::palette::{CLASSES, GROUPS, OUTSIDE, Paint, WAIT};

/// Width of the figure in its own units, which are pixels at its natural size.
const WIDTH: f64 = 960.0;
/// Where the time axis begins and ends.
const LEFT: f64 = 104.0;
const RIGHT: f64 = WIDTH - 12.0;
const MARGIN: f64 = 12.0;
/// Height of a line of text.
const LINE: f64 = 17.0;

/// A drawn part, and its height.
struct Block {
    height: f64,
    drawn: Markup,
}

/// The figure of a plan.
pub fn figure(picture: &Picture) -> String {
    let blocks = [
        head(picture),
        mesh::block(picture),
        legend(picture),
        timeline::block(picture),
        memory::block(picture),
        facts(picture),
    ];
    let height = blocks.iter().map(|block| block.height).sum::<f64>() + 2.0 * MARGIN;
    let mut y = MARGIN;
    let placed = blocks.map(|block| {
        let at = format!("translate(0 {y})");
        y += block.height;
        html! { g transform=(at) { (block.drawn) } }
    });
    // Most plans have no tier, and their figures do without its pattern.
    let has_tiers = picture.verbs.iter().any(|verb| verb.class == Class::Tier);
    let classes = CLASSES.iter().filter(|paint| has_tiers || paint.name != CLASSES[Class::Tier as usize].name);
    let paints = classes.chain(&GROUPS).chain([&WAIT, &OUTSIDE]);
    let figure = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height)
            fill=(looks::INK) font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12"
            role="img" aria-labelledby="title desc" {
            title id="title" { (picture.source.name) }
            desc id="desc" { (facts_of(picture).join(" ")) }
            style { (PreEscaped(looks::dark())) }
            defs { @for paint in paints { (pattern(paint)) } }
            rect.back width="100%" height="100%" {}
            @for block in placed { (block) }
        }
    };
    looks::attributed(&figure.into_string()) + "\n"
}

/// A tile of a pattern, for fills.
fn pattern(paint: &Paint) -> Markup {
    let d: String = paint.strokes.iter().map(|[x0, y0, x1, y1]| format!("M{x0} {y0}L{x1} {y1}")).collect();
    let stroke = if paint.fill.is_some() { "shade" } else { "edge" };
    html! {
        pattern id=(paint.name) width="8" height="8" patternUnits="userSpaceOnUse" {
            @if let Some(fill) = paint.fill { rect width="8" height="8" fill=(fill) {} }
            @if !d.is_empty() { path class=(stroke) d=(d) {} }
        }
    }
}

fn head(picture: &Picture) -> Block {
    let drawn = html! {
        text.title x=(MARGIN) y="16" { (picture.source.name) }
        @for (number, line) in picture.summary.iter().enumerate() {
            text.soft x=(MARGIN) y=(34.0 + LINE * number as f64) { (line) }
        }
    };
    Block { height: 34.0 + LINE * picture.summary.len() as f64, drawn }
}

/// The legend of the colours that occur in the schedule.
fn legend(picture: &Picture) -> Block {
    let is_there = |paint: &&Paint| {
        let mut classes = picture.verbs.iter().map(|verb| CLASSES[verb.class as usize].name);
        paint.name == WAIT.name || classes.any(|name| name == paint.name)
    };
    keys(CLASSES.iter().chain([&WAIT]).filter(is_there).copied().collect())
}

/// Patches with their words, in as many lines as they need.
fn keys(paints: Vec<Paint>) -> Block {
    let (mut x, mut y) = (MARGIN, 4.0);
    let mut places = Vec::new();
    for paint in paints {
        let width = 38.0 + 6.2 * paint.words.len() as f64;
        if x + width > RIGHT {
            (x, y) = (MARGIN, y + LINE);
        }
        places.push((x, y, paint));
        x += width;
    }
    let drawn = html! {
        @for (x, y, paint) in places {
            rect.edge x=(x) y=(y) width="20" height="11" fill=(format!("url(#{})", paint.name)) {}
            text.soft x=(x + 25.0) y=(y + 9.5) { (paint.words) }
        }
    };
    Block { height: y + LINE + 4.0, drawn }
}

/// The main figures of a plan, in lines of text.
fn facts(picture: &Picture) -> Block {
    let lines = facts_of(picture);
    let drawn = html! {
        @for (number, line) in lines.iter().enumerate() {
            text x=(MARGIN) y=(LINE * (number + 1) as f64) { (line) }
        }
    };
    Block { height: LINE * (lines.len() + 1) as f64, drawn }
}

fn facts_of(picture: &Picture) -> Vec<String> {
    let (number, pipeline_stage) = fullest(picture);
    let whose = if picture.pipeline_stages.len() > 1 { format!(" of pipeline stage {number}") } else { String::new() };
    let sent: Vec<String> = pipeline_stage.traffic.iter().filter(|part| part.bytes > 0).map(sent).collect();
    let all: usize = pipeline_stage.traffic.iter().map(|part| part.bytes).sum();
    let step = match (&picture.hardware, picture.clock) {
        (Some(hardware), _) => format!("A step: {}, predicted for {hardware}.", clocked(picture, picture.end)),
        _ => format!("A step: {} of computation; communication takes no time here.", clocked(picture, picture.end)),
    };
    let mut lines = vec![step];
    let arena = pipeline_stage.memory.arena_bytes;
    lines.push(format!(
        "A rank{whose} takes {}: an arena of {}, and at most {} outside of it.",
        Bytes(arena + picture.outside_bytes),
        Bytes(arena),
        Bytes(picture.outside_bytes),
    ));
    lines.extend(wrapped(format!("It sends {} in a step: ", Bytes(all)), sent));
    lines
}

fn sent(part: &zero_study::picture::TrafficPart) -> String {
    let along = part.axis.map_or_else(String::new, |axis| format!(" along {axis}"));
    format!("{} {}{along}", part.name, Bytes(part.bytes))
}

/// `pieces` after `head`, separated by commas and ended by a full stop, in lines that fit.
fn wrapped(head: String, pieces: Vec<String>) -> Vec<String> {
    const CHARS: usize = 145;
    let (mut lines, last) = (vec![head], pieces.len().saturating_sub(1));
    for (number, piece) in pieces.into_iter().enumerate() {
        let piece = format!("{piece}{}", if number == last { "." } else { ", " });
        match lines.last_mut() {
            Some(line) if line.len() + piece.len() <= CHARS => line.push_str(&piece),
            _ => lines.push(format!("    {piece}")),
        }
    }
    lines
}

/// The pipeline stage whose ranks use the most memory.
fn fullest(picture: &Picture) -> (usize, &PipelineStagePicture) {
    let pipeline_stages = picture.pipeline_stages.iter().enumerate().rev();
    pipeline_stages
        .max_by_key(|(_, pipeline_stage)| pipeline_stage.memory.arena_bytes)
        .expect("a plan has a pipeline stage")
}

/// A time on the clock of a picture.
fn clocked(picture: &Picture, ticks: u64) -> String {
    match picture.clock {
        TimeAxis::Nanoseconds => ShownTime(ticks as f64 * 1e-9).to_string(),
        TimeAxis::Operations => format!("{} operations", scaled(ticks as f64)),
    }
}

/// A number with the prefix that suits it.
fn scaled(mut number: f64) -> String {
    let mut prefixes = ["", " k", " M", " G", " T", " P"].into_iter();
    let mut prefix = prefixes.next();
    while number >= 1000.0
        && let Some(next) = prefixes.next()
    {
        (number, prefix) = (number / 1000.0, Some(next));
    }
    let text = format!("{number:.2}");
    format!("{}{}", text.trim_end_matches('0').trim_end_matches('.'), prefix.unwrap_or_default())
}

/// The position of a time on its axis.
fn x(picture: &Picture, time: u64) -> f64 {
    LEFT + (RIGHT - LEFT) * time as f64 / picture.end.max(1) as f64
}

/// A coordinate with as many digits as can be seen.
fn digits(place: f64) -> String {
    let text = format!("{place:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Round numbers from 0 to `end`, at most `most` numbers beside 0.
fn ticks(end: f64, most: f64) -> Vec<f64> {
    let rough = (end / most).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&step| step >= rough);
    let step = step.unwrap_or(rough);
    (0..).map(|number| f64::from(number) * step).take_while(|&at| at <= end).collect()
}
