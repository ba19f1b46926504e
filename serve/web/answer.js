// An answer of the model: requests it, and adds each piece of the stream to the message as it comes.
import { ApiError, events } from "./api.js";

function add_call(calls, delta) {
  const call = (calls[delta.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  if (delta.id) call.id = delta.id;
  call.function.name += delta.function?.name ?? "";
  call.function.arguments += delta.function?.arguments ?? "";
}

function add_piece(message, choice) {
  const delta = choice.delta;
  message.content += delta.content ?? "";
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
  for (const call of delta.tool_calls ?? []) add_call((message.tool_calls ??= []), call);
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

const PARAMETERS = ["temperature", "top_p", "top_k", "max_tokens", "seed"];

/** The body of a request for the next message, with these fields unless the settings have others. */
export function write_request(fields, settings, messages) {
  const body = { ...fields, stream: true, stream_options: { include_usage: true } };
  const system = settings.system ? [{ role: "system", content: settings.system }] : [];
  body.messages = system.concat(
    messages.map(({ role, content, tool_calls, tool_call_id }) => ({ role, content, tool_calls, tool_call_id })));
  for (const name of PARAMETERS) if (settings[name]) body[name] = Number(settings[name]);
  if (settings.tools) {
    try {
      body.tools = JSON.parse(settings.tools);
    } catch (error) {
      throw new Error(`The tools are not JSON: ${error.message}`);
    }
  }
  return body;
}

/**
 * Request an answer, and add it to `message` piece by piece. on_piece is called after each. An error becomes message.error;
 * where the signal has ended the request, so does message.finish.
 */
export async function receive_answer(api, write_body, message, signal, on_piece) {
  const begun = performance.now();
  let first = 0;
  try {
    const response = await api.post("/v1/chat/completions", write_body(), signal);
    for await (const event of events(response)) {
      if (event.error) throw new ApiError(0, event.error.message);
      if (event.usage) message.usage = event.usage;
      if (event.choices.length > 0) {
        first ||= performance.now();
        add_piece(message, event.choices[0]);
        on_piece();
      }
    }
    if (!message.finish) throw new Error("The server ended the answer before it was complete.");
  } catch (error) {
    if (signal.aborted) message.finish = "stopped";
    else message.error = error instanceof TypeError ? `The server cannot be reached (${error.message}).` : error.message;
  }
  const now = performance.now();
  message.seconds = { first: ((first || now) - begun) / 1000, rest: (now - (first || now)) / 1000 };
}
