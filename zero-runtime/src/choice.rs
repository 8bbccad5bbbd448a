//! Choice: one of several sizes of an architecture, by name, in a constant. Never reads the environment.

use zero_plan::{Message, is_same_text};

/// The value with this name; without a name, the first value.
///
/// ```
/// use zero_runtime::prelude::*;
///
/// const SIZES: &[(&str, [usize; 2])] = &[("tiny", [2, 64]), ("124M", [12, 768])];
/// // `cargo zero run SPEC --size NAME` sets the variable.
/// const SIZE: [usize; 2] = chosen(SIZES, option_env!("ZERO_SIZE"));
///
/// assert_eq!((SIZE, chosen(SIZES, Some("124M"))), ([2, 64], [12, 768]));
/// ```
///
/// # Panics
/// Z0214 if there is no such name, which in a constant is a build error.
#[track_caller]
pub const fn chosen<T: Copy>(choices: &[(&str, T)], name: Option<&str>) -> T {
    let Some(name) = name else { return choices[0].1 };
    let mut i = 0;
    while i < choices.len() {
        if is_same_text(choices[i].0, name) {
            return choices[i].1;
        }
        i += 1;
    }
    let mut message = Message::new().text("[Z0214] there is no size `").text(name).text("`\n  fix: choose ");
    i = 0;
    while i < choices.len() {
        let separator = if i == 0 { "`" } else { ", `" };
        message = message.text(separator).text(choices[i].0).text("`");
        i += 1;
    }
    panic!("{}", message.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_chooses_and_no_name_takes_the_first() {
        let sizes = [("small", 1), ("smaller", 2)];
        assert_eq!([None, Some("small"), Some("smaller")].map(|name| chosen(&sizes, name)), [1, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "[Z0214] there is no size `smal`\n  fix: choose `small`, `smaller`")]
    fn z0214_size_that_there_is_not() {
        chosen(&[("small", 1), ("smaller", 2)], Some("smal"));
    }
}
