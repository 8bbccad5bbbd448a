//! Choice: one of several sizes of an architecture, by name, in a constant, and parts of it that are changed. Never reads the
//! environment.

use zero_plan::{Message, is_same_text};

/// The value with this name; without a name, the first value.
///
/// ```
/// use zero_runtime::prelude::*;
///
/// const SIZES: &[(&str, [usize; 2])] = &[("tiny", [2, 64]), ("124M", [12, 768])];
/// // `cargo zero` sets the variable to the size that a spec or `--size` names.
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
        message = listed(message, i, choices[i].0);
        i += 1;
    }
    panic!("{}", message.as_str());
}

/// The name of the size that [`chosen`] takes if it is given none.
pub const fn unnamed<T>(choices: &[(&'static str, T)], name: Option<&str>) -> Option<&'static str> {
    if name.is_some() { None } else { Some(choices[0].0) }
}

/// A size, a struct, in which the listed fields have the values that a spec or the command line gives them, if they give any:
/// `layers: 3`, or `--layers 3`. The names are those of the keys of `model`, and the fields are `usize`.
///
/// ```
/// use zero_runtime::prelude::*;
///
/// #[derive(Clone, Copy)]
/// struct Size {
///     layers: usize,
///     width: usize,
///     is_tied: bool,
/// }
///
/// const SIZES: &[(&str, Size)] = &[("tiny", Size { layers: 2, width: 64, is_tied: true })];
/// const SIZE: Size = resized!(chosen(SIZES, option_env!("ZERO_SIZE")); layers, width);
///
/// assert_eq!((SIZE.layers, SIZE.width, SIZE.is_tied), (2, 64, true));
/// ```
#[macro_export]
macro_rules! resized {
    ($size:expr; $($part:ident),+ $(,)?) => {{
        const PARTS: ::core::option::Option<&str> = ::core::option_env!("ZERO_PARTS");
        $crate::__private::require_parts(PARTS, &[$(::core::stringify!($part)),+]);
        let mut size = $size;
        $(
            if let ::core::option::Option::Some(part) = $crate::__private::part(PARTS, ::core::stringify!($part)) {
                size.$part = part;
            }
        )+
        size
    }};
}

/// The value of a part in `layers=3,width=64`.
#[track_caller]
pub const fn part(parts: Option<&str>, name: &str) -> Option<usize> {
    let mut rest = match parts {
        Some(parts) => parts,
        None => return None,
    };
    while !rest.is_empty() {
        let (entry, others) = cut(rest, b',');
        let (key, value) = cut(entry, b'=');
        if is_same_text(key, name) {
            let Ok(value) = usize::from_str_radix(value, 10) else { panic!("ZERO_PARTS has a part without a number") };
            return Some(value);
        }
        rest = others;
    }
    None
}

/// Z0216 if a part is given that is not `known`; in a constant, that is a build error.
#[track_caller]
pub const fn require_parts(parts: Option<&str>, known: &[&str]) {
    let mut rest = match parts {
        Some(parts) => parts,
        None => return,
    };
    while !rest.is_empty() {
        let (entry, others) = cut(rest, b',');
        let (name, _) = cut(entry, b'=');
        let (mut i, mut message) =
            (0, Message::new().text("[Z0216] the sizes have no part `").text(name).text("`\n  fix: change "));
        while i < known.len() && !is_same_text(known[i], name) {
            message = listed(message, i, known[i]);
            i += 1;
        }
        if i == known.len() {
            panic!("{}", message.as_str());
        }
        rest = others;
    }
}

/// A part of a size, divided into equal shares: the features of a head, of which all heads together have `whole`.
///
/// # Panics
/// Z0217 if something remains, which in a constant is a build error.
#[track_caller]
pub const fn divided(whole: usize, shares: usize) -> usize {
    if shares == 0 || !whole.is_multiple_of(shares) {
        let message = Message::new().text("[Z0217] ").number(whole).text(" cannot be divided into ").number(shares);
        panic!(
            "{}",
            message.text(" equal shares\n  fix: change one of the two, which are parts of the model's size").as_str()
        );
    }
    whole / shares
}

/// The text before the first `mark`, and the text after it.
const fn cut(text: &str, mark: u8) -> (&str, &str) {
    let mut at = 0;
    while at < text.len() && text.as_bytes()[at] != mark {
        at += 1;
    }
    let (before, after) = text.split_at(at);
    (before, if after.is_empty() { after } else { after.split_at(1).1 })
}

/// Appends a name to a list of them.
const fn listed(message: Message, position: usize, name: &str) -> Message {
    message.text(if position == 0 { "`" } else { ", `" }).text(name).text("`")
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

    #[test]
    fn parts_are_found_by_their_names() {
        let parts = Some("layers=3,key_heads=4");
        assert_eq!(
            ["layers", "key_heads", "heads", "ers"].map(|name| part(parts, name)),
            [Some(3), Some(4), None, None]
        );
        assert_eq!(part(None, "layers"), None);
        require_parts(parts, &["width", "key_heads", "layers"]);
        require_parts(None, &[]);
    }

    #[test]
    #[should_panic(expected = "[Z0216] the sizes have no part `inner`\n  fix: change `layers`, `width`")]
    fn z0216_part_that_there_is_not() {
        require_parts(Some("layers=3,inner=4"), &["layers", "width"]);
    }

    #[test]
    #[should_panic(expected = "[Z0217] 48 cannot be divided into 7 equal shares\n")]
    fn z0217_shares_that_are_not_equal() {
        assert_eq!(divided(48, 6), 8);
        divided(48, 7);
    }
}
