//! A worker that generates: OpenAI's API over HTTP for several sequences at a time, of a model whose weights may change between two
//! tokens.
//!
//! ```
//! use zero_serve::{Decoder, OnUpdate, Row, Served, Server, Words, Worker};
//!
//! /// Says the next letter of the alphabet.
//! struct Alphabet;
//!
//! impl Decoder for Alphabet {
//!     fn slots(&self) -> usize {
//!         2
//!     }
//!     fn length(&self) -> usize {
//!         64
//!     }
//!     fn classes(&self) -> usize {
//!         128
//!     }
//!     fn version(&self) -> &str {
//!         "latin"
//!     }
//!     fn prefill(&mut self, slot: usize, ids: &[u32], logits: &mut [f32]) -> Result<(), String> {
//!         let cached = ids.len() - 1;
//!         self.step(&[Row { slot, cached, id: ids[cached] }], logits)
//!     }
//!     fn step(&mut self, rows: &[Row], logits: &mut [f32]) -> Result<(), String> {
//!         logits.fill(-30.0);
//!         for (row, logits) in rows.iter().zip(logits.chunks_mut(128)) {
//!             logits[(row.id as usize + 1) % 128] = 0.0;
//!         }
//!         Ok(())
//!     }
//!     fn receive(&mut self) -> Result<bool, String> {
//!         Ok(false)
//!     }
//!     fn refresh(&mut self) -> Result<(), String> {
//!         Ok(())
//!     }
//! }
//!
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let worker = Worker::new(OnUpdate::Keep, std::time::Duration::from_secs(1));
//! let (mailbox, words) = (worker.mailbox(), Words::new(None, 128, None, None)?);
//! let (model, source) = ("alphabet".to_owned(), "an example".to_owned());
//! let served = Served { model, source, token: None, words, slots: 2, queue: 8, length: 64 };
//! let (server, serving) = Server::new(listener, served, mailbox.clone());
//! let answers = std::thread::spawn(|| server.run());
//! // A client would ask here.
//! mailbox.end();
//! worker.run(&mut Alphabet)?;
//! drop(serving);
//! answers.join().expect("a thread")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is in it
//!
//! - [`Worker`] is the thread that decodes: it takes jobs into slots, and newer weights between two steps. [`Decoder`] is all that it
//!   knows of a model.
//! - [`Server`] is the thread that answers. `api` has requests and answers, and [`Words`] what a worker knows of text and of chats.
//! - [`follow`] fetches the weights of a run, and each newer version.
//! - [`Mailbox`] is by which threads reach the worker.
//!
//! # What is always true
//!
//! - A token depends on its request and the weights alone, not on what is decoded beside it.
//! - Weights change between two steps, and each answer says which tokens were computed with which.
//! - No key of a request is ignored: what is unknown, or not done, is refused by name.
//! - Requests, sequences that wait, connections and the time that each of them takes are bounded. The thread that decodes never waits for
//!   a client, and sleeps while there is nothing to do.

mod api;
mod control;
mod decoder;
pub mod follow;
mod job;
mod sequence;
mod server;
mod text;
mod worker;

pub use control::Mailbox;
pub use decoder::{Decoder, Row};
pub use server::{Served, Server, Serving};
pub use text::Words;
pub use worker::{OnUpdate, Worker};
