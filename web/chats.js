// The conversations, as text in the browser's storage. A chat is
//
//   { id, title, used, settings: { system, temperature, ... }, messages: [...] }
//
// where settings are texts as they were typed. A message has the fields of the API, `role`, `content` and perhaps `tool_calls`
// or `tool_call_id`; an answer also has what the page shows beside it: `reasoning`, `usage`, `seconds`, `finish`, `error`.

const PREFIX = "chunkllama.chat.";
const SETTINGS = "chunkllama.settings"; // those of the next chat
const MOST = 100; // chats that are kept

const read = (key) => {
  try {
    const chat = JSON.parse(localStorage.getItem(key));
    return Array.isArray(chat?.messages) ? chat : null;
  } catch {
    return null; // it was not written by this page
  }
};

/** All chats, the last one used first. */
export function all_chats() {
  return Object.keys(localStorage)
    .filter((key) => key.startsWith(PREFIX))
    .map(read)
    .filter((chat) => chat)
    .sort((a, b) => b.used - a.used);
}

export const find_chat = (id) => read(PREFIX + id);

/** A chat without messages, which is stored once it has one. Its settings are those that were last changed. */
export function create_chat() {
  const id = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
  return { id, title: "", used: 0, settings: JSON.parse(localStorage.getItem(SETTINGS) ?? "{}"), messages: [] };
}

export function change_setting(chat, name, text) {
  chat.settings[name] = text;
  localStorage.setItem(SETTINGS, JSON.stringify(chat.settings));
  store_chat(chat);
}

/** Store a chat; the oldest ones make room. False: there is no room even so. */
export function store_chat(chat) {
  if (chat.messages.length === 0) return true;
  chat.used = Date.now();
  const others = all_chats().filter((other) => other.id !== chat.id);
  for (const old of others.splice(MOST - 1)) remove_chat(old.id);
  for (;;) {
    try {
      localStorage.setItem(PREFIX + chat.id, JSON.stringify(chat));
      return true;
    } catch {
      const oldest = others.pop();
      if (!oldest) return false;
      remove_chat(oldest.id);
    }
  }
}

export const remove_chat = (id) => localStorage.removeItem(PREFIX + id);

/** Call fn when another tab has changed the chats. */
export const on_chats_changed = (fn) =>
  window.addEventListener("storage", (event) => (event.key === null || event.key.startsWith(PREFIX)) && fn());
