#!/usr/bin/env python3
"""Checks a server of OpenAI's HTTP API by OpenAI's own client.

It asks a running server what programs ask such servers, by the package that they use for it, and compares
answers with each other: an answer in a stream with the whole one, a choice among several with the same one
alone, requests at the same time with the same requests one by one. The server's own additions are checked,
too: versions of weights, seeds, token ids and probabilities that it tells with an answer, and its pauses.

    pip install openai
    python3 openai_client.py http://127.0.0.1:8000 [--token TOKEN] [--chat]

With `--chat` the model has to have a chat template, without it the server has to say that there is none.
Nobody else may ask the server meanwhile, because its queue is filled and its counts are compared. Prints a
line for each check, and exits with 1 at the first that fails, after what was expected and what was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NoReturn

import openai
from openai import OpenAI

# Seconds that a request may take, and all checks together.
REQUEST_WITHIN = 30.0
ALL_WITHIN = 600.0
# Seconds in which the server has to notice something.
NOTICE_WITHIN = 10.0
# How often a comparison is tried again because the weights changed in the middle of it.
ATTEMPTS = 30
# More requests than the server has places.
CROWD = 60
# How far apart logarithms of probabilities may be that are the same, but were computed in two ways.
CLOSE = 1e-4
PROMPT = "The "
SEED = 7


class Mismatch(Exception):
    """The server did something else than expected."""


def fail(what: str, expected: object, found: object) -> NoReturn:
    """Ends a check."""
    raise Mismatch(f"{what}\n  expected: {expected}\n  found:    {found}")


def expect(what: str, expected: object, found: object) -> None:
    """Requires that two values are equal."""
    if expected != found:
        fail(what, repr(expected), repr(found))


def require(what: str, holds: bool, expected: str, found: object) -> None:
    """Requires that something holds."""
    if not holds:
        fail(what, expected, repr(found))


@dataclass
class Server:
    """The server that is checked."""

    url: str
    token: str | None
    client: OpenAI
    model: str = ""
    # The most tokens of a prompt and its answer together.
    length: int = 0

    def raw(self, method: str, path: str) -> str:
        """Asks for what is not part of OpenAI's API."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=REQUEST_WITHIN) as reply:
            text: str = reply.read().decode()
            return text

    def metric(self, name: str) -> int:
        """The value of a metric that has no labels."""
        for line in self.raw("GET", "/metrics").splitlines():
            if line.startswith(f"zero_{name} "):
                return round(float(line.split()[1]))
        fail("/metrics", f"a line with zero_{name}", "none")

    def pause(self) -> None:
        """Has all sequences stand still. The server answers before they do, so this waits for it."""
        self.raw("POST", "/pause")
        wait_until("a pause", "paused 1", lambda: self.metric("paused"), lambda paused: paused == 1)

    def resume(self) -> None:
        """Has all sequences go on."""
        self.raw("POST", "/resume")


@dataclass
class Said:
    """What was answered as one choice, whole or put together from a stream. Equal if all of it is."""

    text: str = ""
    finish: str | None = None
    seed: int | None = None
    spans: list[dict[str, Any]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    prompt_ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    # For each token, the likeliest ones. A chat has them in order, a completion does not.
    top: list[list[tuple[str, float]]] = field(default_factory=list)
    sampled: list[float] = field(default_factory=list)

    def versions(self) -> set[str]:
        """The versions of weights that it was computed with."""
        return {span["version"] for span in self.spans}

    def add(self, choice: Any, text: str | None) -> None:
        """Adds a chunk, or a whole choice."""
        extra = choice.model_extra or {}
        self.text += text or ""
        self.finish = choice.finish_reason or self.finish
        self.seed = extra.get("seed", self.seed)
        self.spans += extra.get("weight_versions", [])
        self.ids += extra.get("token_ids", [])
        self.prompt_ids += extra.get("prompt_token_ids", [])
        self.sampled += extra.get("sampled_logprobs", [])

    def add_completion(self, choice: Any) -> None:
        """Adds a chunk of a completion, or all of it."""
        self.add(choice, choice.text)
        if told := choice.logprobs:
            self.tokens += told.tokens
            self.offsets += told.text_offset
            self.log_probabilities += told.token_logprobs
            self.top += [list(top.items()) for top in told.top_logprobs]

    def add_chat(self, choice: Any, message: Any) -> None:
        """Adds a chunk of a chat, or all of it."""
        self.add(choice, message.content)
        if told := choice.logprobs:
            self.tokens += [token.token for token in told.content]
            self.log_probabilities += [token.logprob for token in told.content]
            self.top += [[(top.token, top.logprob) for top in token.top_logprobs] for token in told.content]


def expect_answers(what: str, expected: list[Said], found: list[Said]) -> None:
    """Requires that answers are equal, and names the first part that is not."""
    expect(f"{what}: how many", len(expected), len(found))
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        for part in fields(Said):
            expect(
                f"{what}: {part.name} of answer {index}", getattr(one, part.name), getattr(other, part.name)
            )


def complete(server: Server, **options: Any) -> Any:
    """A completion as the client gives it."""
    asked = {"model": server.model, "prompt": PROMPT, "max_tokens": 24, "seed": SEED, **options}
    return server.client.completions.create(**asked)


def whole(server: Server, **options: Any) -> list[Said]:
    """The choices of a completion."""
    choices = complete(server, **options).choices
    expect("the indices of the choices", list(range(len(choices))), [choice.index for choice in choices])
    said = [Said() for _ in choices]
    for choice in choices:
        said[choice.index].add_completion(choice)
    return said


def streamed(server: Server, count: int = 1, **options: Any) -> tuple[list[Said], list[Any]]:
    """The choices of a completion that comes in a stream, and the usages that it told."""
    said, usages = [Said() for _ in range(count)], []
    for chunk in complete(server, stream=True, **options):
        if chunk.usage:
            expect("the choices of the chunk with the usage", [], chunk.choices)
            usages.append(chunk.usage)
        for choice in chunk.choices:
            expect("the end of a choice before its last chunk", None, said[choice.index].finish)
            said[choice.index].add_completion(choice)
    return said, usages


def same_weights(ask: Callable[[], list[Said]]) -> list[Said]:
    """Asks until all answers are of one version of the weights, because only then can they be equal."""
    for _ in range(ATTEMPTS):
        said = ask()
        if len(set().union(*(it.versions() for it in said))) <= 1:
            return said
    fail("answers of one version of the weights", f"some within {ATTEMPTS} attempts", "none")


def long_answer(server: Server, **options: Any) -> Said:
    """An answer that ends by its length. Others may end earlier if the model has tokens that end a text."""
    for seed in range(SEED, SEED + ATTEMPTS):
        [said] = whole(server, **{"seed": seed, **options})
        if said.finish == "length":
            return said
    fail("an answer that ends by its length", f"one of {ATTEMPTS} seeds", "none")


def wait_until(what: str, expected: str, ask: Callable[[], int], holds: Callable[[int], bool]) -> None:
    """Waits for a number to be as expected."""
    until = time.monotonic() + NOTICE_WITHIN
    while not holds(found := ask()):
        if time.monotonic() > until:
            fail(what, f"{expected} within {NOTICE_WITHIN:g} s", found)
        time.sleep(0.05)


def refused(
    kind: type[openai.APIStatusError], ask: Callable[..., object], *given: Any, **options: Any
) -> openai.APIStatusError:
    """The error with which a request is refused."""
    what = f"{ask.__name__} with {options}"[:200]
    try:
        found = ask(*given, **options)
    except kind as error:
        return error
    except openai.APIError as error:
        fail(what, kind.__name__, f"{type(error).__name__}: {error}")
    fail(what, kind.__name__, repr(found)[:200])


# Checks. Each is named by its docstring.


def check_models(server: Server) -> None:
    """models.list names the model and the most tokens that it takes"""
    models = server.client.models.list().data
    expect("the number of models", 1, len(models))
    server.model = models[0].id
    server.length = (models[0].model_extra or {}).get("max_model_len", 0)
    require("the length of the model", server.length >= 64, "64 or more", server.length)


def check_usage(server: Server) -> None:
    """a completion keeps to max_tokens, ends by its length, and counts its tokens"""
    body = {"return_token_ids": True}
    for tokens_max in (1, 24):
        said = long_answer(server, max_tokens=tokens_max, extra_body=body)
        expect("the tokens of an answer that ends by its length", tokens_max, len(said.ids))
        answer = complete(server, n=2, max_tokens=tokens_max, extra_body=body)
        expect("the kind of document", "text_completion", answer.object)
        expect("the model of the answer", server.model, answer.model)
        found = answer.usage
        # A prompt counts once, however many choices it has.
        expect("the tokens of the prompt", len(said.prompt_ids), found.prompt_tokens)
        ids = [choice.model_extra["token_ids"] for choice in answer.choices]
        expect("the tokens of the choices", sum(map(len, ids)), found.completion_tokens)
        expect("all tokens", found.prompt_tokens + found.completion_tokens, found.total_tokens)
        require("the tokens of a choice", max(map(len, ids)) <= tokens_max, f"{tokens_max} at most", ids)


def check_default_length(server: Server) -> None:
    """a completion that asks for no number of tokens gets 16, as from OpenAI"""
    said = long_answer(server, max_tokens=openai.omit, extra_body={"return_token_ids": True})
    expect("the tokens of the answer", 16, len(said.ids))


def check_seed(server: Server) -> None:
    """the same seed gives the same answer, another seed another"""
    first, second = same_weights(lambda: whole(server) + whole(server))
    expect_answers("the same request again", [first], [second])
    expect("the seed that is told", SEED, first.seed)
    texts = {whole(server, seed=seed)[0].text for seed in range(5)}
    require("answers of 5 seeds", len(texts) > 1, "different ones", texts)


def check_fresh_seed(server: Server) -> None:
    """an answer without a seed tells the one that it was drawn by, and that seed gives it again"""

    def ask() -> list[Said]:
        [first] = whole(server, seed=openai.omit)
        return [first, *whole(server, seed=first.seed)]

    first, again = same_weights(ask)
    expect_answers("the seed that was told", [first], [again])


def check_token_prompt(server: Server) -> None:
    """a prompt of token ids gives what its text gives"""

    def ask() -> list[Said]:
        [of_text] = whole(server, extra_body={"return_token_ids": True})
        return [of_text, *whole(server, prompt=of_text.prompt_ids, extra_body={"return_token_ids": True})]

    of_text, of_ids = same_weights(ask)
    expect_answers("a prompt of ids", [of_text], [of_ids])


def check_prompts(server: Server) -> None:
    """each of several prompts gives what it gives alone, prompt by prompt"""
    prompts = ["The ", "fn ", "0, 1, 2"]
    said = same_weights(lambda: ask_each(server, prompts) + whole(server, prompt=prompts, n=2))
    expect_answers("three prompts, two choices of each", said[:6], said[6:])


def ask_each(server: Server, prompts: Iterable[str]) -> list[Said]:
    """Two choices of each prompt, in one request for each."""
    return [said for prompt in prompts for said in whole(server, prompt=prompt, n=2)]


def check_choices(server: Server) -> None:
    """choice j of a request is what a request with the seed + j gives"""

    def ask() -> list[Said]:
        return whole(server, n=3) + [said for j in range(3) for said in whole(server, seed=SEED + j)]

    said = same_weights(ask)
    expect_answers("three choices", said[3:], said[:3])
    expect("the seeds of three choices", [SEED, SEED + 1, SEED + 2], [it.seed for it in said[:3]])


def check_stop(server: Server) -> None:
    """an answer ends before a stop text, which is no part of it, also when the text spans tokens"""

    def ask() -> list[Said]:
        full = long_answer(server, max_tokens=48, logprobs=0)
        stop = stop_text(full)
        ended = whole(server, seed=full.seed, max_tokens=48, stop=stop)
        in_stream, _ = streamed(server, seed=full.seed, max_tokens=48, stop=["no such text", stop])
        expected = full.text[: full.text.find(stop)]
        # What is expected depends on the weights, so it is carried along until all of them are the same.
        return [Said(expected, "stop", spans=full.spans), *ended, *in_stream]

    expected, *found = same_weights(ask)
    for said in found:
        expect("the answer with a stop text", (expected.text, "stop"), (said.text, said.finish))


def stop_text(said: Said) -> str:
    """A text of the answer that begins in one token and ends in the next, some tokens after the beginning."""
    ends, at = [], 0
    for token in said.tokens:
        at += len(token)
        ends.append(at)
    if at == len(said.text):
        for end in ends[len(ends) // 4 : -1]:
            stop = said.text[end - 1 : end + 1]
            if said.text.find(stop) == end - 1:
                return stop
    # Parts of characters, or a text that repeats itself, have no such place: then any text of it serves.
    return said.text[len(said.text) // 2 :][:3]


def check_stop_ids(server: Server) -> None:
    """an answer ends before a token of stop_token_ids"""

    def ask() -> list[Said]:
        full = long_answer(server, max_tokens=48, extra_body={"return_token_ids": True})
        body = {"return_token_ids": True, "stop_token_ids": [full.ids[20]]}
        return [full, *whole(server, seed=full.seed, max_tokens=48, extra_body=body)]

    full, ended = same_weights(ask)
    expect("the ids before the stop", full.ids[: full.ids.index(full.ids[20])], ended.ids)
    expect("how the answer ended", "stop", ended.finish)


def check_stream(server: Server) -> None:
    """a stream says what the whole answer says, choice by choice, and its usage once in the end"""
    # Ids and probabilities are asked for so that they are compared, too.
    options: dict[str, Any] = {"n": 3, "logprobs": 2, "extra_body": {"return_token_ids": True}}
    usages: list[Any] = []

    def ask() -> list[Said]:
        nonlocal usages
        said, usages = streamed(server, count=3, stream_options={"include_usage": True}, **options)
        return said + whole(server, **options)

    said = same_weights(ask)
    expect_answers("a stream", said[3:], said[:3])
    expect("how often a stream tells its usage", 1, len(usages))
    ids = sum(len(it.ids) for it in said[:3])
    expect("the tokens that a stream counts", ids, usages[0].completion_tokens)
    _, usages = streamed(server)
    expect("the usages of a stream that was not asked for one", [], usages)


def check_done(server: Server) -> None:
    """a stream consists of events, of which the last is [DONE]"""
    asked: dict[str, Any] = {"model": server.model, "prompt": PROMPT, "max_tokens": 8, "stream": True}
    with server.client.completions.with_streaming_response.create(**asked) as reply:
        kind = reply.headers.get("content-type", "")
        require("the type of a stream", kind.startswith("text/event-stream"), "text/event-stream", kind)
        lines = [line for line in reply.iter_lines() if line]
    expect("lines that are no data", [], [line for line in lines if not line.startswith("data: ")])
    expect("the last event", "data: [DONE]", lines[-1])
    expect("how often a stream is done", 1, lines.count("data: [DONE]"))


def check_log_probabilities(server: Server) -> None:
    """logprobs are at most 0, and those of the likeliest tokens are above all others"""
    count = 5
    [said] = whole(server, logprobs=count)
    require_probabilities(said, count)
    # A token that is no whole text has a name that is not in the text, and then places are not compared.
    if "".join(said.tokens) == said.text:
        for token, at in zip(said.tokens, said.offsets, strict=True):
            expect(f"the text at {at}", token, said.text[at : at + len(token)])


def require_probabilities(said: Said, count: int) -> None:
    """Requires that an answer tells probabilities that can be."""
    require("an answer with probabilities", len(said.tokens) > 0, "tokens", said)
    for many in (said.log_probabilities, said.sampled, said.top):
        expect("how many probabilities are told", len(said.tokens), len(many))
    all_told = zip(said.tokens, said.log_probabilities, said.sampled, said.top, strict=True)
    for token, own, sampled, top in all_told:
        where, told, of_top = f"at {token!r}", (own, sampled, top), dict(top)
        require(f"the likeliest tokens {where}", 1 <= len(top) <= count, f"1 to {count}", top)
        require(f"logprobs {where}", max(own, sampled, *of_top.values()) <= 0, "0 at most", told)
        if token in of_top:
            require(f"the logprob {where}", abs(own - of_top[token]) < CLOSE, "that of the list", told)
        else:
            require(f"the logprob {where}", own <= min(of_top.values()) + CLOSE, "below the list", told)


def check_sampled(server: Server) -> None:
    """sampled_logprobs are those of the distribution that was drawn from"""
    [plain] = whole(server, logprobs=1)
    apart = [abs(a - b) for a, b in zip(plain.log_probabilities, plain.sampled, strict=True)]
    require("sampled_logprobs of the model's distribution", max(apart) < CLOSE, "its logprobs", plain)
    [only] = whole(server, logprobs=1, extra_body={"top_k": 1})
    require("sampled_logprobs of what alone can be drawn", min(only.sampled) > -CLOSE, "0", only.sampled)
    [cold] = whole(server, logprobs=1, temperature=0.5)
    apart = [abs(a - b) for a, b in zip(cold.log_probabilities, cold.sampled, strict=True)]
    require("sampled_logprobs at another temperature", max(apart) > CLOSE, "not the logprobs", cold)


def check_likeliest(server: Server) -> None:
    """top_k of 1 and a temperature of 0 give the likeliest token, whatever the seed"""

    def ask() -> list[Said]:
        by_rank = [whole(server, seed=seed, logprobs=1, extra_body={"top_k": 1})[0] for seed in (1, 2)]
        return by_rank + whole(server, logprobs=1, temperature=0)

    said = same_weights(ask)
    expect("answers of likeliest tokens", [said[0].text] * 3, [it.text for it in said])
    for it in said:
        expect("likeliest tokens", it.tokens, [top[0][0] for top in it.top])


def check_ids(server: Server) -> None:
    """return_token_ids tells the ids, and weight_versions cover all of them"""
    for options in ({}, {"stop": "e"}):
        [said] = whole(server, extra_body={"return_token_ids": True}, **options)
        require("the ids of the prompt", len(said.prompt_ids) > 0, "some", said.prompt_ids)
        ends = [0] + [span["end"] for span in said.spans]
        expect("where the spans of versions begin", ends[:-1], [span["start"] for span in said.spans])
        expect("where the spans of versions end", len(said.ids), ends[-1])
    [without] = whole(server)
    expect("ids that were not asked for", ([], []), (without.ids, without.prompt_ids))


def check_together(server: Server) -> None:
    """eight requests at once give what each gives alone"""
    seeds = range(8)

    def ask() -> list[Said]:
        alone = [whole(server, seed=seed, max_tokens=48)[0] for seed in seeds]
        with ThreadPoolExecutor(len(seeds)) as threads:
            together = list(threads.map(lambda seed: whole(server, seed=seed, max_tokens=48)[0], seeds))
        return alone + together

    said = same_weights(ask)
    expect_answers("requests at once", said[: len(seeds)], said[len(seeds) :])


def check_unknown(server: Server) -> None:
    """a parameter that is unknown or not done is a BadRequestError that names it"""
    asked: dict[str, dict[str, Any]] = {
        "nonsense": {"extra_body": {"nonsense": 1}},
        "best_of": {"best_of": 2},
        "echo": {"echo": True},
        "presence_penalty": {"presence_penalty": 0.5},
        "temperature": {"temperature": -1},
        "n": {"n": 0},
    }
    for name, options in asked.items():
        error = refused(openai.BadRequestError, complete, server, **options)
        message = error.message
        require(f"the message about {name}", f"`{name}`" in message, f"one with `{name}`", message)
        expect(f"the param of the error about {name}", name, error.param)
        expect(f"the type of the error about {name}", "invalid_request_error", error.type)


def check_too_long(server: Server) -> None:
    """more tokens than the model takes are a BadRequestError with the code context_length_exceeded"""
    for options in ({"max_tokens": server.length}, {"prompt": "a b" * server.length}):
        error = refused(openai.BadRequestError, complete, server, **options)
        expect("the code of a request that is too long", "context_length_exceeded", error.code)


def check_not_found(server: Server) -> None:
    """another model is a NotFoundError that names it"""
    error = refused(openai.NotFoundError, complete, server, model="other")
    expect("the code of a request for another model", "model_not_found", error.code)
    require("the message about another model", "other" in error.message, "one with its name", error.message)


def check_token(server: Server) -> None:
    """a wrong token is an AuthenticationError"""
    stranger = server.client.with_options(api_key="wrong")
    error = refused(openai.AuthenticationError, stranger.models.list)
    expect("the type of the error about a wrong token", "authentication_error", error.type)


def check_full(server: Server) -> None:
    """a full queue is a RateLimitError, and whoever has a place is answered in the end"""
    [said] = whole(server, max_tokens=1, extra_body={"return_token_ids": True})
    longest = server.length - len(said.prompt_ids)
    with ThreadPoolExecutor(CROWD) as threads:
        try:
            # Nothing ends during a pause, so the places are taken however fast the server is.
            server.pause()
            asked = [threads.submit(whole, server, seed=seed, max_tokens=longest) for seed in range(CROWD)]
            places = await_crowd(server, asked)
        finally:
            # The threads wait for the server, and the end of the pool for them.
            server.resume()
    errors = [error for it in asked if (error := it.exception())]
    for error in errors:
        if not isinstance(error, openai.RateLimitError):
            fail("a request to a full server", "RateLimitError", repr(error))
        expect("the code of a full queue", "queue_full", error.code)
    expect("the requests that were answered", places, CROWD - len(errors))
    require("the requests that were refused", len(errors) > 0, "some", len(errors))


def await_crowd(server: Server, asked: list[Future[list[Said]]]) -> int:
    """Waits until each request is refused or has a place. Returns how many have one."""
    places = 0

    def settled() -> int:
        nonlocal places
        places = server.metric("sequences_running") + server.metric("sequences_waiting")
        return places + sum(it.done() for it in asked)

    wait_until("requests with a place or an answer", f"{CROWD}", settled, lambda count: count == CROWD)
    return places


def check_leaving(server: Server) -> None:
    """a client that closes a stream in the middle frees its slots"""
    tokens, count = server.length // 2, server.metric("slots")
    for _ in range(ATTEMPTS):
        before = server.metric("generated_tokens_total")
        stream = complete(server, stream=True, n=count, max_tokens=tokens)
        try:
            next(iter(stream))
            # A fast server would be ready before the client has gone. During a pause it cannot be.
            server.pause()
            running, paused = server.metric("sequences_running"), server.metric("generated_tokens_total")
        finally:
            stream.close()
            # The server has to hear of it before sequences go on.
            time.sleep(0.5)
            server.resume()
        for name in ("sequences_running", "sequences_waiting"):
            wait_until(name, "0", partial(server.metric, name), lambda found: found == 0)
        if running > 0 and paused - before < count * tokens // 2:
            # Had they gone on to their ends, they would have as many again. One step may be under way.
            more = server.metric("generated_tokens_total") - paused
            require("tokens for a client that has gone", more <= running, f"{running} at most", more)
            return
    fail("a stream that is closed in the middle", f"one within {ATTEMPTS} attempts", "only whole ones")


def check_no_chat(server: Server) -> None:
    """a chat with a model that has no chat template is a BadRequestError that says so"""
    error = refused(openai.BadRequestError, chat, server)
    require("the message", "chat template" in error.message, "one with `chat template`", error.message)


def chat(server: Server, **options: Any) -> Any:
    """A chat as the client gives it."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    asked = {"model": server.model, "messages": messages, "max_completion_tokens": 16, "seed": SEED}
    return server.client.chat.completions.create(**{**asked, **options})


def whole_chat(server: Server, **options: Any) -> list[Said]:
    """The choices of a chat."""
    answer = chat(server, **options)
    expect("the kind of document", "chat.completion", answer.object)
    said = [Said() for _ in answer.choices]
    for choice in answer.choices:
        expect("who speaks", "assistant", choice.message.role)
        said[choice.index].add_chat(choice, choice.message)
    return said


def streamed_chat(server: Server, count: int, **options: Any) -> list[Said]:
    """The choices of a chat that comes in a stream."""
    said = [Said() for _ in range(count)]
    roles: list[list[str]] = [[] for _ in range(count)]
    for chunk in chat(server, stream=True, **options):
        expect("the kind of document", "chat.completion.chunk", chunk.object)
        for choice in chunk.choices:
            said[choice.index].add_chat(choice, choice.delta)
            roles[choice.index] += [choice.delta.role] if choice.delta.role else []
    expect("who speaks, once for each choice", [["assistant"]] * count, roles)
    return said


def check_chat(server: Server) -> None:
    """a chat is answered, keeps to its tokens and counts them"""
    answer = chat(server)
    choice, usage = answer.choices[0], answer.usage
    finish, generated = choice.finish_reason, usage.completion_tokens
    require("how a chat ends", finish in ("stop", "length"), "stop or length", finish)
    require("the tokens of a chat", generated <= 16, "16 at most", generated)
    expect("all tokens of a chat", usage.prompt_tokens + usage.completion_tokens, usage.total_tokens)
    first, again = same_weights(lambda: whole_chat(server) + whole_chat(server))
    expect_answers("the same chat again", [first], [again])
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    contents = ("Hello", parts)

    def ask() -> list[Said]:
        return [
            said
            for content in contents
            for said in whole_chat(server, messages=[{"role": "user", "content": content}])
        ]

    plain, of_parts = same_weights(ask)
    expect_answers("a chat whose message is in parts", [plain], [of_parts])


def check_chat_stream(server: Server) -> None:
    """a chat in a stream says what the whole one says"""
    options: dict[str, Any] = {"n": 2, "logprobs": True, "extra_body": {"return_token_ids": True}}
    said = same_weights(lambda: whole_chat(server, **options) + streamed_chat(server, 2, **options))
    expect_answers("a chat in a stream", said[:2], said[2:])


def check_chat_log_probabilities(server: Server) -> None:
    """logprobs of a chat are at most 0, and the likeliest tokens are in order"""
    said: list[Said] = []
    for seed in range(ATTEMPTS):
        # An answer may have no token.
        said = [it for it in whole_chat(server, seed=seed, logprobs=True, top_logprobs=4) if it.tokens]
        if said:
            break
    require("chats with tokens", len(said) > 0, f"one of {ATTEMPTS} seeds", said)
    require_probabilities(said[0], 4)
    for top in said[0].top:
        order = [log_probability for _, log_probability in top]
        expect("the order of the likeliest tokens", sorted(order, reverse=True), order)


def checks(has_chat: bool, has_token: bool) -> list[Callable[[Server], None]]:
    """All checks, in order."""
    chats = [check_chat, check_chat_stream, check_chat_log_probabilities] if has_chat else [check_no_chat]
    # Without a token everyone may ask, and no token is wrong.
    tokens = [check_token] if has_token else []
    return [
        check_models,
        check_usage,
        check_default_length,
        check_seed,
        check_fresh_seed,
        check_token_prompt,
        check_prompts,
        check_choices,
        check_stop,
        check_stop_ids,
        check_stream,
        check_done,
        check_log_probabilities,
        check_sampled,
        check_likeliest,
        check_ids,
        check_together,
        *chats,
        check_unknown,
        check_too_long,
        check_not_found,
        *tokens,
        check_full,
        check_leaving,
    ]


def give_up() -> None:
    """Ends the program from another thread, whatever it waits for."""
    print(f"failed: the checks took more than {ALL_WITHIN:g} s", file=sys.stderr, flush=True)
    os._exit(1)


def main() -> int:
    """Runs all checks. Returns the status to exit with."""
    parser = argparse.ArgumentParser(description="Checks a server of OpenAI's HTTP API by OpenAI's client.")
    parser.add_argument("url", help="of the server, without /v1")
    parser.add_argument("--token", help="what the server wants to be told, if anything")
    parser.add_argument("--chat", action="store_true", help="the model has a chat template")
    given = parser.parse_args()
    url = given.url.rstrip("/")
    # No retries: they would hide what the server answers.
    client = OpenAI(
        base_url=f"{url}/v1", api_key=given.token or "none", max_retries=0, timeout=REQUEST_WITHIN
    )
    server = Server(url, given.token, client)
    timer = threading.Timer(ALL_WITHIN, give_up)
    timer.daemon = True
    timer.start()
    for check in checks(given.chat, given.token is not None):
        try:
            check(server)
        except (Mismatch, openai.OpenAIError, OSError) as error:
            print(f"failed: {check.__doc__}\n{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        print(f"ok: {check.__doc__}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
