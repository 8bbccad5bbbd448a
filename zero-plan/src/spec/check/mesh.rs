//! Mesh: whether ranks and nodes multiply out (Z0111), and whether the axes that must fit in a node do (Z0112).

use super::super::MeshKeys;
use super::super::locate::{KeySpans, items};
use super::effect::within_one_node;
use super::{CheckedSpec, Rule};
use crate::config::Config;
use crate::diagnostic::Diagnostic;
use crate::mesh::Axis;

/// In order: first the number of nodes, then the axes on them.
pub const RULES: &[Rule] = &[
    Rule { reads: NODES, find: multiplies_out },
    Rule { reads: WITHIN_NODE, find: within_one_node },
    Rule { reads: WITHIN_NODE, find: crosses_nodes },
    Rule { reads: DIRECTIONS, find: directions_between_hosts },
];

const NODES: &[&str] = &["mesh.nodes", "mesh.ranks_per_node", "mesh.replica", "mesh.pipeline", "mesh.zero"];
const WITHIN_NODE: &[&str] = &["mesh"];
const DIRECTIONS: &[&str] = &["mesh", "zero.stage", "device", "transport", "optimizer"];

fn multiplies_out(subject: &CheckedSpec) -> Option<Diagnostic> {
    let mesh = &subject.spec.mesh;
    let ranks = mesh.ranks();
    let axes = format!("replica {} x pipeline {} x zero {}", mesh.replica, mesh.pipeline, mesh.zero);
    let (path, why, label, help) = match (mesh.nodes.map(u64::from), mesh.ranks_per_node.map(u64::from)) {
        (Some(nodes), Some(per_node)) if nodes * per_node != ranks => (
            "mesh.nodes",
            format!(
                "{} x {} are {}, but {axes} are {ranks}",
                count(nodes, "node"),
                rank(per_node),
                rank(nodes * per_node)
            ),
            format!("expected {} on all nodes, found {}", rank(ranks), nodes * per_node),
            fix(subject, nodes, per_node),
        ),
        (Some(nodes), None) if !ranks.is_multiple_of(nodes) => (
            "mesh.nodes",
            format!("{axes} are {}, which {} cannot share equally", rank(ranks), count(nodes, "node")),
            format!("expected a divisor of {ranks}"),
            format!("with {}, each has equally many", nearest(ranks, nodes, "node")),
        ),
        (None, Some(per_node)) if !ranks.is_multiple_of(per_node) => (
            "mesh.ranks_per_node",
            format!("{axes} are {}, which do not fill nodes of {}", rank(ranks), rank(per_node)),
            format!("expected a divisor of {ranks}"),
            format!("with {} per node, all nodes are full", nearest(ranks, per_node, "rank")),
        ),
        _ => return None,
    };
    let problem = Diagnostic::new("Z0111", path, format!("the mesh does not multiply out: {why}"));
    Some(problem.at(subject.given(path)?.value, label).help(help))
}

/// The help for a pair of values of which either may be wrong.
fn fix(subject: &CheckedSpec, nodes: u64, per_node: u64) -> String {
    let ranks = subject.spec.mesh.ranks();
    let change = |path, other: u64| {
        let possible = ranks.is_multiple_of(other);
        possible.then(|| format!("set `{}` to {}", subject.name(path), ranks / other))
    };
    let changes: Vec<_> =
        [change("mesh.nodes", per_node), change("mesh.ranks_per_node", nodes)].into_iter().flatten().collect();
    let axes = format!("change the axes so that they multiply to {}", nodes * per_node);
    changes.into_iter().chain([axes]).collect::<Vec<_>>().join(", or ")
}

/// The axes that must stay within a node come first in the order of ranks. So they stay there if the product of their
/// lengths divides a node's ranks; otherwise a node ends in the middle of them.
fn crosses_nodes(subject: &CheckedSpec) -> Option<Diagnostic> {
    let mesh = &subject.spec.mesh;
    let path = "mesh.within_node";
    let grid = mesh.grid();
    let index = mesh.within_node.iter().position(|axis| grid.crosses_nodes(*axis))?;
    let KeySpans { value, .. } = subject.given(path)?;
    let span = items(subject.report.text, &value).get(index).cloned().unwrap_or(value);
    let axis = mesh.within_node[index].name();
    let per_node = rank(mesh.ranks_per_node());
    let problem = Diagnostic::new("Z0112", path, format!("`{axis}` cannot stay within a node: {}", lengths(mesh)));
    let help = format!(
        "let the lengths of the axes in `{}` multiply to a divisor of {}, or remove `{:?}` from it",
        subject.name(path),
        mesh.ranks_per_node(),
        mesh.within_node[index],
    );
    Some(problem.at(span, format!("crosses nodes of {per_node}")).help(help))
}

/// Directions of matrices are spread after the last op in which ranks of several hosts wait for their sends.
fn directions_between_hosts(subject: &CheckedSpec) -> Option<Diagnostic> {
    let (spec, path) = (subject.spec, "optimizer");
    let config = Config {
        mesh: spec.mesh.grid(),
        stage: spec.zero.stage.get(),
        transport: spec.transport(),
        optimizer: spec.optimizer,
        ..Config::PLAIN
    };
    if !config.sends_directions() {
        return None;
    }
    let (name, of, zero) = (subject.name(path), subject.name("transport"), subject.name("mesh.zero"));
    let message =
        format!("`{name}` is {:?}, which `{of}` Cluster cannot do for shards on several hosts", spec.optimizer);
    let label = format!("at stage {} it needs whole matrices, and ranks along `zero` cross hosts", config.stage);
    let problem = Diagnostic::new("Z0114", path, message).at(subject.given(path)?.value, label);
    let help = format!(
        "let `{zero}` lie within a node, with `{}` across nodes; or choose stage 0, or remove `{name}`",
        subject.name("mesh.replica")
    );
    Some(problem.help(help))
}

/// "zero 8 are 8 ranks", or "zero 2 x replica 4 are 8 ranks", and the ranks of a node.
fn lengths(mesh: &MeshKeys) -> String {
    let inside = || Axis::ALL.into_iter().filter(|axis| mesh.within_node.contains(axis));
    let product: u64 = inside().map(|axis| u64::from(mesh.len(axis))).product();
    let factors: Vec<_> = inside().map(|axis| format!("{} {}", axis.name(), mesh.len(axis))).collect();
    let per_node = mesh.ranks_per_node();
    let why = if product > per_node { "a node has" } else { "which does not divide a node's" };
    match &factors[..] {
        [_] => format!("it has {}, {why} {per_node}", rank(product)),
        _ => format!("{} are {}, {why} {per_node}", factors.join(" x "), rank(product)),
    }
}

/// "1 rank", "2 ranks".
fn rank(ranks: u64) -> String {
    count(ranks, "rank")
}

fn count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The divisors of `ranks` next to `found`, as a choice.
fn nearest(ranks: u64, found: u64, what: &str) -> String {
    let below = (1..found).rev().find(|divisor| ranks.is_multiple_of(*divisor));
    let above = (found..=ranks).find(|divisor| ranks.is_multiple_of(*divisor));
    match (below, above) {
        (Some(below), Some(above)) => format!("{below} or {}", count(above, what)),
        (one, other) => count(one.or(other).unwrap_or(1), what),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{codes, one};
    use super::*;

    #[test]
    fn z0111_mesh_does_not_multiply_out() {
        let text =
            "(zero: (stage: 3), mesh: (nodes: 2, ranks_per_node: 4, pipeline: 2, zero: 2), batch: (micro_batches: 2))";
        let message = "the mesh does not multiply out: 2 nodes x 4 ranks are 8 ranks, \
            but replica 1 x pipeline 2 x zero 2 are 4";
        let problem = one(text, "Z0111", (1, 34), message, "expected 4 ranks on all nodes, found 8");
        let help = "set `mesh.nodes` to 1, or set `mesh.ranks_per_node` to 2, \
            or change the axes so that they multiply to 8";
        assert_eq!(problem.help.as_deref(), Some(help));
        assert_eq!(codes(&text.replace("zero: 2)", "zero: 4)")), [""; 0]);
    }

    #[test]
    fn z0111_nodes_or_ranks_per_node_alone() {
        let text = "(zero: (stage: 3), mesh: (nodes: 3, zero: 8))";
        let message = "the mesh does not multiply out: replica 1 x pipeline 1 x zero 8 are 8 ranks, \
            which 3 nodes cannot share equally";
        let problem = one(text, "Z0111", (1, 34), message, "expected a divisor of 8");
        assert_eq!(problem.help.as_deref(), Some("with 2 or 4 nodes, each has equally many"));
        let text = "(zero: (stage: 3), mesh: (ranks_per_node: 16, zero: 8))";
        let message = "the mesh does not multiply out: replica 1 x pipeline 1 x zero 8 are 8 ranks, \
            which do not fill nodes of 16 ranks";
        let problem = one(text, "Z0111", (1, 43), message, "expected a divisor of 8");
        assert_eq!(problem.help.as_deref(), Some("with 8 ranks per node, all nodes are full"));
        for fine in ["nodes: 4", "ranks_per_node: 2", "nodes: 8, ranks_per_node: 1"] {
            assert_eq!(codes(&format!("(zero: (stage: 3), mesh: ({fine}, zero: 8))")), [""; 0], "{fine}");
        }
    }

    #[test]
    fn z0112_axis_crosses_nodes() {
        let text = "(zero: (stage: 3), mesh: (ranks_per_node: 4, zero: 8, within_node: [Zero]))";
        let message = "`zero` cannot stay within a node: it has 8 ranks, a node has 4";
        one(text, "Z0112", (1, 69), message, "crosses nodes of 4 ranks");
        let text = "(zero: (stage: 3), mesh: (nodes: 2, replica: 4, zero: 2, within_node: [Zero, Replica]))";
        let message = "`replica` cannot stay within a node: zero 2 x replica 4 are 8 ranks, a node has 4";
        let problem = one(text, "Z0112", (1, 78), message, "crosses nodes of 4 ranks");
        let help = "let the lengths of the axes in `mesh.within_node` multiply to a divisor of 4, \
            or remove `Replica` from it";
        assert_eq!(problem.help.as_deref(), Some(help));
        let text = "(zero: (stage: 3), mesh: (nodes: 3, replica: 4, zero: 3, within_node: [Zero]))";
        let message = "`zero` cannot stay within a node: it has 3 ranks, which does not divide a node's 4";
        one(text, "Z0112", (1, 72), message, "crosses nodes of 4 ranks");
        let fits = "(zero: (stage: 3), mesh: (nodes: 2, replica: 2, zero: 4, within_node: [Zero]))";
        assert_eq!(codes(fits), [""; 0]);
    }

    #[test]
    fn z0114_muon_does_not_send_directions_from_host_to_host() {
        let text = "(zero: (stage: 2), mesh: (nodes: 2, zero: 4), transport: Cluster, optimizer: Muon)";
        let message = "`optimizer` is Muon, which `transport` Cluster cannot do for shards on several hosts";
        let label = "at stage 2 it needs whole matrices, and ranks along `zero` cross hosts";
        let problem = one(text, "Z0114", (1, 78), message, label);
        let help = "let `mesh.zero` lie within a node, with `mesh.replica` across nodes; or choose stage 0, or remove \
            `optimizer`";
        assert_eq!(problem.help.as_deref(), Some(help));
        for fine in [
            text.replace("stage: 2", "stage: 0"),
            text.replace("nodes: 2", "nodes: 1"),
            text.replace("zero: 4", "zero: 2, replica: 2"),
            text.replace("Muon", "AdamW"),
            text.replace("Cluster", "Nccl, device: Cuda"),
        ] {
            assert_eq!(codes(&fine), [""; 0], "{fine}");
        }
    }

    /// The claim in the comment of [`crosses_nodes`], for all meshes of up to 24 ranks.
    #[test]
    fn axes_stay_within_a_node_where_their_product_divides_it() {
        let lens =
            || (1..=24_u32).flat_map(|a| (1..=24 / a).flat_map(move |b| (1..=24 / a / b).map(move |c| (a, b, c))));
        for (zero, replica, pipeline) in lens() {
            for within_node in [&[Axis::Zero][..], &[Axis::Pipeline], &[Axis::Zero, Axis::Pipeline], &Axis::ALL] {
                let ranks = zero * replica * pipeline;
                for nodes in (1..=ranks).filter(|nodes| ranks.is_multiple_of(*nodes)) {
                    let within_node = within_node.to_vec();
                    let mesh =
                        MeshKeys { nodes: Some(nodes), ranks_per_node: None, replica, pipeline, zero, within_node };
                    let product: u32 = mesh.within_node.iter().map(|axis| mesh.len(*axis)).product();
                    let crosses = mesh.within_node.iter().any(|axis| mesh.grid().crosses_nodes(*axis));
                    assert_eq!(crosses, !mesh.ranks_per_node().is_multiple_of(product.into()), "{mesh:?}");
                }
            }
        }
    }
}
