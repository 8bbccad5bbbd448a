//! Mistake: a diagnostic and the tokens that it concerns, as an error of the compiler. Never decides what is a mistake.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use zero_plan::diagnostic::Diagnostic;

/// One mistake and its place in the source.
#[derive(Debug)]
pub struct Mistake {
    /// The text that the compiler shows after `error: `.
    pub text: String,
    place: TokenStream,
}

/// A result with several mistakes at once.
pub type Checked<T> = Result<T, Vec<Mistake>>;

impl Mistake {
    /// A mistake in the source; without tokens its place is the attribute as a whole.
    pub fn at(place: impl ToTokens, problem: &Diagnostic) -> Self {
        let mut text = format!("[{}] {}", problem.code, problem.message);
        // An expectation that the message already has needs no second line.
        let told = problem.message.contains(problem.label.trim_start_matches("expected "));
        let note = Some(&problem.label).filter(|_| !told);
        for (kind, line) in [("note", note), ("help", problem.help.as_ref())] {
            if let Some(line) = line {
                text += &format!("\n = {kind}: {line}");
            }
        }
        Self { text, place: place.into_token_stream() }
    }

    /// A mistake at a place within an attribute.
    pub fn spanned(place: Span, problem: &Diagnostic) -> Self {
        // The compiler shows only the identifier's span.
        Self::at(Ident::new("_", place), problem)
    }

    /// A mistake in the text of a spec that `place` names.
    pub fn in_spec(place: impl ToTokens, problem: &Diagnostic, file: &str, spec: &str) -> Self {
        let title = format!("error[{}]: ", problem.code);
        let rendered = problem.render(file, spec);
        // The compiler itself writes the `error: ` of a title.
        let text = match rendered.strip_prefix(&title) {
            Some(rest) => format!("[{}] {rest}", problem.code),
            None => rendered,
        };
        Self { text, place: place.into_token_stream() }
    }

    /// An unusable attribute or struct, and how to write a usable one.
    pub fn unusable(place: impl ToTokens, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::at(place, &Diagnostic::new("Z0110", "", message).help(help))
    }
}

impl ToTokens for Mistake {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(syn::Error::new_spanned(&self.place, &self.text).to_compile_error());
    }
}

/// A list with one mistake.
pub fn one(mistake: Mistake) -> Vec<Mistake> {
    vec![mistake]
}

/// The value, if there is one; mistakes are added to `mistakes`.
pub fn or_else<T>(checked: Checked<T>, mistakes: &mut Vec<Mistake>) -> Option<T> {
    checked.map_err(|found| mistakes.extend(found)).ok()
}

/// Both values, or the mistakes of both.
pub fn both<A, B>(a: Checked<A>, b: Checked<B>) -> Checked<(A, B)> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (a, b) => Err(a.err().into_iter().chain(b.err()).flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_spec_keeps_the_place_in_its_file() {
        let problem = Diagnostic::new("Z0107", "prefech", "unknown key").at(1..8, "did you mean `prefetch`?");
        let shown = Mistake::in_spec(TokenStream::new(), &problem, "specs/a.ron", "(prefech: 2)").text;
        assert!(shown.starts_with("[Z0107] unknown key\n --> specs/a.ron:1:2\n"), "{shown}");
    }

    #[test]
    fn an_expectation_is_told_once() {
        let mut problem = Diagnostic::new("Z0103", "ranks", "`ranks` expects a number, found `x`");
        problem.label = "expected a number".to_owned();
        assert_eq!(Mistake::at(TokenStream::new(), &problem).text, "[Z0103] `ranks` expects a number, found `x`");
        problem.label = "did you mean `y`?".to_owned();
        assert!(Mistake::at(TokenStream::new(), &problem).text.ends_with("\n = note: did you mean `y`?"));
    }

    #[test]
    fn mistakes_of_both_sides_are_kept() {
        let one = || vec![Mistake::unusable(TokenStream::new(), "", "")];
        assert_eq!(both::<(), ()>(Err(one()), Err(one())).unwrap_err().len(), 2);
        assert_eq!(both::<(), ()>(Err(one()), Ok(())).unwrap_err().len(), 1);
    }
}
