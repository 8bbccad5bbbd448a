//! Routes: which request gets which answer.

use std::rc::Rc;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use zero_publish::http::{Activity, Answers, collected, json_bytes, require_token, with_type};

use super::body::Answer;
use super::generate::generate;
use super::metrics::metrics;
use super::{Answering, State};
use crate::api::refusal::{Document, Refusal};
use crate::api::request::Kind;
use crate::control::{Message, Pause};

/// Bytes of the body of a request.
const BODY_MAX: usize = 4 << 20;

type Reply = Response<Answer>;

impl Answers for State {
    type Body = Answer;

    async fn answer(self: Rc<Self>, request: Request<Incoming>, activity: Activity) -> Reply {
        let _answering = Answering::of(&self);
        let path = known(request.uri().path());
        let reply = route(&self, request, &activity).await.unwrap_or_else(|refusal| refused(&refusal));
        *self.answered.borrow_mut().entry((path, reply.status().as_u16())).or_default() += 1;
        reply
    }
}

/// The answer to a request that is refused.
fn refused(refusal: &Refusal) -> Reply {
    let mut reply = json(refusal.status, &Document { error: refusal });
    let header = match refusal.status {
        StatusCode::TOO_MANY_REQUESTS => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
        StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        _ => None,
    };
    reply.headers_mut().extend(header);
    reply
}

/// The paths that there are. Others are counted as one, because anyone can ask for any.
const PATHS: [&str; 9] = [
    "/health",
    "/metrics",
    "/v1/models",
    "/v1/completions",
    "/v1/chat/completions",
    "/pause",
    "/resume",
    "/is_paused",
    "/weight_info",
];

fn known(path: &str) -> &'static str {
    PATHS.into_iter().find(|known| *known == path).unwrap_or("other")
}

async fn route(state: &Rc<State>, request: Request<Incoming>, activity: &Activity) -> Result<Reply, Refusal> {
    let path = request.uri().path().to_owned();
    let counts = state.mailbox.counts();
    if path != "/health" {
        require_token(&request, state.token)?;
    }
    if path.strip_prefix("/v1/models/").is_some_and(|name| name == state.served.model)
        && request.method() == Method::GET
    {
        return Ok(json(StatusCode::OK, &model(state)));
    }
    let expected = match path.as_str() {
        "/v1/completions" | "/v1/chat/completions" | "/pause" | "/resume" => Method::POST,
        path if known(path) == path => Method::GET,
        _ => {
            let message = format!("no such path: expected one of {}", PATHS.join(", "));
            return Err(Refusal::of(StatusCode::NOT_FOUND, message));
        }
    };
    if request.method() != expected {
        let message = format!("{} {path}: expected {expected}", request.method());
        return Err(Refusal::of(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    match path.as_str() {
        "/v1/completions" | "/v1/chat/completions" => {
            let kind = if path == "/v1/completions" { Kind::Completion } else { Kind::Chat };
            let body = collected(request, BODY_MAX).await?;
            generate(state, kind, &body, activity).await
        }
        "/v1/models" => Ok(json(StatusCode::OK, &json!({ "object": "list", "data": [model(state)] }))),
        "/metrics" => Ok(text("text/plain; version=0.0.4", metrics(state))),
        "/pause" => {
            let pause = pause(request.uri().query().unwrap_or_default())?;
            if !collected(request, BODY_MAX).await?.is_empty() {
                return Err(Refusal::of(StatusCode::BAD_REQUEST, "a pause has no body: give `?mode=keep`"));
            }
            state.mailbox.send(Message::Pause(pause));
            Ok(json(StatusCode::OK, &json!({ "status": "paused" })))
        }
        "/resume" => {
            state.mailbox.send(Message::Resume);
            Ok(json(StatusCode::OK, &json!({ "status": "resumed" })))
        }
        "/is_paused" => {
            let is_paused = counts.is_paused.load(std::sync::atomic::Ordering::Relaxed);
            Ok(json(StatusCode::OK, &json!({ "is_paused": is_paused })))
        }
        "/weight_info" => {
            let updates = counts.updates.load(std::sync::atomic::Ordering::Relaxed);
            let info =
                json!({ "weight_version": &*counts.version(), "updates": updates, "source": state.served.source });
            Ok(json(StatusCode::OK, &info))
        }
        _ => Ok(text("text/plain", String::new())),
    }
}

fn model(state: &State) -> serde_json::Value {
    json!({
        "id": state.served.model, "object": "model", "created": 0, "owned_by": "zero",
        "max_model_len": state.served.length, "weight_version": &*state.mailbox.counts().version(),
    })
}

/// The mode of a pause, by vLLM's names. Sequences go on afterwards if none is given.
fn pause(query: &str) -> Result<Pause, Refusal> {
    let mode = match query.split_once('=') {
        _ if query.is_empty() => None,
        Some(("mode", mode)) => Some(mode),
        _ => return Err(Refusal::invalid("mode", format!("`{query}`: expected `mode=keep` and nothing else"))),
    };
    match mode {
        None | Some("keep") => Ok(Pause::Keep),
        Some("abort") => Ok(Pause::Abort),
        Some("wait") => Ok(Pause::Wait),
        Some(mode) => Err(Refusal::invalid("mode", format!("`mode` is `{mode}`, expected keep, abort or wait"))),
    }
}

fn json(status: StatusCode, document: &impl Serialize) -> Reply {
    with_type(status, "application/json", Answer::Whole(Some(json_bytes(document))))
}

fn text(kind: &'static str, text: String) -> Reply {
    with_type(StatusCode::OK, kind, Answer::Whole(Some(text.into())))
}
