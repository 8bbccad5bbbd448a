//! View: pictures of a plan, as a page that works from a file, or as a figure for a page of text. A command that was built without the
//! library that writes them rebuilds itself with it.

mod arguments;
#[cfg(feature = "view")]
mod draw;
#[cfg(feature = "view")]
mod page;
#[cfg(feature = "view")]
mod palette;
#[cfg(feature = "view")]
pub mod profile;
#[cfg(feature = "view")]
mod svg;

pub use arguments::ViewArguments;
#[cfg(feature = "view")]
pub use draw::view;

/// Draws with a command that can.
#[cfg(not(feature = "view"))]
pub fn view(_: &ViewArguments) -> Result<(), crate::error::CommandError> {
    crate::rebuild::rebuild_with("view", "pages and figures")
}
