//! Tests: a worker of a toy model answers over sockets. What it says is compared with a loop that knows neither slots nor a server.

mod requests;
mod sequences;
mod toy;
mod updates;
