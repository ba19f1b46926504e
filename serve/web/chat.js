// The chat: what is typed, the answers as they stream in, and the list of chats.
import { receive_answer, write_request } from "./answer.js";
import { all_chats, change_setting, create_chat, find_chat, on_chats_changed, remove_chat, store_chat } from "./chats.js";
import { create, create_button } from "./dom.js";
import { create_message_view } from "./message.js";

const log = document.getElementById("log");
const input = document.getElementById("input");
const send = document.getElementById("send");
const stop = document.getElementById("stop");
const list = document.getElementById("chats");
const new_chat = document.getElementById("new-chat");
const settings = document.getElementById("settings");
const announcement = document.getElementById("announcement");

const EXAMPLES = [
  "Explain in three sentences what a prefix tree is.",
  "Write a short poem about sharing.",
  "Name five rivers of Europe in a table with their lengths.",
];

const LONGEST_TITLE = 80;
const NEAR_END = 80; // pixels from the log's end, up to which it follows an answer

/** Start the chat with a model's name, and the fields of requests for which there are no settings. */
export function start_chat({ api, model, sampling }) {
  let chat = all_chats()[0] ?? create_chat();
  let running = null; // the AbortController of the answer that streams in

  // ---- The log ----

  const follows = () => log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END;
  const follow = () => (log.scrollTop = log.scrollHeight);

  function create_view(message) {
    const buttons = [];
    if (message.role === "user") buttons.push(create_button("Edit", () => edit(message)));
    if (message.role === "assistant") buttons.push(create_button("Regenerate", () => regenerate(message)));
    if (navigator.clipboard) buttons.push(create_button("Copy", () => navigator.clipboard.writeText(message.content)));
    return create_message_view(message, buttons);
  }

  function show_examples() {
    const items = EXAMPLES.map((text) => {
      const button = create_button(text, () => submit(text));
      button.className = "example";
      return button;
    });
    log.replaceChildren(create("div", { id: "welcome" },
      create("h2", {}, "What would you like to know?"),
      create("p", { class: "muted" },
        "What requests have in common is stored, computed and read once. The tree shows it while they run."),
      ...items));
  }

  function show_chat() {
    log.replaceChildren(...chat.messages.map((message) => create_view(message).element));
    if (chat.messages.length === 0) show_examples();
    for (const field of settings.elements) if (field.name) field.value = chat.settings[field.name] ?? "";
    show_list();
    show_state();
    follow();
  }

  /** The first call of the last answer that has no result yet, which is what will be typed next; undefined: none. */
  function open_call() {
    const last = chat.messages.findLastIndex((message) => message.role === "assistant");
    const answered = chat.messages.slice(last + 1).map((message) => message.tool_call_id);
    return chat.messages[last]?.tool_calls?.find((call) => !answered.includes(call.id));
  }

  function show_state() {
    const call = running ? undefined : open_call();
    send.hidden = Boolean(running);
    stop.hidden = !running;
    send.disabled = input.value.trim() === "";
    input.placeholder = call ? `Result of ${call.function.name}` : "Ask something";
    log.setAttribute("aria-busy", Boolean(running));
  }

  // ---- Answers ----

  function save() {
    if (!store_chat(chat)) announcement.textContent = "The browser has no room to keep this chat.";
    show_list();
  }

  /** Let the model answer what the chat has so far. */
  async function answer() {
    const message = { role: "assistant", content: "" };
    const asked = chat; // another one may be opened meanwhile
    const before = chat.messages.filter((other) => other.role !== "assistant" || other.content || other.tool_calls);
    const view = create_view(message);
    const stopper = new AbortController();
    let frame = 0;
    const show = () => {
      const following = follows();
      frame = 0;
      view.update(running === stopper);
      if (following) follow();
    };
    running = stopper;
    chat.messages.push(message);
    log.append(view.element);
    view.update(true);
    show_state();
    save();
    follow();
    const write_body = () => write_request({ model, ...sampling }, asked.settings, before);
    await receive_answer(api, write_body, message, stopper.signal, () => (frame ||= requestAnimationFrame(show)));
    cancelAnimationFrame(frame);
    const is_last = running === stopper; // no other answer has been asked for, and no other chat opened
    if (is_last) running = null;
    show();
    if (asked === chat) save();
    else if (find_chat(asked.id)) store_chat(asked);
    if (is_last)
      announcement.textContent = message.error ?? (message.finish === "stopped" ? "Stopped." : "The answer is complete.");
    show_state();
  }

  function submit(text) {
    if (running || text.trim() === "") return;
    const call = open_call();
    const message = call ? { role: "tool", content: text, tool_call_id: call.id } : { role: "user", content: text };
    if (chat.messages.length === 0) log.replaceChildren();
    chat.title ||= text.trim().split("\n")[0].slice(0, LONGEST_TITLE);
    chat.messages.push(message);
    log.append(create_view(message).element);
    input.value = "";
    fit_input();
    if (open_call()) save();
    else answer();
    show_state();
  }

  /** Drop a message and all that follow it. */
  function cut(message) {
    running?.abort();
    running = null;
    const at = chat.messages.indexOf(message);
    chat.messages.splice(at);
    if (at === 0) chat.title = "";
    while (log.children.length > at) log.lastElementChild.remove();
  }

  function regenerate(message) {
    cut(message);
    answer();
  }

  /** Let the user change a message; everything after it is then asked anew. */
  function edit(message) {
    const element = log.children[chat.messages.indexOf(message)];
    const rows = Math.min(12, message.content.split("\n").length + 1);
    const field = create("textarea", { "aria-label": "Edit the message", rows });
    field.value = message.content;
    const back = () => {
      const view = create_view(message).element;
      element.replaceWith(view);
      view.querySelector("footer button").focus();
      take_newer();
    };
    const resend = () => {
      if (field.value.trim() === "") return;
      cut(message);
      submit(field.value);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") back();
      else if (is_send(event)) resend();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const send_again = create_button("Send", resend);
    send_again.className = "";
    element.replaceChildren(field, create("footer", { class: "editing" }, create_button("Cancel", back), send_again));
    field.focus();
  }

  // ---- The list of chats ----

  function open_chat(other) {
    running?.abort(); // its answer stays as far as it has come
    running = null;
    chat = other;
    show_chat();
    document.body.classList.remove("side-open");
    input.focus();
  }

  /** Show what another tab has stored, unless an answer streams in or a message is edited here. */
  function take_newer() {
    const stored = find_chat(chat.id);
    const is_busy = running || log.querySelector(".editing");
    if (is_busy || !stored || stored.used <= chat.used) {
      show_list();
      return;
    }
    chat = stored;
    show_chat();
  }

  function create_row(other) {
    const open = create_button(other.title, () => other.id !== chat.id && open_chat(find_chat(other.id) ?? create_chat()));
    open.classList.add("title");
    if (other.id === chat.id) open.setAttribute("aria-current", "true");
    const remove = create_button("×", () => {
      if (!confirm(`Delete the chat “${other.title}”?`)) return;
      remove_chat(other.id);
      if (other.id === chat.id) open_chat(create_chat());
      else show_list();
    });
    remove.classList.add("icon");
    remove.setAttribute("aria-label", `Delete the chat ${other.title}`);
    return create("li", { "data-id": other.id }, open, remove);
  }

  /** Show the list. A focus in it stays at its chat or, if that is gone, goes to the one that takes its place. */
  function show_list() {
    const at = [...list.children].findIndex((row) => row.contains(document.activeElement));
    const id = list.children[at]?.dataset.id;
    const kind = document.activeElement.classList.contains("icon") ? ".icon" : ".title";
    list.replaceChildren(...all_chats().map(create_row));
    if (at < 0) return;
    const rows = [...list.children];
    const row = rows.find((other) => other.dataset.id === id) ?? rows[Math.min(at, rows.length - 1)];
    (row?.querySelector(kind) ?? new_chat).focus();
  }

  // ---- The keyboard and the form ----

  const is_send = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

  function fit_input() {
    input.style.height = "auto";
    input.style.height = `${input.scrollHeight}px`;
    show_state();
  }

  input.addEventListener("input", fit_input);
  input.addEventListener("keydown", (event) => {
    if (!is_send(event)) return;
    event.preventDefault();
    submit(input.value);
  });
  document.getElementById("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit(input.value);
  });
  stop.addEventListener("click", () => running?.abort());
  document.addEventListener("keydown", (event) => {
    const is_used = event.defaultPrevented || document.querySelector("dialog[open]");
    if (event.key === "Escape" && !is_used) running?.abort();
  });
  new_chat.addEventListener("click", () => open_chat(create_chat()));
  settings.addEventListener("input", (event) => change_setting(chat, event.target.name, event.target.value.trim()));
  settings.addEventListener("change", () => find_chat(chat.id) && save());
  settings.addEventListener("submit", (event) => event.preventDefault());
  on_chats_changed(take_newer);
  window.addEventListener("pageshow", take_newer); // a page that the browser had put aside got no event of a change
  window.addEventListener("pagehide", () => running && store_chat(chat));

  show_chat();
  fit_input();
  if (matchMedia("(min-width: 48rem)").matches) input.focus();
}
