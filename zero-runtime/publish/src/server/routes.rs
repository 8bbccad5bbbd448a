//! Routes: the answer to each request. Every answer is bounded in size and time, and no request makes training wait.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zero_core::published::PublishedCopies;

use super::body::Answer;
use super::versions::Versions;
use crate::http::{self, Activity, Answers, Refused, json_bytes, require_token, with_type};
use crate::wire::{Acknowledged, Joined, Joining, Newest, Refusal, Version};

/// How long a reader may ask to wait for a version.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// Bytes of the body of a request.
const BODY_MAX: usize = 4 << 10;
/// The longest sentence of a reader in a report.
const SENTENCE_MAX: usize = 200;

type Reply<C> = Response<Answer<C>>;

impl<C: PublishedCopies + 'static> Answers for Versions<C> {
    type Body = Answer<C>;

    async fn answer(self: Rc<Self>, request: Request<Incoming>, activity: Activity) -> Reply<C> {
        answer(&self, request, &activity).await.unwrap_or_else(|(status, error)| {
            let newest = *self.newest().borrow();
            let refusal = Refusal { error: error.into_owned(), newest: newest.map(|step| self.version(step)) };
            json(status, &refusal)
        })
    }
}

fn refuse<T>(status: StatusCode, why: impl Into<std::borrow::Cow<'static, str>>) -> Result<T, Refused> {
    Err((status, why.into()))
}

async fn answer<C: PublishedCopies>(
    versions: &Rc<Versions<C>>,
    request: Request<Incoming>,
    activity: &Activity,
) -> Result<Reply<C>, Refused> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let of_ranks = parts.get(1) == Some(&"ranks");
    // Ranks know a secret; readers know a token, if there is one.
    require_token(&request, if of_ranks { Some(versions.secret) } else { versions.token })?;
    let is_first = versions.served.rank == 0;
    match (request.method(), &parts[..]) {
        (&Method::GET, ["v1", "layout"]) => Ok(whole(StatusCode::OK, "application/json", versions.layout.clone())),
        (&Method::GET, ["v1", "files", name]) => match versions.served.files.iter().find(|file| file.name == *name) {
            Some(file) => Ok(whole(StatusCode::OK, BYTES, Bytes::copy_from_slice(&file.content))),
            None => refuse(StatusCode::NOT_FOUND, "no such file"),
        },
        (&Method::GET, ["v1", "versions", version, "hashes"]) => {
            let step = held(versions, version)?;
            match versions.hashes(step) {
                Some(hashes) => Ok(whole(StatusCode::OK, BYTES, hashes)),
                None => refuse(StatusCode::NOT_FOUND, "a version that is not whole yet"),
            }
        }
        (&Method::GET, ["v1", "versions", version, "bytes"]) => {
            let step = held(versions, version)?;
            bytes(versions, step, &request, activity)
        }
        (_, ["v1", "manifest" | "wait" | "subscribers" | "ranks", ..]) | (_, ["v1", "versions", _, "manifest"])
            if !is_first =>
        {
            refuse(StatusCode::NOT_FOUND, "rank 0 answers this")
        }
        (&Method::GET, ["v1", "manifest"]) => {
            let newest = *versions.newest().borrow();
            match newest.and_then(|step| versions.manifest(step)) {
                Some(manifest) => Ok(whole(StatusCode::OK, "application/json", manifest)),
                None => refuse(StatusCode::NOT_FOUND, "no version is whole now: `/v1/wait` answers once one is"),
            }
        }
        (&Method::GET, ["v1", "versions", version, "manifest"]) => {
            let step = held(versions, version)?;
            match versions.manifest(step) {
                Some(manifest) => Ok(whole(StatusCode::OK, "application/json", manifest)),
                None => refuse(StatusCode::NOT_FOUND, "a version that is not whole yet"),
            }
        }
        (&Method::GET, ["v1", "wait"]) => wait(versions, request.uri().query().unwrap_or_default(), activity).await,
        (&Method::POST, ["v1", "subscribers"]) => {
            let Joining { name } = body(request).await?;
            match versions.readers.join(&name, &versions.served.secret) {
                Some(id) => Ok(json(StatusCode::CREATED, &Joined { id, newest: newest(versions) })),
                None => refuse(StatusCode::SERVICE_UNAVAILABLE, "too many readers have joined"),
            }
        }
        (&Method::POST, ["v1", "subscribers", id, "ack"]) => acknowledge(versions, id, body(request).await?),
        (&Method::DELETE, ["v1", "subscribers", id]) => match versions.readers.leave(id) {
            true => Ok(whole(StatusCode::NO_CONTENT, BYTES, Bytes::new())),
            false => refuse(StatusCode::NOT_FOUND, "no such reader"),
        },
        (&Method::POST, ["v1", "ranks", rank, step]) => {
            let (Ok(rank), Ok(step)) = (rank.parse(), step.parse()) else {
                return refuse(StatusCode::BAD_REQUEST, "no rank and step");
            };
            let root = String::from_utf8(http::collected(request, BODY_MAX).await?.to_vec());
            let root = root.ok().filter(|root| root.len() == 64);
            match root.is_some_and(|root| versions.note_root(rank, step, root)) {
                true => Ok(whole(StatusCode::NO_CONTENT, BYTES, Bytes::new())),
                false => refuse(StatusCode::BAD_REQUEST, "no hash of a rank"),
            }
        }
        _ => refuse(StatusCode::NOT_FOUND, "no such document"),
    }
}

fn newest<C: PublishedCopies>(versions: &Versions<C>) -> Option<Version> {
    let step = *versions.newest().borrow();
    step.map(|step| versions.version(step))
}

/// The step of a version that is in a copy.
fn held<C: PublishedCopies>(versions: &Versions<C>, version: &str) -> Result<u64, Refused> {
    match Version(version.to_owned()).step_in(&versions.served.run) {
        Some(step) if versions.is_held(step) => Ok(step),
        Some(_) => refuse(StatusCode::GONE, "that version was given up, or is none of this run"),
        None => refuse(StatusCode::NOT_FOUND, "no version of this run"),
    }
}

/// Bytes of a copy: all of them, or one range.
fn bytes<C: PublishedCopies>(
    versions: &Rc<Versions<C>>,
    step: u64,
    request: &Request<Incoming>,
    activity: &Activity,
) -> Result<Reply<C>, Refused> {
    let all = versions.copies.bytes();
    let given = request.headers().get(RANGE).map(|range| range.to_str().ok().and_then(|range| parsed(range, all)));
    let (status, left) = match given {
        None => (StatusCode::OK, 0..all),
        Some(Some(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(None) => {
            return refuse(StatusCode::RANGE_NOT_SATISFIABLE, format!("no range within 0 to {all} bytes"));
        }
    };
    let range = format!("bytes {}-{}/{all}", left.start, left.end.wrapping_sub(1));
    let copy = Answer::Copy { versions: Rc::clone(versions), step, left, activity: Rc::clone(activity) };
    let mut reply = Response::builder().status(status).header(CONTENT_TYPE, BYTES).header(ACCEPT_RANGES, "bytes");
    if status == StatusCode::PARTIAL_CONTENT {
        reply = reply.header(CONTENT_RANGE, range);
    }
    Ok(reply.body(copy).expect("a status and headers of this crate"))
}

/// The one range of a header such as `bytes=0-99`, `bytes=100-` or `bytes=-100`.
fn parsed(range: &str, all: usize) -> Option<Range<usize>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let digits = |text: &str| if text.bytes().all(|digit| digit.is_ascii_digit()) { text.parse().ok() } else { None };
    let range = match (first, last) {
        ("", last) => all.checked_sub(digits(last)?)?..all,
        (first, "") => digits(first)?..all,
        (first, last) => digits(first)?..all.min(digits(last)?.checked_add(1)?),
    };
    (range.start < range.end).then_some(range)
}

/// Answers once there is another version than the one that the reader has.
async fn wait<C: PublishedCopies>(
    versions: &Versions<C>,
    query: &str,
    activity: &Activity,
) -> Result<Reply<C>, Refused> {
    let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    let seconds = value("seconds").map_or(Some(WAIT_MAX.as_secs()), |seconds| seconds.parse().ok());
    let Some(seconds) = seconds else { return refuse(StatusCode::BAD_REQUEST, "`seconds` is no number") };
    let after = value("after").and_then(|after| Version(after.to_owned()).step_in(&versions.served.run));
    let mut newest = versions.newest();
    let is_new = |step: &Option<u64>| step.is_some() && *step != after;
    let patience = Duration::from_secs(seconds).min(WAIT_MAX);
    let found = async { newest.wait_for(is_new).await.map(|step| *step).ok() };
    match http::wait(activity, tokio::time::timeout(patience, found)).await.map(|found| found.ok_or(())) {
        Ok(Ok(step)) => Ok(json(StatusCode::OK, &Newest { newest: step.map(|step| versions.version(step)) })),
        _ => Ok(whole(StatusCode::NO_CONTENT, BYTES, Bytes::new())),
    }
}

fn acknowledge<C: PublishedCopies>(
    versions: &Versions<C>,
    id: &str,
    Acknowledged { version, error }: Acknowledged,
) -> Result<Reply<C>, Refused> {
    // A version of an earlier run settles nothing of this one.
    let step = version.step_in(&versions.served.run);
    let Some(name) = versions.readers.acknowledge(id, step) else {
        return refuse(StatusCode::NOT_FOUND, "no such reader: join again");
    };
    if let Some(error) = error {
        let [error, version] = [&error, &version.0]
            .map(|text| text.chars().filter(|letter| !letter.is_control()).take(SENTENCE_MAX).collect::<String>());
        versions.report(&format!("note: reader `{name}` refused version {version}: {error}\n"));
    }
    Ok(json(StatusCode::OK, &Newest { newest: newest(versions) }))
}

async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refused> {
    let body = http::collected(request, BODY_MAX).await?;
    serde_json::from_slice(&body).map_err(|error| (StatusCode::BAD_REQUEST, format!("not as expected: {error}").into()))
}

const BYTES: &str = "application/octet-stream";

fn whole<C>(status: StatusCode, kind: &'static str, bytes: Bytes) -> Reply<C> {
    with_type(status, kind, Answer::Whole(Some(bytes)))
}

fn json<C>(status: StatusCode, document: &impl Serialize) -> Reply<C> {
    whole(status, "application/json", json_bytes(document))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_within_the_bytes() {
        for (text, range) in [
            ("bytes=0-99", Some(0..100)),
            ("bytes=100-", Some(100..1000)),
            ("bytes=-100", Some(900..1000)),
            ("bytes=990-2000", Some(990..1000)),
            ("bytes=1000-", None),
            ("bytes=5-4", None),
            ("bytes=-1001", None),
            ("bytes=-0", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("bytes=0-18446744073709551615", None),
            ("bytes=0-1,5-6", None),
            ("bytes=-", None),
            ("items=0-1", None),
        ] {
            assert_eq!(parsed(text, 1000), range, "{text}");
        }
    }
}
