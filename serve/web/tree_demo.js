// The demonstration: many requests with one system prompt at once, and the figures of what they share.
//
// A browser opens six connections to a server at most, so sixteen streamed chats would never run at the same time. The chats are
// therefore rendered one by one (/v1/chat/completions/render), which computes nothing, and their tokens are sent together:
// /v1/completions takes an array of prompts, each of which is a request of its own to the engine.
import { events } from "./api.js";
import * as workload from "./demo.js";
import { create } from "./dom.js";
import { bytes_text } from "./tree_details.js";
import { count_of } from "./tree_view.js";

export const MOST_REQUESTS = workload.questions.length;
const START = `Show ${MOST_REQUESTS} requests at once`;

/** The prompts of the first n questions, as tokens. */
async function render(api, n, signal) {
  const rendered = workload.questions.slice(0, n).map(async (question) => {
    const messages = [{ role: "system", content: workload.system }, { role: "user", content: question }];
    const response = await api.post("/v1/chat/completions/render", { messages }, signal);
    return (await response.json()).token_ids;
  });
  return Promise.all(rendered);
}

/**
 * Run as many of the requests at once as the server has sequences (`max_sequences`). Whenever something changes, `report` is
 * called with the state: requests, running, ended, prompt_tokens, computed_tokens (null until they are known) and
 * completion_tokens. Throws if the server refuses, or when `signal` stops it.
 */
async function run_demo({ api, max_sequences, signal, report }) {
  const requests = Math.min(MOST_REQUESTS, max_sequences);
  const state = { requests, running: 0, ended: 0, prompt_tokens: 0, computed_tokens: null, completion_tokens: 0 };
  report(state);
  const prompt = await render(api, requests, signal);
  state.prompt_tokens = prompt.reduce((sum, tokens) => sum + tokens.length, 0);
  report(state);
  const { min_tokens, max_tokens } = workload;
  const options = { min_tokens, max_tokens, temperature: 0.7, seed: 16, stream: true, stream_options: { include_usage: true } };
  const response = await api.post("/v1/completions", { prompt, ...options }, signal);
  state.running = requests;
  report(state);
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    for (const choice of event.choices) {
      state.ended += choice.finish_reason !== null;
      state.completion_tokens++;
    }
    state.running = requests - state.ended;
    if (event.usage) {
      state.completion_tokens = event.usage.completion_tokens;
      state.computed_tokens = event.usage.prompt_tokens - event.usage.prompt_tokens_details.cached_tokens;
    }
    report(state);
  }
  return state;
}

/** The button that starts and stops the demonstration, and the section with its figures. */
export class Demo {
  /** on_start: called when it begins. */
  constructor(button, section, { api, on_start }) {
    Object.assign(this, { button, section, api, on_start, page: null, current: null });
    button.textContent = START;
    button.addEventListener("click", () => (this.current ? this.current.stop.abort() : this.start()));
  }

  get is_running() {
    return this.current !== null;
  }

  /** The server has answered with a page of its tree; null: it has refused. */
  update(page) {
    this.page = page;
    this.on_page?.();
    this.button.disabled = !page && !this.is_running;
    if (!page || !this.is_running) return;
    this.current.live_bytes = Math.max(this.current.live_bytes, page.live_bytes);
    this.current.unshared_bytes = Math.max(this.current.unshared_bytes, page.unshared_bytes);
    this.show();
  }

  /** Wait for a page that was requested after this call, so that the tree shows nothing older: the first may have been before. */
  async next_page() {
    for (let i = 0; i < 2; i++) await new Promise((resolve) => { this.on_page = resolve; });
  }

  async start() {
    const current = { stop: new AbortController(), before: this.page, live_bytes: 0, unshared_bytes: 0, state: null, end: null };
    this.current = current;
    this.section.hidden = false;
    this.button.textContent = "Stop";
    this.on_start();
    let end;
    try {
      await run_demo({
        api: this.api,
        max_sequences: this.page.max_sequences,
        signal: current.stop.signal,
        report: (state) => { current.state = state; },
      });
      end = "All have ended. Their text stays dimmed in the tree until its memory is needed.";
    } catch (error) {
      end = error.name === "AbortError" ? "Stopped." : error.message;
    }
    await this.next_page();
    current.end = end;
    this.button.textContent = START;
    this.button.disabled = !this.page;
    this.show();
    this.current = null;
  }

  show() {
    const { before, state, live_bytes, unshared_bytes, end } = this.current;
    if (!state) return;
    // Until the answer says it, what all requests have computed since the beginning is close enough.
    const since = (name) => (this.page?.[name] ?? 0) - before[name];
    const admitted = since("prompt_tokens");
    const is_rendered = state.prompt_tokens > 0;
    const so_far = is_rendered && admitted >= state.prompt_tokens ? admitted - since("cached_tokens") : null;
    const computed = state.computed_tokens ?? so_far;
    const share = computed === null ? "" : `${Math.round((100 * computed) / state.prompt_tokens)} % of them`;
    // The tree that is shown may be older than the answer.
    const running = end ? state.running : Math.max(state.running, Math.min(state.requests, this.page?.running ?? 0));
    const rows = [
      ["Requests", `${state.requests}`, `${running} running`],
      ["Prompt tokens", is_rendered ? state.prompt_tokens.toLocaleString("en") : "…", "of all together"],
      ["Computed", computed?.toLocaleString("en") ?? "…", share],
      ["K/V memory", bytes_text(live_bytes), `instead of ${bytes_text(unshared_bytes)}`],
    ];
    const cells = rows.map(([name, value, note]) =>
      create("div", {}, create("span", {}, name), create("b", {}, value), create("span", {}, note)));
    this.section.querySelector(".tree-cells").replaceChildren(...cells);
    const note = this.section.querySelector("p");
    const few = state.requests < MOST_REQUESTS ? `This server runs ${count_of(state.requests, "sequence")} at most (--max-seqs). ` : "";
    if (note.textContent !== few + (end ?? "")) note.textContent = few + (end ?? "");
  }
}
