//! Body: the bytes of a copy as the body of an answer, read piece by piece as the reader takes them.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use zero_core::published::PublishedCopies;

use super::versions::Versions;
use crate::http::Activity;

/// Bytes that are read from a copy at once: what a connection holds.
const FRAME_BYTES: usize = 64 << 10;

/// The body of an answer.
pub enum Answer<C> {
    /// Bytes that are there already.
    Whole(Option<Bytes>),
    /// Bytes of a copy.
    Copy {
        /// Who has the copy.
        versions: Rc<Versions<C>>,
        /// Its step.
        step: u64,
        /// What is left to send.
        left: Range<usize>,
        /// Of the connection.
        activity: Activity,
    },
}

impl<C: PublishedCopies> Body for Answer<C> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(match self.get_mut() {
            Answer::Whole(bytes) => bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))),
            Answer::Copy { left, .. } if left.start == left.end => None,
            Answer::Copy { versions, step, left, activity } => {
                activity.set(Instant::now());
                let mut bytes = vec![0; FRAME_BYTES.min(left.len())];
                let is_there = versions.copies.read(*step, left.start, &mut bytes);
                left.start += bytes.len();
                // The connection then closes before the length that it has announced.
                let given_up = || io::Error::other("the version was given up");
                Some(if is_there { Ok(Frame::data(Bytes::from(bytes))) } else { Err(given_up()) })
            }
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Answer::Whole(bytes) => bytes.as_ref().map_or(0, Bytes::len) as u64,
            Answer::Copy { left, .. } => left.len() as u64,
        })
    }
}
