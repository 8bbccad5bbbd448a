//! Page: pictures as one HTML file that needs no other file: it has style, script and numbers. Never computes a number.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use serde_json::{Value, json};
use zero_study::picture::Picture;

use super::palette::{CLASSES, GROUPS, OUTSIDE, Paint, WAIT};
use super::profile::MeasuredStep;

/// The name of the format of the page's index.
const FORMAT: &str = "zero-view-1";

/// The parts of the script. Each part may use the parts before it.
const SCRIPT: [&str; 10] = [
    include_str!("page/draw.js"),
    include_str!("page/plan.js"),
    include_str!("page/axis.js"),
    include_str!("page/timeline.js"),
    include_str!("page/memory.js"),
    include_str!("page/mesh.js"),
    include_str!("page/source.js"),
    include_str!("page/tables.js"),
    include_str!("page/view.js"),
    include_str!("page/main.js"),
];

/// A spec on a page.
pub struct PlanView {
    /// Its name.
    pub name: String,
    /// Its plans, in the order of `prefetch`.
    pub variants: Vec<Variant>,
    /// The times of a run of the spec, if there is a run.
    pub measured: Option<MeasuredStep>,
}

/// A plan with one choice of `prefetch`.
pub struct Variant {
    /// The choice.
    pub prefetch: usize,
    /// Whether it is the spec's own choice.
    pub is_given: bool,
    /// The plan.
    pub picture: Picture,
}

/// The page.
pub fn page(views: &[PlanView]) -> String {
    let names: Vec<_> = views.iter().map(|view| &view.name[..]).collect();
    let script = format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPT.join("\n"));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Nothing is loaded from anywhere, not even by mistake.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                link rel="icon" href="data:,";
                title { (names.join(" and ")) ", as planned" }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                (PreEscaped(include_str!("page.html")))
                (data("index", &index(views)))
                @for (number, view) in views.iter().enumerate() {
                    @for Variant { prefetch, picture, .. } in &view.variants { (data(&plan_id(number, *prefetch), picture)) }
                    @if let Some(measured) = &view.measured { (data(&measured_id(number), measured)) }
                }
                script { (PreEscaped(script)) }
            }
        }
    };
    page.into_string()
}

/// The contents of the page, and their ids.
fn index(views: &[PlanView]) -> Value {
    let variant = |number, Variant { prefetch, is_given, .. }: &Variant| json!({"id": plan_id(number, *prefetch), "prefetch": prefetch, "given": is_given});
    let views = views.iter().enumerate().map(|(number, view)| {
        let variants: Vec<_> = view.variants.iter().map(|it| variant(number, it)).collect();
        let measured = view.measured.as_ref().map(|_| measured_id(number));
        json!({"id": format!("view-{number}"), "name": view.name, "variants": variants, "measured": measured})
    });
    let paints: Vec<Paint> = [&CLASSES[..], &GROUPS, &[WAIT, OUTSIDE]].concat();
    let names = |paints: &[Paint]| paints.iter().map(|paint| paint.name).collect::<Vec<_>>();
    json!({
        "format": FORMAT,
        "palette": paints,
        "classes": names(&[&CLASSES[..], &[WAIT]].concat()),
        "groups": names(&GROUPS),
        "views": views.collect::<Vec<_>>(),
    })
}

fn plan_id(view: usize, prefetch: usize) -> String {
    format!("plan-{view}-{prefetch}")
}

fn measured_id(view: usize) -> String {
    format!("measured-{view}")
}

/// Data for the script. `<` is escaped, because it could end the element.
fn data(id: &str, value: &impl Serialize) -> Markup {
    let json = serde_json::to_string(value).expect("numbers and texts can be written").replace('<', "\\u003c");
    html! { script type="application/json" id=(id) { (PreEscaped(json)) } }
}
