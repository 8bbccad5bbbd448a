//! Follow: keeps a folder of published weights that always has one version, whole. A command that was built without the library that
//! fetches them rebuilds itself with it.

mod arguments;
#[cfg(feature = "follow")]
mod engines;
#[cfg(feature = "follow")]
mod fetch;

pub use arguments::FollowArguments;
#[cfg(feature = "follow")]
pub use fetch::follow;

/// Follows with a command that can.
#[cfg(not(feature = "follow"))]
pub fn follow(_: &FollowArguments) -> Result<(), crate::error::CommandError> {
    crate::rebuild::rebuild_with("follow", "published weights")
}
