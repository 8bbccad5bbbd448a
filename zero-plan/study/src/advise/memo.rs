//! Memo: the answer as a page that a colleague can check and sign: memory by stage with its formula, traffic and the
//! part of it that is exposed, the choice, and what would change it. Never chooses.

use core::fmt::Write;

use zero_plan::spec::Size;
use zero_plan::states::StateBytes;
use zero_plan::{Bytes, Kind};

use super::candidate::sketch;
use super::explain::{Advice, Pick, advise};
use super::question::{Effort, Question};
use super::space::with_nodes;
use super::text::{BATCH, cost, decision, rivals, searched, time};
use crate::hardware::{Hardware, Processor};
use crate::simulate::{BETTER, compute_faster};

/// The effort for each change of machines in the memo.
const LESS: Effort = Effort { plans: 300 };

/// The memo, as Markdown. It asks the question again for faster machines, smaller machines, and more machines.
pub fn memo(question: &Question, advice: &Advice) -> String {
    let pick = &advice.picks[0];
    let mut text = head(question, pick);
    text += &memory(question, advice, pick);
    text += &traffic(pick);
    let _ = writeln!(text, "\n## The decision\n");
    for line in decision(question, advice) {
        let _ = writeln!(text, "- {line}");
    }
    let _ = writeln!(
        text,
        "\nWhat each other choice would cost, in the best layout that has it, with a pipeline or without:\n"
    );
    for line in rivals(advice) {
        let _ = writeln!(text, "- {}", line.trim_start());
    }
    let _ = writeln!(text, "\n## What would change it\n\n| if | then | for a token |\n|---|---|---|");
    for (what, hardware, nodes) in changes(question) {
        let _ = writeln!(text, "| {what} | {} |", changed(question, pick, &hardware, nodes));
    }
    let spec = pick.candidate.text(question, &[]);
    let _ = writeln!(
        text,
        "\n## The spec\n\n```ron\n{spec}```\n\nTimes are simulated, from counted bytes and operations and the"
    );
    let _ = writeln!(
        text,
        "figures of the hardware file; {}. Of this answer: {}.",
        trust(question),
        searched(question, advice)
    );
    text
}

/// How close simulated times are known to be to measured ones.
fn trust(question: &Question) -> &'static str {
    let Hardware { device, measured, .. } = question.hardware;
    match (device.kind, measured.is_empty()) {
        (_, false) => "the times of units of some models were measured there",
        (Processor::Gpu, true) => {
            "none was measured; compared with published figures, tokens a second are 0.9 to 1.3 times those of FSDP on A100s, \
             and up to twice those of other runs"
        }
        (Processor::Cpu, true) => "none was measured",
    }
}

fn head(question: &Question, pick: &Pick) -> String {
    let devices = question.nodes * question.hardware.node.devices;
    let params = params(question, pick);
    format!(
        "# {} ({:.1} billion parameters) on {} x {}\n\n**Take {}.** A step of {} tokens takes {}, which is {:.0} tokens/s on \
         {devices} devices and an MFU of {:.1} %; a rank needs {} of {}.\n",
        question.name,
        params as f64 / 1e9,
        question.nodes,
        question.hardware.name,
        sketch(&pick.candidate),
        pick.tokens,
        time(pick.step_s),
        pick.tokens_per_s,
        pick.mfu * 100.0,
        Bytes(pick.need.bytes),
        Bytes(pick.budget_bytes),
    )
}

fn params(question: &Question, pick: &Pick) -> usize {
    let units = (question.units)(pick.candidate.precision.compute, pick.candidate.sequences).unwrap_or_default();
    units.iter().map(|unit| unit.params).sum()
}

/// Memory by stage, with the formula and its numbers.
fn memory(question: &Question, advice: &Advice, pick: &Pick) -> String {
    let (params, ranks) = (params(question, pick), question.nodes * question.hardware.node.devices);
    let of = StateBytes::of_param(&pick.candidate.precision);
    let StateBytes { params_bytes: p, gradients_bytes: g, optimizer_bytes: k } = of;
    let mut text = format!(
        "\n## Memory\n\nA parameter takes {p} bytes, its gradient {g}, its optimizer state {k}. With Ψ = {:.3} billion parameters \
         and N = {ranks} ranks that share (ZeRO paper, table 1), for a rank:\n\n\
         | stage | formula | parameters | gradients | optimizer | sum | without a pipeline, with micro-batches, at least | of {} |\n\
         |---|---|---|---|---|---|---|---|\n",
        params as f64 / 1e9,
        Bytes(pick.budget_bytes),
    );
    for stage in &advice.stages {
        let share =
            |bytes: usize, from: u8| if stage.stage >= from { format!("{bytes}Ψ/N") } else { format!("{bytes}Ψ") };
        let formula = [share(p, 3), share(g, 2), share(k, 1)].join(" + ");
        let StateBytes { params_bytes, gradients_bytes, optimizer_bytes } = stage.states;
        let cells = [params_bytes, gradients_bytes, optimizer_bytes, stage.states.total()];
        let cells = cells.map(|bytes| Bytes(bytes).to_string()).join(" | ");
        let least = stage.least_bytes.map_or("not tried".to_owned(), |bytes| Bytes(bytes).to_string());
        let fits = if stage.fits { "fits" } else { "does not fit" };
        let _ = writeln!(text, "| {} | {formula} | {cells} | {least} | {fits} |", stage.stage);
    }
    let _ = writeln!(
        text,
        "\nThe arena of the choice, in which everything has a fixed place:\n\n| region | size |\n|---|---|"
    );
    for kind in Kind::ALL {
        let bytes = pick.need.memory.region(kind).bytes;
        if bytes > 0 {
            let _ = writeln!(text, "| {} | {} |", kind.name(), Bytes(bytes));
        }
    }
    let batch = pick.need.of_kinds(&BATCH);
    let _ = writeln!(text, "\nMicro-batches take {} of the arena, and no ZeRO stage reduces this part.", Bytes(batch));
    text
}

fn traffic(pick: &Pick) -> String {
    let mut text = String::from("\n## Traffic and time\n\n");
    if pick.sent.is_empty() {
        text += "Nothing travels.\n";
        return text;
    }
    text += "Communication takes bytes over bandwidth, plus latencies; the part that computation hides costs nothing.\n\n\
             | what | on | a rank sends | over the link | bytes / bandwidth | with latencies | of it exposed |\n\
             |---|---|---|---|---|---|---|\n";
    for (at, sent) in pick.sent.iter().enumerate() {
        let (flow, link) = (sent.flow.name(), sent.link.name());
        // On the first of its links, because all together carry it.
        let is_first = !pick.sent[..at].iter().any(|other| other.flow == sent.flow);
        let all = pick.flows.iter().find(|all| all.flow == sent.flow && is_first);
        let _ = writeln!(
            text,
            "| {flow} | {link} | {} | {} | {} | {} | {} |",
            all.map_or(String::new(), |all| Bytes(all.bytes).to_string()),
            Bytes(sent.bytes),
            time(sent.busy_s),
            time(sent.link_s),
            time(sent.exposed_s)
        );
    }
    let _ = writeln!(
        text,
        "\nOf a step of {}, a rank works {} and waits {} for other pipeline stages.",
        time(pick.step_s),
        time(pick.compute_s),
        time(pick.bubble_s)
    );
    text
}

/// Other machines to ask about.
fn changes(question: &Question) -> Vec<(&'static str, Hardware, usize)> {
    let (mut rates, mut links, mut memory) =
        (question.hardware.clone(), question.hardware.clone(), question.hardware.clone());
    compute_faster(&mut rates);
    if let Some(link) = &mut links.node.link {
        link.bandwidth *= BETTER;
    }
    if let Some(network) = &mut links.network {
        network.bandwidth *= BETTER;
    }
    memory.device.memory = Size::B(memory.device.memory.bytes() / 2);
    let has_links = question.hardware.node.link.is_some() || question.hardware.network.is_some();
    let mut all = vec![("computation were 10 % faster", rates, question.nodes)];
    all.extend(has_links.then_some(("all links were 10 % faster", links, question.nodes)));
    all.push(("devices had half the memory", memory, question.nodes));
    if question.hardware.network.is_some() {
        all.push(("there were twice the nodes", question.hardware.clone(), 2 * question.nodes));
    }
    all
}

/// The answer for other machines, and how much longer or shorter a token would take.
fn changed(question: &Question, pick: &Pick, hardware: &Hardware, nodes: usize) -> String {
    let other = Question { hardware, effort: LESS, ..with_nodes(question, nodes) };
    match advise(&other) {
        Ok(advice) => {
            let best = &advice.picks[0];
            let now = (best.step_s / best.tokens as f64) / (pick.step_s / pick.tokens as f64);
            let is_same = sketch(&best.candidate) == sketch(&pick.candidate);
            let then = if is_same { "the same".to_owned() } else { sketch(&best.candidate) };
            let share =
                if now < 1.0 { format!("{:.1} % less", (1.0 - now) * 100.0) } else { cost(super::Price::Slower(now)) };
            format!("{then} | {share}")
        }
        Err(error) => format!("{} | none", error.told().0.replace('|', "/")),
    }
}
