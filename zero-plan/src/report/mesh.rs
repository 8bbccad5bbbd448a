//! Mesh: the place of each rank. Knows nothing about what ranks do.

use super::{counted, long_axes};
use crate::mesh::{Axis, Coordinates, Mesh};
use crate::plan::Plan;

/// The most lines for places of ranks.
const PLACES: usize = 16;

/// The lines of the mesh; empty if ranks differ in one axis only and lie on one node.
pub fn lines(plan: &Plan) -> Vec<String> {
    let mesh = &plan.config.mesh;
    let axes = long_axes(&plan.config);
    if axes.len() < 2 && mesh.nodes == 1 {
        return Vec::new();
    }
    let nodes =
        format!("{} x {}", counted(mesh.nodes, "node", "nodes"), counted(mesh.ranks_per_node(), "rank", "ranks"));
    let reach = |axis| if mesh.nodes > 1 { format!(" {}", reach(mesh, axis)) } else { String::new() };
    let axis = |&axis: &Axis| format!("{} {}{}", axis.name(), mesh.len(axis), reach(axis));
    let mut lines = vec![format!("mesh: {nodes}; {}", axes.iter().map(axis).collect::<Vec<_>>().join(", "))];
    if axes.len() > 1 {
        lines.push(numbering(mesh, &axes));
        lines.extend(places(mesh, &axes));
    }
    lines
}

/// Whether an axis crosses nodes, in words.
pub fn reach(mesh: &Mesh, axis: Axis) -> &'static str {
    if mesh.crosses_nodes(axis) { "across nodes" } else { "within a node" }
}

/// How a rank's number follows from its coordinates.
fn numbering(mesh: &Mesh, axes: &[Axis]) -> String {
    let term = |&axis: &Axis| {
        let is_it = |other: Axis| (axis == other) as usize;
        let one_along =
            Coordinates { zero: is_it(Axis::Zero), replica: is_it(Axis::Replica), pipeline: is_it(Axis::Pipeline) };
        match mesh.rank(one_along) {
            1 => axis.name().to_owned(),
            stride => format!("{stride} {}", axis.name()),
        }
    };
    format!("  rank = {}", axes.iter().map(term).collect::<Vec<_>>().join(" + "))
}

/// A line for each run of ranks that differ only in the first axis or, if those would be too many lines, only in the
/// first few.
fn places(mesh: &Mesh, axes: &[Axis]) -> Vec<String> {
    let mut together = 1;
    for &axis in axes {
        together *= mesh.len(axis);
        if mesh.ranks() / together <= PLACES {
            break;
        }
    }
    let mut lines = vec![format!("  {:<10}{:<8}", "ranks", "node")];
    axes.iter().for_each(|axis| lines[0] += &format!("{:<10}", axis.name()));
    for first in (0..mesh.ranks()).step_by(together) {
        let last = first + together - 1;
        let mut line = format!("  {:<10}{:<8}", span(first, last), span(mesh.node(first), mesh.node(last)));
        let (from, to) = (mesh.coordinates(first), mesh.coordinates(last));
        for &axis in axes {
            line += &format!("{:<10}", span(from.along(axis), to.along(axis)));
        }
        lines.push(line);
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn span(first: usize, last: usize) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}
