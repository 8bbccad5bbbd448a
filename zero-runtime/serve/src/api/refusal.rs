//! Refusal: an error as OpenAI's API writes it.

use hyper::StatusCode;
use serde::Serialize;
use zero_publish::http::Refused;

/// Why a request is refused.
#[derive(Debug, PartialEq, Serialize)]
pub struct Refusal {
    #[serde(skip)]
    pub status: StatusCode,
    pub message: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The key that it is about.
    pub param: Option<String>,
    pub code: Option<&'static str>,
}

/// The document.
#[derive(Serialize)]
pub struct Document<'a> {
    pub error: &'a Refusal,
}

impl Refusal {
    /// A request that is not as expected.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::of(StatusCode::BAD_REQUEST, message) }
    }

    /// A status with its usual type.
    pub fn of(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        Self { status, message: message.into(), kind, param: None, code: None }
    }

    /// With a code that programs look at.
    pub fn coded(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }
}

impl From<Refused> for Refusal {
    fn from((status, why): Refused) -> Self {
        Self::of(status, why)
    }
}
