// The demonstration: many requests with one system prompt at once, and the figures of what they share.
//
// A browser opens six connections to a server at most, so sixteen streamed chats would never run at the same time. The chats are
// therefore rendered one by one (/v1/chat/completions/render), which computes nothing, and their tokens are sent together:
// /v1/completions takes an array of prompts, each of which is a request of its own to the engine.
import { events } from "./api.js";
import * as workload from "./demo.js";

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
 * Run the requests that fit into a server with so many sequences. `report` is called whenever something changes with the state:
 * requests, running, ended, prompt_tokens, computed_tokens (null until they are known) and completion_tokens. Throws if
 * the server refuses, or when `signal` stops it.
 */
export async function run_demo({ api, max_sequences, signal, report }) {
  const requests = Math.min(workload.questions.length, max_sequences);
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
