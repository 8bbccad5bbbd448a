//! Body: of an answer that is whole, or comes event by event.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;
use zero_publish::http::Activity;

use super::Answering;

/// The body of an answer.
pub enum Answer {
    /// Bytes that are there already.
    Whole(Option<Bytes>),
    /// Events that come.
    Events {
        /// Where they come from.
        events: Receiver<Bytes>,
        /// Of the connection.
        activity: Activity,
        /// The answer is over when it is dropped.
        _answering: Answering,
    },
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let bytes = match self.get_mut() {
            Answer::Whole(bytes) => bytes.take().filter(|bytes| !bytes.is_empty()),
            Answer::Events { events, activity, .. } => {
                let event = ready!(events.poll_recv(cx));
                activity.set(Instant::now());
                event
            }
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Answer::Events { .. } => SizeHint::default(),
        }
    }
}
