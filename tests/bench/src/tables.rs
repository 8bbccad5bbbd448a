//! Tables: the measurements as Markdown. Computes only what a cell needs.

use crate::checkpoints;
use crate::claims::{self, Claim, size};
use crate::collectives::{BYTES, Collective};
use crate::figures::{Measured, collective, ours, peak, peers, product, step};
use crate::figures::{Round, Spread};
use crate::flop::SIDE;
use crate::models::{ROWS, Row};
use crate::rounds::WIDTHS;

/// Prints all tables. Returns what falls short of its bound, in the median.
pub fn print(measured: &Measured) -> Vec<String> {
    let Measured { peer, rounds } = measured;
    if let Some(peer) = peer {
        println!("peer: {peer}");
    }
    println!("rounds: {}; medians, least and most over them\n", rounds.len());
    let has_peer = peer.is_some();
    table(
        &["ours", "ranks", "threads", "step, s", "peak MB a rank", "arena MB"],
        &["peer", "step, s", "peak MB", "peer / ours"],
        has_peer,
        ROWS.iter().filter_map(|row| step_row(row, rounds, has_peer)).collect(),
    );
    table(
        &["product of matrices of", "rows", "ours, ms"],
        &["peer's, ms", "peer's / ours"],
        has_peer,
        WIDTHS.iter().filter_map(|width| product_row(width.name(), rounds, has_peer)).collect(),
    );
    let each = BYTES.iter().flat_map(|&bytes| Collective::ALL.map(|one| (one, bytes)));
    table(
        &["collective of 2 ranks", "buffer", "ours, us"],
        &["gloo's", "us", "gloo's / ours"],
        has_peer,
        each.filter_map(|(one, bytes)| collective_row(one, bytes, rounds, has_peer)).collect(),
    );
    table(&["checkpoint", "median", "least to most"], &[], false, checkpoints::table(measured));
    let (claims, short) = claims_of(claims::all(), rounds);
    table(&["what", "median", "least to most", "bound", "aim"], &[], false, claims);
    short
}

/// The rows of the claims that were measured, and those of them that fall short of their bounds.
fn claims_of(claims: Vec<Claim>, rounds: &[Round]) -> (Vec<Vec<String>>, Vec<String>) {
    let mut short = Vec::new();
    let row = |claim: Claim| {
        let spread = Spread::over(rounds, &claim.value)?;
        let median = format!("{:.*}", claim.digits, spread.median);
        let mut bound = claim.bound.map(|bound| bound.to_string()).unwrap_or_default();
        if claim.bound.is_some_and(|bound| !bound.is_kept_by(spread.median)) {
            short.push(format!("{}: {median}, {bound}", claim.what));
            bound += ": FALLS SHORT";
        }
        let aim = claim.bound.and_then(|bound| bound.aim()).map(|aim| aim.to_string()).unwrap_or_default();
        Some(vec![claim.what, median, range(spread, claim.digits), bound, aim])
    };
    (claims.into_iter().filter_map(row).collect(), short)
}

fn step_row(row: &Row, rounds: &[Round], has_peer: bool) -> Option<Vec<String>> {
    let seconds = |name: String| Some(cell(Spread::over(rounds, |round| round.get(&name))?, 4));
    let megabytes = |name: String| Some(format!("{:.0}", Spread::over(rounds, |round| round.get(&name))?.median / 1e6));
    let (step, peak) = (step(row.ours), peak(row.ours));
    let arena_mb = row.plan.bytes_per_rank_max() as f64 / 1e6;
    let mut cells = vec![
        row.ours.into(),
        row.ranks().to_string(),
        row.threads.to_string(),
        seconds(ours(&step))?,
        megabytes(ours(&peak))?,
        format!("{arena_mb:.0}"),
    ];
    match &row.peer {
        Some(mode) if has_peer => {
            let ratio = Spread::over(rounds, |round| round.ratio(&peers(&step), &ours(&step)))?;
            cells.extend([mode.to_string(), seconds(peers(&step))?, megabytes(peers(&peak))?, cell(ratio, 2)]);
        }
        None if has_peer => cells.extend([""; 4].map(str::to_owned)),
        _ => {}
    }
    Some(cells)
}

fn product_row(width: &str, rounds: &[Round], has_peer: bool) -> Option<Vec<String>> {
    let (ours, peers) = (ours(&product(width)), peers(&product(width)));
    let ms = |name: &str| Some(cell(Spread::over(rounds, |round| Some(1e3 * round.get(name)?))?, 2));
    let mut cells = vec![width.to_owned(), SIDE.to_string(), ms(&ours)?];
    if has_peer {
        cells.extend([ms(&peers)?, cell(Spread::over(rounds, |round| round.ratio(&peers, &ours))?, 2)]);
    }
    Some(cells)
}

fn collective_row(one: Collective, bytes: usize, rounds: &[Round], has_peer: bool) -> Option<Vec<String>> {
    let (ours, peers) = (ours(&collective(one.name(), bytes)), peers(&collective(one.of_peer(), bytes)));
    let us = |name: &str| Some(cell(Spread::over(rounds, |round| Some(1e6 * round.get(name)?))?, 1));
    let mut cells = vec![one.name().into(), size(bytes), us(&ours)?];
    if has_peer {
        let ratio = Spread::over(rounds, |round| round.ratio(&peers, &ours))?;
        cells.extend([one.of_peer().into(), us(&peers)?, cell(ratio, 1)]);
    }
    Some(cells)
}

/// Median and range.
fn cell(spread: Spread, digits: usize) -> String {
    format!("{:.digits$} ({})", spread.median, range(spread, digits))
}

fn range(spread: Spread, digits: usize) -> String {
    format!("{:.digits$} to {:.digits$}", spread.least, spread.most)
}

/// Prints a table, unless it has no rows.
fn table(heads: &[&str], peer_heads: &[&str], has_peer: bool, rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let heads: Vec<_> = heads.iter().chain(if has_peer { peer_heads } else { &[] }).copied().collect();
    println!("| {} |\n|{}", heads.join(" | "), "---|".repeat(heads.len()));
    rows.iter().for_each(|cells| println!("| {} |", cells.join(" | ")));
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Bound;

    #[test]
    fn a_median_beyond_its_bound_is_marked() {
        let figure = |what: &str, bound| Claim {
            what: what.to_owned(),
            value: Box::new(|round| round.get("figure")),
            digits: 2,
            bound: Some(bound),
        };
        let rounds = [0.8, 0.92, 2.0].map(|value| {
            let mut round = Round::default();
            round.put("figure", value);
            round
        });
        let claims = vec![
            figure("kept", Bound::AtLeast(0.92)),
            figure("less", Bound::AtLeastAndAim(0.93, 1.5)),
            figure("more", Bound::AtMostAndAim(0.91, 0.5)),
        ];
        let (rows, short) = claims_of(claims, &rounds);
        assert_eq!(short, ["less: 0.92, at least 0.93", "more: 0.92, at most 0.91"]);
        let bounds: Vec<&str> = rows.iter().map(|row| row[3].as_str()).collect();
        assert_eq!(bounds, ["at least 0.92", "at least 0.93: FALLS SHORT", "at most 0.91: FALLS SHORT"]);
    }
}
