//! Guard: libraries that read files of others may panic on a file that is damaged. Here a panic of theirs becomes a reason, which the
//! caller reports with the name of the file.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

static QUIET: Once = Once::new();

/// Calls a library. Nothing that it has changed may be used after a panic.
///
/// # Errors
/// That it has panicked, as a clause whose subject is the file. Nothing is printed.
pub fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    QUIET.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                told(panic);
            }
        }));
    });
    let outer = IS_GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    IS_GUARDED.set(outer);
    result.map_err(|panic| {
        let words =
            panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        format!("is more than the library that reads it can take: {}", words.unwrap_or("it panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn a_panic_becomes_a_reason() {
        assert_eq!(guarded(|| 3), Ok(3));
        let failed = guarded(|| -> u32 { panic!("index {} of 2", 7) });
        assert_eq!(failed, Err("is more than the library that reads it can take: index 7 of 2".to_owned()));
        assert_eq!(guarded(|| guarded(|| panic!("inner")).is_err()), Ok(true));
    }
}
