//! Engines: tells servers that generate, vLLM's and SGLang's, to load the folder once it has a version. Never waits for one without a
//! bound, and an engine that fails harms neither the folder nor the others.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use zero_publish::PublishError;
use zero_publish::client::{Connection, within};

use crate::error::CommandError;

/// How long an engine may take to load a version, unless its entry says otherwise.
const PATIENCE_S: u64 = 120;

/// How long an engine that has failed may take to go on.
const RESUMES_WITHIN: Duration = Duration::from_secs(2);

/// A server that generates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Whose routes it has.
    kind: EngineKind,
    /// Where it is: `http://HOST:PORT`.
    url: String,
    /// What it wants as a token.
    token: Option<String>,
    /// The folder as the engine finds it, if it is on another host.
    folder: Option<String>,
    /// How long it may take.
    patience: Option<u64>,
}

/// Whose routes a server has.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EngineKind {
    Vllm,
    Sglang,
}

/// A request, and the key of its answer that must be true, if it has one.
struct Call {
    path: &'static str,
    body: Value,
    succeeds: Option<&'static str>,
}

impl Call {
    fn new(path: &'static str, body: Value) -> Self {
        Self { path, body, succeeds: None }
    }
}

/// The engines that a file names: a list in JSON.
pub fn read(path: &Path) -> Result<Vec<Engine>, CommandError> {
    let refused = |why: String| CommandError::Follow {
        what: format!("{} names no engines: {why}", path.display()),
        help: "expected a list such as `[{\"kind\": \"vllm\", \"url\": \"http://127.0.0.1:8000\"}]`; kinds are vllm and sglang",
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refused(error.to_string()))
}

impl Engine {
    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is asked of it to load `folder`, which has `version`. Requests under way wait meanwhile, and go on with their caches.
    fn calls(&self, folder: &str, version: &str) -> Vec<Call> {
        match self.kind {
            EngineKind::Vllm => vec![
                Call::new("/pause?mode=keep", Value::Null),
                Call::new(
                    "/collective_rpc",
                    json!({ "method": "reload_weights", "kwargs": { "weights_path": folder } }),
                ),
                Call::new("/reset_prefix_cache", Value::Null),
                Call::new("/resume", Value::Null),
            ],
            EngineKind::Sglang => {
                let body = json!({ "model_path": folder, "weight_version": version, "flush_cache": true });
                vec![Call { succeeds: Some("success"), ..Call::new("/update_weights_from_disk", body) }]
            }
        }
    }

    /// Has it load the folder.
    ///
    /// # Errors
    /// A sentence that names it.
    pub async fn load(&self, folder: &Path, version: &str) -> Result<(), String> {
        let patience = self.patience.unwrap_or(PATIENCE_S);
        let loaded = within(Duration::from_secs(patience), self.load_all(folder, version)).await;
        let failed = match loaded {
            None => Some(format!("it has not loaded it within {patience} s")),
            Some(loaded) => loaded.err(),
        };
        if failed.is_some() && self.kind == EngineKind::Vllm {
            // It may stand still, and goes on with what it has. That it failed is told already.
            let _ = within(RESUMES_WITHIN, self.ask(&Call::new("/resume", Value::Null))).await;
        }
        failed.map_or(Ok(()), |why| Err(format!("engine {} has no version {version}: {why}", self.url)))
    }

    async fn load_all(&self, folder: &Path, version: &str) -> Result<(), String> {
        let own = folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).display().to_string();
        for call in self.calls(self.folder.as_ref().unwrap_or(&own), version) {
            let answer = self.ask(&call).await.map_err(|error| error.to_string())?;
            let said: Value = serde_json::from_slice(&answer).unwrap_or_default();
            if call.succeeds.is_some_and(|key| said[key] != true) {
                let why = said["message"].as_str().unwrap_or("it does not say why");
                return Err(format!("{} did not succeed: {why}", call.path));
            }
        }
        Ok(())
    }

    async fn ask(&self, call: &Call) -> Result<Vec<u8>, PublishError> {
        let body = if call.body.is_null() { String::new() } else { call.body.to_string() };
        let mut connection = Connection::open(&self.url, self.token.as_deref()).await?;
        Ok(connection.request("POST", call.path, body.into_bytes().into()).await?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use zero_publish::client::block_on;

    /// A server that gives each request the next of these answers, and passes on what it was asked. Without one it is silent.
    fn server(answers: &'static [(u16, &'static str)]) -> (String, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (asked, requests) = channel();
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.expect("a connection");
                let mut reader = BufReader::new(stream.try_clone().expect("a connection"));
                let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
                reader.read_line(&mut first).expect("a request");
                while reader.read_line(&mut line).is_ok_and(|_| line.len() > 2) {
                    let lower = line.to_lowercase();
                    length = lower
                        .strip_prefix("content-length: ")
                        .map_or(length, |it| it.trim().parse().expect("a number"));
                    line.clear();
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).expect("a body");
                let _ = asked.send(format!("{} {}", first.trim(), String::from_utf8_lossy(&body)));
                match answers.get(number) {
                    Some((status, body)) => {
                        let _ = write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    }
                    None => silent.push(stream),
                }
            }
        });
        (url, requests)
    }

    fn loaded(kind: &str, answers: &'static [(u16, &'static str)]) -> (Result<(), String>, Vec<String>) {
        let (url, requests) = server(answers);
        let text = json!([{ "kind": kind, "url": url, "folder": "/models/new", "patience": 1 }]).to_string();
        let [engine] = &serde_json::from_str::<Vec<Engine>>(&text).expect("engines")[..] else { panic!("one engine") };
        let loaded = block_on(engine.load(Path::new("."), "7-ab")).expect("a runtime");
        (loaded.map_err(|why| why.replace(&engine.url, "URL")), requests.try_iter().collect())
    }

    #[test]
    fn each_kind_is_asked_by_its_own_routes() {
        let (loaded_by, asked) = loaded("vllm", &[(200, ""), (200, "{\"results\": [null]}"), (200, ""), (200, "")]);
        assert_eq!(loaded_by, Ok(()));
        let paths: Vec<&str> = asked.iter().filter_map(|it| it.split(' ').nth(1)).collect();
        assert_eq!(paths, ["/pause?mode=keep", "/collective_rpc", "/reset_prefix_cache", "/resume"]);
        assert!(asked[1].ends_with("{\"kwargs\":{\"weights_path\":\"/models/new\"},\"method\":\"reload_weights\"}"));
        let (loaded_by, asked) = loaded("sglang", &[(200, "{\"success\": true, \"message\": \"ok\"}")]);
        assert_eq!(loaded_by, Ok(()));
        let body = "{\"flush_cache\":true,\"model_path\":\"/models/new\",\"weight_version\":\"7-ab\"}";
        assert_eq!(asked, [format!("POST /update_weights_from_disk HTTP/1.1 {body}")]);
    }

    #[test]
    fn an_engine_that_fails_is_named_with_its_reason() {
        for (kind, answers, words) in [
            ("vllm", &[(500, "x"), (200, "")][..], "URL/pause?mode=keep answers 500"),
            ("vllm", &[(200, ""), (404, ""), (200, "")], "URL/collective_rpc answers 404"),
            ("vllm", &[(200, "")], "it has not loaded it within 1 s"),
            ("sglang", &[(200, "{\"success\": false, \"message\": \"no room\"}")], "did not succeed: no room"),
            ("sglang", &[(200, "done")], "did not succeed: it does not say why"),
        ] {
            let (loaded, _) = loaded(kind, answers);
            let why = loaded.expect_err(words);
            assert!(why.starts_with("engine URL has no version 7-ab: ") && why.contains(words), "{why}");
        }
        // One that stands still is asked to go on.
        let (_, asked) = loaded("vllm", &[(200, ""), (500, ""), (200, "")]);
        assert!(asked[2].starts_with("POST /resume "), "{asked:?}");
        let engine: Engine =
            serde_json::from_value(json!({ "kind": "vllm", "url": "http://127.0.0.1:1" })).expect("an engine");
        let why = block_on(engine.load(Path::new("."), "1-a")).expect("a runtime").expect_err("nobody");
        assert!(why.contains("no answer from http://127.0.0.1:1"), "{why}");
    }

    #[test]
    fn z0138_engines_that_cannot_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("engines.json");
        for text in [
            "",
            "{}",
            "[{}]",
            "[{\"kind\": \"tgi\", \"url\": \"http://a:1\"}]",
            "[{\"kind\": \"vllm\", \"url\": \"a\", \"uri\": 1}]",
        ] {
            std::fs::write(&path, text).expect("a file");
            let error = read(&path).expect_err(text).to_string();
            assert!(error.starts_with("error[Z0138]: ") && error.contains("kinds are vllm and sglang"), "{error}");
        }
        assert!(read(Path::new("/nowhere")).is_err());
        std::fs::write(&path, "[]").expect("a file");
        assert_eq!(read(&path).expect("no engines"), []);
    }
}
