//! Generate: from a request to jobs, and from what is told of them to an answer: whole, or as server-sent events.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel, unbounded_channel};
use zero_publish::http::{self, Activity, json_bytes, with_type};

use super::body::Answer;
use super::{Answering, State};
use crate::api::answer::{Finish, Head, Part, Usage, note};
use crate::api::refusal::{Document, Refusal};
use crate::api::request::{Asked, Kind};
use crate::api::spoken::Spoken;
use crate::control::Message;
use crate::job::{Ending, Job, Told};

/// Parts and events that may wait for a client.
const WAITING_MAX: usize = 16;

/// Seeds that nobody gave are whole numbers in every language.
const SEED_SHIFT: u32 = 64 - 53;

/// Answers a request for tokens.
pub async fn generate(
    state: &Rc<State>,
    kind: Kind,
    body: &[u8],
    activity: &Activity,
) -> Result<hyper::Response<Answer>, Refusal> {
    let asked = Asked::read(kind, body, &state.served.words)?;
    let served = &state.served.model;
    if let Some(model) = asked.model.as_ref().filter(|model| *model != served) {
        let message = format!("the model `{model}` is not here, this worker serves `{served}`");
        let refusal = Refusal { param: Some("model".to_owned()), ..Refusal::of(StatusCode::NOT_FOUND, message) };
        return Err(refusal.coded("model_not_found"));
    }
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let name = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
    let head = Head {
        kind,
        id: format!("{name}-{:016x}", state.fresh()),
        created,
        model: served.clone(),
        tells_ids: asked.options.tells_ids,
    };
    let parts = begin(state, &asked)?;
    let usage = Usage { prompt: asked.prompts.iter().map(Vec::len).sum(), generated: 0 };
    let choices = asked.prompts.len() * asked.options.choices;
    if !asked.options.streams {
        return http::wait(activity, whole(state, &head, parts, usage, choices)).await;
    }
    let (sender, events) = channel(WAITING_MAX);
    let usage = asked.options.streams_usage.then_some(usage);
    tokio::task::spawn_local(stream(Rc::clone(state), head, parts, sender, usage, Rc::clone(activity)));
    let answer = Answer::Events { events, activity: Rc::clone(activity), _answering: Answering::of(state) };
    let mut reply = with_type(StatusCode::OK, "text/event-stream", answer);
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(reply)
}

/// Has the worker begin all choices, if it has room for them. Their parts come in any order.
fn begin(state: &Rc<State>, asked: &Asked) -> Result<Receiver<Part>, Refusal> {
    let (served, options) = (&state.served, &asked.options);
    let counts = state.mailbox.counts();
    let tokens_max = |prompt: &Vec<u32>| {
        let (length, prompt) = (served.length, prompt.len());
        let most = options.tokens_max.unwrap_or(length.saturating_sub(prompt));
        if most == 0 || prompt.saturating_add(most) > length {
            let found = format!("the prompt has {prompt} tokens, and {most} are to follow");
            let message = format!("{found}, but this model takes {length} together");
            return Err(Refusal::invalid("max_tokens", message).coded("context_length_exceeded"));
        }
        Ok(most)
    };
    let tokens_max: Vec<usize> = asked.prompts.iter().map(tokens_max).collect::<Result<_, _>>()?;
    let (choices, room) = (asked.prompts.len() * options.choices, served.slots + served.queue);
    if choices > room {
        let message = format!("{choices} choices, but this worker has {room} places: ask for fewer at a time");
        return Err(Refusal::invalid("n", message));
    }
    if counts.ends.load(Ordering::Relaxed) {
        return Err(Refusal::of(StatusCode::SERVICE_UNAVAILABLE, "this worker ends"));
    }
    if counts.open.load(Ordering::Relaxed) + choices > room {
        let message = format!("all {room} places of this worker are taken: try again later");
        return Err(Refusal::of(StatusCode::TOO_MANY_REQUESTS, message).coded("queue_full"));
    }
    counts.open.fetch_add(choices, Ordering::Relaxed);
    let mut stop_ids = options.stop_ids.clone();
    stop_ids.extend(served.words.ends());
    let seed = options.seed.unwrap_or_else(|| state.fresh() >> SEED_SHIFT);
    let (parts, received) = channel(WAITING_MAX);
    for index in 0..choices {
        let prompt = index / options.choices;
        // Choices of a prompt differ by their seeds.
        let seed = seed.wrapping_add((index % options.choices) as u64);
        let (told, heard) = unbounded_channel();
        state.mailbox.send(Message::Job(Box::new(Job {
            ids: asked.prompts[prompt].clone(),
            tokens_max: tokens_max[prompt],
            sampling: options.sampling,
            seed,
            stop_ids: stop_ids.clone(),
            top: asked.log_probabilities,
            told,
        })));
        let finish = Finish { ending: Ending::Stop, seed, spans: Vec::new(), prompt: asked.prompts[prompt].clone() };
        let (state, stops, parts) = (Rc::clone(state), options.stops.clone(), parts.clone());
        tokio::task::spawn_local(async move { speak(&state, index, &stops, finish, heard, parts).await });
    }
    Ok(received)
}

/// Turns what is told of a job into parts of a choice. Ends, and with it the job, once nobody takes them.
async fn speak(
    state: &State,
    index: usize,
    stops: &[String],
    mut finish: Finish,
    mut heard: UnboundedReceiver<Told>,
    parts: Sender<Part>,
) {
    let mut spoken = Spoken::new(&state.served.words, stops);
    loop {
        let told = tokio::select! {
            told = heard.recv() => told,
            () = parts.closed() => return,
        };
        let mut part = Part { index, ..Part::default() };
        let ending = match told {
            Some(Told::Token(token)) => {
                note(&mut finish.spans, &token.version);
                let offset = spoken.heard();
                let (text, has_ended) = spoken.hear(token.id);
                (part.text, part.tokens) = (text, vec![(offset, token)]);
                has_ended.then_some(Ending::Stop)
            }
            Some(Told::Ended(ending)) => Some(ending),
            None => Some(Ending::Shutdown),
        };
        if let Some(ending) = ending {
            part.text.push_str(&spoken.end());
            finish.ending = ending;
            part.ending = Some(finish);
            // Whoever has gone needs no end.
            let _ = parts.send(part).await;
            return;
        }
        if parts.send(part).await.is_err() {
            return;
        }
    }
}

/// Why an answer cannot be given, if it ended so.
fn failed(ending: Ending) -> Option<Refusal> {
    let (status, message) = match ending {
        Ending::NotFinite => (StatusCode::INTERNAL_SERVER_ERROR, "logits of this model are infinite or not a number"),
        Ending::Shutdown => (StatusCode::SERVICE_UNAVAILABLE, "this worker has ended"),
        Ending::Stop | Ending::Length | Ending::Aborted => return None,
    };
    Some(Refusal::of(status, message))
}

async fn whole(
    state: &State,
    head: &Head,
    mut parts: Receiver<Part>,
    mut usage: Usage,
    choices: usize,
) -> Result<hyper::Response<Answer>, Refusal> {
    let mut all: Vec<Part> = (0..choices).map(|index| Part { index, ..Part::default() }).collect();
    while let Some(part) = parts.recv().await {
        if let Some(refusal) = part.ending.as_ref().and_then(|finish| failed(finish.ending)) {
            return Err(refusal);
        }
        let choice = &mut all[part.index];
        choice.text.push_str(&part.text);
        choice.tokens.extend(part.tokens);
        choice.ending = part.ending;
    }
    usage.generated = all.iter().map(|choice| choice.tokens.len()).sum();
    let choices: Vec<Value> = all.iter().map(|part| head.choice(&state.served.words, part, false, true)).collect();
    let document = head.document(&choices, false, Some(usage));
    Ok(with_type(StatusCode::OK, "application/json", Answer::Whole(Some(json_bytes(&document)))))
}

/// An event with a document.
fn event(document: &Value) -> Bytes {
    format!("data: {document}\n\n").into()
}

async fn stream(
    state: Rc<State>,
    head: Head,
    mut parts: Receiver<Part>,
    events: Sender<Bytes>,
    usage: Option<Usage>,
    activity: Activity,
) {
    let (mut begun, mut generated) = (BTreeSet::new(), 0);
    loop {
        let part = tokio::select! {
            part = http::wait(&activity, parts.recv()) => part,
            () = events.closed() => return,
        };
        let Some(part) = part else { break };
        generated += part.tokens.len();
        let refusal = part.ending.as_ref().and_then(|finish| failed(finish.ending));
        let event = match refusal {
            Some(refusal) => event(&json!(Document { error: &refusal })),
            None => {
                let choice = head.choice(&state.served.words, &part, true, begun.insert(part.index));
                event(&head.document(&[choice], true, None))
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
    if let Some(usage) = usage {
        let document = head.document(&[], true, Some(Usage { generated, ..usage }));
        // Whoever has gone needs no end.
        let _ = events.send(event(&document)).await;
    }
    let _ = events.send("data: [DONE]\n\n".into()).await;
}
