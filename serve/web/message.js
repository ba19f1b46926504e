// How a message looks: what a user wrote, an answer with its reasoning and calls of tools, or the result of a tool.
import { create } from "./dom.js";
import { show_markdown } from "./markdown.js";

const number = new Intl.NumberFormat("en");
const labels = { user: "You", assistant: "Answer", tool: "Result of a tool" };

/** Arguments with line breaks, once they are whole. */
function format_arguments(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const show_call = ({ function: { name, arguments: text } }) =>
  create("div", { class: "code call" }, create("div", { class: "code-head" }, create("span", {}, `Calls ${name}`)),
    create("pre", {}, create("code", {}, format_arguments(text))));

const endings = { length: "cut at its greatest length", stopped: "stopped" };

/** What an answer has cost, and what it found in the cache. */
function describe({ usage, seconds, finish }) {
  const parts = [];
  if (usage && seconds) {
    const n = usage.completion_tokens;
    const rate = n > 1 && seconds.rest > 0 ? `, ${number.format(Math.round((n - 1) / seconds.rest))}/s` : "";
    parts.push(`${number.format(n)} tokens${rate}`, `first after ${seconds.first.toFixed(2)} s`);
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${number.format(cached)} of ${number.format(usage.prompt_tokens)} prompt tokens cached`);
  }
  if (endings[finish]) parts.push(endings[finish]);
  return parts.join(" · ");
}

function create_user_view(message, actions) {
  const body = create("div", { class: "text" });
  body.textContent = message.content;
  const attributes = { class: `message ${message.role}`, "aria-label": labels[message.role] };
  return { element: create("article", attributes, body, actions), update() {} };
}

function create_answer_view(message, actions) {
  const thoughts = create("div", { class: "markdown" });
  const reasoning = create("details", { class: "reasoning" }, create("summary", {}, "Reasoning"), thoughts);
  const body = create("div", { class: "markdown" });
  const calls = create("div");
  const error = create("p", { class: "error", role: "alert" });
  const note = create("span", { class: "note" });
  actions.prepend(note);
  const attributes = { class: "message assistant", "aria-label": labels.assistant };
  const element = create("article", attributes, reasoning, body, calls, error, actions);
  const update = (running = false) => {
    reasoning.hidden = !message.reasoning;
    if (message.reasoning) {
      show_markdown(thoughts, message.reasoning);
      if (running) reasoning.open = !message.content;
    }
    show_markdown(body, message.content);
    calls.replaceChildren(...(message.tool_calls ?? []).map(show_call));
    error.hidden = !message.error;
    if (error.textContent !== (message.error ?? "")) error.textContent = message.error ?? "";
    note.textContent = running ? "" : describe(message);
    element.classList.toggle("running", running);
  };
  update();
  return { element, update };
}

/** An article with the message and buttons below it; update() shows it again, while it is `running` or afterwards. */
export function create_message_view(message, buttons) {
  const actions = create("footer", {}, ...buttons);
  return message.role === "assistant" ? create_answer_view(message, actions) : create_user_view(message, actions);
}
