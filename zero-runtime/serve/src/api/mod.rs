//! API: requests and answers as OpenAI's API has them. Never decodes.

pub mod answer;
pub mod fields;
pub mod options;
pub mod refusal;
pub mod request;
pub mod spoken;
