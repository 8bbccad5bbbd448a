use zero_plan::spec::parse;
use zero_plan::{PlanBuf, Unit};

use super::*;

fn units() -> Vec<Unit> {
    let unit = |field, index, params| Unit {
        field,
        index,
        params,
        takes: params,
        saved_bytes: 4096,
        input_bytes: 2048,
        output_bytes: 2048,
        operations: 100 * params,
        ..Unit::NONE
    };
    let blocks = (0..3).map(|i| unit("blocks", Some(i), 30_720));
    let units = [unit("embed", None, 10_240)].into_iter().chain(blocks).chain([unit("head", None, 10_240)]);
    units.enumerate().map(|(source, unit)| Unit { source, ..unit }).collect()
}

fn difference(first: &str, second: &str) -> Difference {
    let specs = [first, second].map(|text| parse(text).expect(text));
    let [a, b] = specs.each_ref().map(|spec| PlanBuf::new("Tiny", spec.config(), &units()));
    let (a_pipeline_stages, b_pipeline_stages) = (a.pipeline_stages(), b.pipeline_stages());
    let (a, b) = (a.as_plan(&a_pipeline_stages), b.as_plan(&b_pipeline_stages));
    let side = |name, spec, plan, step_s| PlanSide { name, spec, plan, step_s: Some(step_s) };
    Difference::of(&side("a.ron", &specs[0], &a, 1.0), &side("b.ron", &specs[1], &b, 0.9))
}

fn of<'d>(figures: &'d [Figures], what: &str) -> &'d Figures {
    figures.iter().find(|it| it.what == what).unwrap_or_else(|| panic!("{what} in {figures:?}"))
}

const ZERO2: &str = "(mesh: (zero: 4), zero: (stage: 2, bucket: KiB(64)), transport: Local)";
const ZERO3: &str = "(mesh: (zero: 4), zero: (stage: 3, prefetch: 1, bucket: KiB(64)), transport: Local)";

#[test]
fn another_stage_changes_memory_traffic_ops_and_order() {
    let difference = difference(ZERO2, ZERO3);
    crate::documented::assert_documented(&serde_json::to_value(&difference).unwrap());
    assert!(!difference.is_equal);
    let keys: Vec<_> = difference.keys.iter().map(|change| change.key).collect();
    assert_eq!(keys, ["zero.stage", "zero.prefetch"]);
    // Parameters of 112,640 f32 are whole at stage 2, and a quarter at stage 3.
    let params = of(&difference.memory, "parameters");
    assert_eq!((params.first / 4, params.second / 4), (112_640, 28_160));
    let gathered = of(&difference.memory, "gathered parameters");
    assert_eq!((gathered.first, gathered.second), (0, 2 * 4 * 30_720));
    // Three quarters of all parameters are gathered once, and at stage 3 twice, except those of the last unit.
    let sent = of(&difference.sent, "zero: parameter all-gather");
    assert_eq!((sent.first, sent.second), (3 * 112_640, 3 * (2 * 112_640 - 10_240)));
    let waits = of(&difference.ops, "release");
    assert_eq!(waits.first, 0);
    assert!(waits.second > 0);
    let [departure] = &difference.schedules[..] else { panic!("{difference:?}") };
    assert_eq!((departure.pipeline_stage, departure.op), (0, 0));
    assert_ne!(departure.first, departure.second);
}

#[test]
fn totals_are_sums_of_their_parts() {
    let difference = difference(ZERO2, ZERO3);
    for side in [|it: &Figures| it.first, |it: &Figures| it.second] {
        let sum = |figures: &[Figures], but: &[&str]| {
            figures.iter().filter(|it| !but.contains(&it.what.as_str())).map(side).sum::<usize>()
        };
        let whole = ["arena", "outside, at most", "total"];
        let [arena, outside, total] = whole.map(|what| side(of(&difference.memory, what)));
        assert_eq!((sum(&difference.memory, &whole), arena + outside), (arena, total));
        for figures in [&difference.sent, &difference.ops] {
            assert_eq!(sum(figures, &["total"]), side(of(figures, "total")));
        }
    }
}

#[test]
fn equal_plans_have_no_difference() {
    let other_words = "(mesh: (zero: 4), zero: (stage: 2, bucket: B(65536)), transport: Local, batch: (sequences: 4))";
    for second in [ZERO2, other_words] {
        let difference = difference(ZERO2, second);
        assert!(difference.is_equal && difference.keys.is_empty() && difference.schedules.is_empty());
        assert!(
            difference.memory.iter().chain(&difference.sent).chain(&difference.ops).all(|it| it.first == it.second)
        );
        assert_eq!(DifferenceText(&difference).to_string(), "a.ron and b.ron give the same plan of Tiny");
    }
}

#[test]
fn a_key_that_changes_no_op_is_still_a_difference() {
    let difference = difference(ZERO2, &ZERO2.replace("transport", "memory: GiB(1), transport"));
    assert!(!difference.is_equal && difference.schedules.is_empty());
    let text = DifferenceText(&difference).to_string();
    assert!(text.contains("memory of the rank that needs most: the same"), "{text}");
    assert!(text.ends_with("schedules: the same"), "{text}");
}

#[test]
fn pipelines_of_other_lengths_differ_by_pipeline_stage() {
    let with = |pipeline_stages: usize| {
        format!(
            "(mesh: (zero: 1, pipeline: {pipeline_stages}), zero: (stage: 0), batch: (micro_batches: 4), transport: Local)"
        )
    };
    let difference = difference(&with(2), &with(3));
    let pipeline_stages: Vec<_> = difference.schedules.iter().map(|it| it.pipeline_stage).collect();
    assert!(pipeline_stages.contains(&2), "{pipeline_stages:?}");
    let last = difference.schedules.last().expect("the third");
    assert_eq!((last.op, last.first.as_ref()), (0, None));
    assert!(last.second.is_some());
}

#[test]
fn one_schedule_that_goes_on_where_the_other_ends_differs() {
    let longer = "(mesh: (zero: 1), zero: (stage: 0), batch: (micro_batches: 2))";
    let difference = difference("(mesh: (zero: 1), zero: (stage: 0))", longer);
    let forwards = of(&difference.ops, "forward");
    assert_eq!((forwards.first, forwards.second), (5, 10));
    assert_eq!(difference.schedules.len(), 1);
}

#[test]
fn the_text_is_for_a_review() {
    let text = DifferenceText(&difference(ZERO2, ZERO3)).to_string();
    for line in [
        "a.ron -> b.ron: Tiny",
        "  zero.stage                   2       3",
        "predicted step: 1.00 s -> 900 ms, -10.0 %",
        "schedules first differ in",
        "  pipeline stage 0, op 0: `forward embed (F mb 0 slot 0)` -> `gather embed -> 0`",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 100 && !line.ends_with(' ')), "{text}");
}
