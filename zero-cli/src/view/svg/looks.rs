//! Looks: how each class of elements is drawn. Light colours and sizes are attributes, because programs that convert
//! figures support few rules of style sheets and no variables. Only dark colours are rules, for programs with support.

use std::fmt::Write;

/// The default colour of text.
pub const INK: &str = "#16181d";

/// How a class of elements looks.
struct Look {
    class: &'static str,
    /// Its attributes, each with its name.
    attributes: &'static [(&'static str, &'static str)],
    /// Its colours in dark mode.
    dark: &'static str,
}

const fn look(class: &'static str, attributes: &'static [(&'static str, &'static str)], dark: &'static str) -> Look {
    Look { class, attributes, dark }
}

const LOOKS: [Look; 15] = [
    look("back", &[("fill", "#ffffff")], "fill: #15171b"),
    look("box", &[("stroke", "#5b6270"), ("fill", "#f4f5f7")], "stroke: #a2a9b6; fill: #1f2228"),
    look("dot", &[("fill", INK), ("stroke", "#ffffff")], "fill: #eceef2; stroke: #15171b"),
    look("edge", &[("stroke", "#5b6270")], "stroke: #a2a9b6"),
    look("end", &[("text-anchor", "end")], ""),
    look("gap", &[("stroke", "#ffffff"), ("stroke-width", "0.4")], "stroke: #15171b"),
    look("grid", &[("stroke", "#dfe2e8"), ("fill", "none")], "stroke: #343944"),
    look("head", &[("font-weight", "600"), ("font-size", "13")], ""),
    look("label", &[("font-size", "10")], ""),
    look("line", &[("stroke", INK), ("fill", "none")], "stroke: #eceef2"),
    look("mid", &[("text-anchor", "middle")], ""),
    look("shade", &[("stroke", "#000000"), ("stroke-opacity", "0.4")], ""),
    look("small", &[("font-size", "9")], ""),
    look("soft", &[("fill", "#5b6270"), ("font-size", "11"), ("font-weight", "normal")], "fill: #a2a9b6"),
    look("title", &[("font-weight", "600"), ("font-size", "15")], ""),
];

/// The rules for programs that prefer dark mode and support rules.
pub fn dark() -> String {
    let rules = LOOKS.iter().filter(|look| !look.dark.is_empty());
    let rules: String = rules.map(|look| format!(".{} {{ {} }} ", look.class, look.dark)).collect();
    format!("@media (prefers-color-scheme: dark) {{ svg {{ fill: #eceef2 }} {rules}}}")
}

/// A figure with the attributes of its classes. If two classes set the same attribute, the later class counts.
///
/// # Panics
/// If an element has a class without a look.
pub fn attributed(figure: &str) -> String {
    const CLASS: &str = " class=\"";
    let mut parts = figure.split(CLASS);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (classes, rest) = part.split_once('"').expect("an attribute that ends");
        let mut attributes: Vec<(&str, &str)> = Vec::new();
        for class in classes.split(' ') {
            let look = LOOKS.iter().find(|look| look.class == class).expect("a class with a look");
            attributes.retain(|(name, _)| look.attributes.iter().all(|(other, _)| other != name));
            attributes.extend(look.attributes);
        }
        let _ = write!(whole, "{CLASS}{classes}\"");
        for (name, value) in attributes {
            let _ = write!(whole, " {name}=\"{value}\"");
        }
        whole.push_str(rest);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_becomes_its_attributes_and_the_later_one_counts() {
        assert_eq!(
            attributed(r#"<rect class="grid back" x="1"></rect>"#),
            r##"<rect class="grid back" stroke="#dfe2e8" fill="#ffffff" x="1"></rect>"##
        );
        assert!(dark().contains(".back { fill: #15171b } "), "{}", dark());
    }
}
