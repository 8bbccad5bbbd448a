//! Tests that pages and figures agree with the plan.

use std::path::PathBuf;

use serde_json::Value;
use zero_plan::{Bytes, Kind, Mesh, Probe, Recompute, Sizes, Traffic, Unit, spec};

use super::*;

/// A spec with many features, whose text would end a script if it were not escaped.
const SPEC: &str = r#"// </script><!-- a comment
(
    model: Example("gpt"),
    mesh: (nodes: 2, zero: 2, pipeline: 2, replica: 2, within_node: [Zero]),
    zero: (stage: 3, prefetch: 2, bucket: KiB(2)),
    batch: (sequences: 2, length: 8, micro_batches: 4),
    transport: Local,
    memory: MiB(64),
)
"#;

fn unit(number: usize) -> Unit {
    let index = (1..7).contains(&number).then(|| number - 1);
    let field = if index.is_some() {
        "blocks"
    } else if number == 0 {
        "embed"
    } else {
        "head"
    };
    let sizes = Unit { field, position: number.min(2), index, source: number, ..Unit::NONE };
    let sizes = Unit { params: 400 + number, takes: 400 + number, operations: 100_000, saved_bytes: 4096, ..sizes };
    Unit { workspace_bytes: 512, input_bytes: 1024, output_bytes: 1024, ..sizes }
}

fn sized(text: &str, units: usize) -> SizedSpec {
    let spec = spec::parse(text).expect("a spec");
    let config = spec.config();
    let (compute, sequences, length) = (config.precision.compute, config.sequences, config.length);
    let probe = Probe { compute, sequences, length, units: (0..units).map(unit).collect() };
    let sizes = Sizes { model: "Gpt <small>".to_owned(), spec: text.to_owned(), probes: vec![probe] };
    SizedSpec { path: "specs/mine.ron".into(), spec, text: text.to_owned(), sizes }
}

fn pictured<'a>(spec: &'a SizedSpec, hardware: Option<&'a Hardware>) -> PicturedSpec<'a> {
    PicturedSpec::of(spec, hardware).expect("the hardware can run it")
}

fn a100() -> Hardware {
    let mut hardware = crate::hardware::find("a100-80").expect("known hardware");
    hardware.network = Some(crate::hardware::network("hdr-8x200").expect("a known network"));
    hardware
}

/// The data that a page has under an id.
fn carried(page: &str, id: &str) -> Value {
    let begin = format!("<script type=\"application/json\" id=\"{id}\">");
    let (_, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page has no {id}"));
    let (json, _) = rest.split_once("</script>").expect("an end");
    serde_json::from_str(json).expect("JSON")
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number")) as usize
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().expect("a list").iter().map(number).collect()
}

/// Compares the data of a plan on a page with the plan.
fn hold(carried: &Value, plan: &Plan) {
    assert_eq!(carried["format"], "zero-picture-2");
    assert_eq!(number(&carried["params"]), plan.params());
    assert_eq!(carried["mesh"]["ranks"].as_array().map(Vec::len), Some(plan.config.mesh.ranks()));
    let outside = plan.outside_bytes(&zero_plan::footprint::RunSize::LEAST);
    assert_eq!(number(&carried["outside_bytes"]), outside);
    assert_eq!(number(&carried["limits"][0][1]), plan.config.memory_bytes.expect("a budget"));
    assert_eq!(carried["pipeline_stages"].as_array().map(Vec::len), Some(plan.pipeline_stages.len()));
    for (pipeline, pipeline_stage) in plan.pipeline_stages.iter().enumerate() {
        let drawn = &carried["pipeline_stages"][pipeline];
        let regions = Kind::ALL.map(|kind| pipeline_stage.memory.region(kind).bytes);
        assert_eq!(numbers(&drawn["memory"]["regions"]), regions);
        assert_eq!(number(&drawn["memory"]["arena_bytes"]), pipeline_stage.memory.bytes_per_rank());
        let peak = plan.peak(pipeline);
        assert_eq!(numbers(&drawn["memory"]["peak"]["bytes"]), peak.bytes);
        assert_eq!(number(&drawn["memory"]["peak"]["total_bytes"]), peak.total_bytes());
        assert_eq!(pipeline_stage.step[number(&drawn["memory"]["peak"]["op"])], peak.op);
        let traffic = Traffic::of(plan, plan.first_rank(pipeline), pipeline_stage.step);
        let part = |name: &str| {
            let parts = drawn["traffic"].as_array().expect("a list").iter();
            parts.filter(|part| part["name"] == name).map(|part| number(&part["bytes"])).sum::<usize>()
        };
        assert_eq!(part("parameter all-gather"), traffic.gather_bytes);
        assert_eq!(part("gradient reduce-scatter"), traffic.reduce_bytes);
        assert_eq!(part("shard reduce-scatter"), traffic.replica_reduce_bytes);
        assert_eq!(part("activations"), traffic.activation_bytes);
        assert_eq!(part("loss and norm"), traffic.agree_bytes);
        let parts = drawn["traffic"].as_array().expect("a list").iter();
        assert_eq!(parts.map(|part| number(&part["bytes"])).sum::<usize>(), traffic.total_bytes());
        for column in ["verb", "about", "micro_batch", "nth", "start", "end", "waited", "sent"] {
            assert_eq!(drawn["ops"][column].as_array().map(Vec::len), Some(pipeline_stage.step.len()), "{column}");
        }
        for (verb, op) in numbers(&drawn["ops"]["verb"]).into_iter().zip(pipeline_stage.step) {
            let name = carried["verbs"][verb]["name"].as_str().expect("a name");
            assert!(name.starts_with(op.name()), "{name}: {op:?}");
        }
    }
}

#[test]
fn numbers_of_a_page_are_those_of_its_plans() {
    let (spec, hardware) = (sized(SPEC, 8), a100());
    for hardware in [None, Some(&hardware)] {
        let subject = pictured(&spec, hardware);
        let page = page::page(&[subject.view().expect("a view")]);
        let variants = carried(&page, "index")["views"][0]["variants"].clone();
        let variants = variants.as_array().expect("a list");
        let prefetches: Vec<_> = variants.iter().map(|variant| number(&variant["prefetch"])).collect();
        assert_eq!(prefetches, [0, 1, 2, 3, 4, 6]);
        assert_eq!(variants.iter().filter(|variant| variant["given"] == true).count(), 1);
        for prefetch in prefetches {
            let carried = carried(&page, &format!("plan-0-{prefetch}"));
            assert_eq!(carried["prefetch"], prefetch);
            assert_eq!(carried["hardware"].is_string(), hardware.is_some());
            subject.planned_with(prefetch).with(|plan| {
                hold(&carried, plan);
                let Some(hardware) = hardware else { return };
                let (timeline, ns) = (simulate(plan, hardware).expect("it fits"), |s: f64| (s * 1e9).round() as usize);
                assert_eq!(number(&carried["end"]), ns(timeline.step_s));
                for (lane, drawn) in timeline.lanes.iter().zip(carried["pipeline_stages"].as_array().expect("a list")) {
                    let spans = || lane.spans.iter();
                    assert_eq!(numbers(&drawn["ops"]["start"]), spans().map(|it| ns(it.start_s)).collect::<Vec<_>>());
                    assert_eq!(numbers(&drawn["ops"]["end"]), spans().map(|it| ns(it.end_s)).collect::<Vec<_>>());
                }
                assert_eq!(number(&carried["limits"][1][1]) as u64, hardware.budget_bytes(4));
            });
        }
    }
}

#[test]
fn a_page_needs_nothing_else_and_its_data_ends_nothing() {
    let spec = sized(SPEC, 8);
    let view = || pictured(&spec, None).view().expect("a view");
    let page = page::page(&[view(), view()]);
    for word in ["http:", "https:", "@import", " src=", "fetch(", "XMLHttpRequest", "innerHTML"] {
        assert!(!page.contains(word), "{word}");
    }
    // The data of each plan contains the text of the spec, in which there is an end of a script and the start of a
    // comment.
    assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
    assert!(!page.contains("<!--"));
    assert_eq!(carried(&page, "plan-1-2")["source"]["text"], SPEC);
    assert_eq!(carried(&page, "index")["views"].as_array().map(Vec::len), Some(2));
}

#[test]
fn choices_of_prefetch_are_few_where_plans_are_long_and_none_where_nothing_is_gathered() {
    let spec = sized(SPEC, 8);
    let subject = pictured(&spec, None);
    assert_eq!(subject.prefetches(3), [1, 2, 3]);
    assert_eq!(subject.prefetches(0), [2]);
    let spec = sized(&SPEC.replace("stage: 3, prefetch: 2", "stage: 2"), 8);
    assert_eq!(pictured(&spec, None).prefetches(9).len(), 1);
}

#[test]
fn numbers_of_a_figure_are_those_of_its_plan() {
    let (spec, hardware) = (sized(SPEC, 8), a100());
    let subject = pictured(&spec, Some(&hardware));
    let figure = svg::figure(&subject.picture().expect("a picture"));
    subject.planned().with(|plan| {
        let pipeline = (0..plan.pipeline_stages.len())
            .max_by_key(|&pipeline| (plan.pipeline_stages[pipeline].memory.bytes_per_rank(), usize::MAX - pipeline));
        let pipeline = pipeline.expect("a pipeline stage");
        let (memory, peak) = (&plan.pipeline_stages[pipeline].memory, plan.peak(pipeline));
        let outside = plan.outside_bytes(&zero_plan::footprint::RunSize::LEAST);
        let traffic = Traffic::of(plan, plan.first_rank(pipeline), plan.pipeline_stages[pipeline].step);
        let step = zero_study::simulate::ShownTime(simulate(plan, &hardware).expect("it fits").step_s);
        let mut said = vec![
            format!("an arena of {}", Bytes(memory.bytes_per_rank())),
            format!("takes {}", Bytes(memory.bytes_per_rank() + outside)),
            format!("Most in use: {}", Bytes(outside + peak.total_bytes())),
            format!("memory of the spec: {}", Bytes(plan.config.memory_bytes.expect("a budget"))),
            format!("It sends {} in a step", Bytes(traffic.total_bytes())),
            format!("parameter all-gather {} along zero", Bytes(traffic.gather_bytes)),
            format!("A step: {step}, predicted for {}", hardware.name),
            "here with device Cuda, transport Nccl".to_owned(),
        ];
        let parts = Kind::ALL.iter().zip(peak.bytes).filter(|(_, bytes)| *bytes > 0);
        said.extend(parts.map(|(kind, bytes)| format!("{} {}", kind.name(), Bytes(bytes))));
        for text in said {
            assert!(figure.contains(&text), "no `{text}` in {figure}");
        }
    });
    assert!(figure.contains("Gpt &lt;small&gt;") && !figure.contains("NaN") && !figure.contains("inf"));
    assert!(figure.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && figure.ends_with("</svg>\n"));
    assert!(["<script", "href", "@import"].iter().all(|word| !figure.contains(word)));
}

#[test]
fn z0172_a_picture_that_cannot_be_written() {
    let error = write(Path::new("/no/such/directory/a.html"), "").unwrap_err().to_string();
    assert!(error.starts_with("error[Z0172]: cannot write /no/such/directory/a.html"), "{error}");
}

/// Pages for `tests/browser/check.sh`, in the folder that `ZERO_PAGES` names.
#[test]
#[ignore = "writes pages for tests/browser/check.sh, which runs it"]
fn pages_for_a_browser() {
    let folder = PathBuf::from(std::env::var_os("ZERO_PAGES").expect("the folder to write to"));
    let (spec, hardware) = (sized(SPEC, 8), a100());
    let planned = pictured(&spec, None).planned();
    let trace = planned.with(|plan| profile::tests::trace(plan, 3));
    std::fs::write(folder.join("profile.json"), trace).expect("a file");
    let measured = profile::read(&folder.join("profile.json"), &planned).expect("a profile");
    let timed = PlanView { measured: Some(measured), ..pictured(&spec, Some(&hardware)).view().expect("a view") };
    let other = sized(&SPEC.replace("stage: 3, prefetch: 2", "stage: 2"), 8);
    let other = || pictured(&other, Some(&hardware)).view().expect("a view");
    // 64 ranks and 64 units: the largest plan whose page must open immediately.
    let config = "(mesh: (nodes: 8, zero: 8, pipeline: 8), zero: (stage: 3), batch: (micro_batches: 32))";
    let large = sized(config, 64);
    assert_eq!(large.spec.config().mesh, Mesh { nodes: 8, pipeline: 8, ..Mesh::of_zero(8) });
    assert_eq!(large.spec.config().recompute, Recompute::None);
    let pages = [
        ("one", page::page(&[pictured(&spec, None).view().expect("a view")])),
        ("profile", page::page(&[timed])),
        ("two", page::page(&[pictured(&spec, Some(&hardware)).view().expect("a view"), other()])),
        ("large", page::page(&[pictured(&large, Some(&hardware)).view().expect("a view")])),
        (
            "flat",
            page::page(&[pictured(&sized("(mesh: (zero: 64), zero: (stage: 3))", 64), None).view().expect("a view")]),
        ),
    ];
    for (name, page) in pages {
        std::fs::write(folder.join(name).with_extension("html"), page).expect("a file");
    }
}
