//! Size: Z0137, a spec that gives the size of its model, in a build that chooses another one. The only check that sees a spec
//! and a build.

use super::super::{ModelSize, Spec, locate};
use crate::diagnostic::Diagnostic;

/// The variables by which a build is told a size, with their values; none if a variable is not set.
pub type SizeVariables = [(&'static str, Option<String>); 2];

impl ModelSize {
    /// The variables that tell the compiler this size.
    pub fn variables(&self) -> SizeVariables {
        let parts: Vec<_> = self.parts().map(|(part, n)| format!("{part}={n}")).collect();
        [("ZERO_SIZE", self.size.clone()), ("ZERO_PARTS", (!parts.is_empty()).then(|| parts.join(",")))]
    }
}

/// A `Z0137` if `spec`, which was read from `text`, gives a size that these variables of a build do not. A spec that gives
/// none is built in any size.
pub fn other_size(spec: &Spec, text: &str, built: &SizeVariables) -> Option<Diagnostic> {
    let expected = spec.size.variables();
    if spec.size == ModelSize::default() || expected == *built {
        return None;
    }
    let set: Vec<_> = expected.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?))).collect();
    let unset = expected.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| format!("no {name}"));
    let found =
        built.iter().map(|(name, value)| value.as_ref().map_or(format!("no {name}"), |it| format!("{name}={it}")));
    let message = "the model is built in another size than that of its spec";
    let mut problem = Diagnostic::new("Z0137", "model", message).help(format!(
        "build by `cargo zero`, which reads the size, or build with {}",
        set.into_iter().chain(unset).collect::<Vec<_>>().join(" and ")
    ));
    problem.label = format!("the build has {}", found.collect::<Vec<_>>().join(" and "));
    problem.span = locate(text, "model").map(|spans| spans.value);
    Some(problem)
}

#[cfg(test)]
mod tests {
    use super::super::super::parse;
    use super::*;

    #[test]
    fn z0137_spec_in_another_size_than_the_build() {
        let text = r#"(model: Example("llama", size: "8B", layers: 3), zero: (stage: 1))"#;
        let spec = parse(text).unwrap();
        let built = |size: Option<&str>, parts: Option<&str>| {
            let built = [("ZERO_SIZE", size.map(str::to_owned)), ("ZERO_PARTS", parts.map(str::to_owned))];
            other_size(&spec, text, &built)
        };
        assert_eq!(built(Some("8B"), Some("layers=3")), None);
        assert_eq!(other_size(&parse("(zero: (stage: 1))").unwrap(), "", &spec.size.variables()), None);
        for (size, parts) in [(None, None), (Some("8B"), None), (Some("70B"), Some("layers=3"))] {
            let problem = built(size, parts).expect("another size");
            assert_eq!((problem.code, &text[problem.span.unwrap()]), ("Z0137", &text[8..47]));
            let help =
                "build by `cargo zero`, which reads the size, or build with ZERO_SIZE=8B and ZERO_PARTS=layers=3";
            assert_eq!(problem.help.as_deref(), Some(help));
        }
        assert_eq!(built(Some("8B"), None).unwrap().label, "the build has ZERO_SIZE=8B and no ZERO_PARTS");
    }
}
