// The conversations, as text in the browser's storage. A chat is
//
//   { id, title, used, settings: { system, temperature, ... }, messages: [...] }
//
// where settings are texts as they were typed. A message has the fields of the API, `role`, `content` and perhaps `tool_calls`
// or `tool_call_id`; an answer also has what the page shows beside it: `reasoning`, `usage`, `seconds`, `finish`, `error`.

const PREFIX = "chunkllama.chat.";
const SETTINGS = "chunkllama.settings"; // those of the next chat
const MOST = 100; // chats that are kept

/** The browser's storage; null: it is blocked. */
const storage = (() => {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
})();

/** The object stored as JSON under a key; null: there is none. */
function read(key) {
  try {
    const value = JSON.parse(storage.getItem(key));
    return typeof value === "object" ? value : null;
  } catch {
    return null; // it was not written by this page, or the storage is blocked
  }
}

/** Store an object as JSON. False: there is no room for it, or the storage is blocked. */
function write(key, value) {
  try {
    storage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

const is_message = (message) => typeof message?.role === "string" && typeof message.content === "string";

/** A stored chat; null: there is none, or this page has not written it. */
export function find_chat(id) {
  const chat = read(PREFIX + id);
  const is_whole = chat?.id === id && chat.settings && Array.isArray(chat.messages) && chat.messages.every(is_message);
  return is_whole ? chat : null;
}

/** All chats, the last one used first. */
export function all_chats() {
  return Object.keys(storage ?? {})
    .filter((key) => key.startsWith(PREFIX))
    .map((key) => find_chat(key.slice(PREFIX.length)))
    .filter((chat) => chat)
    .sort((a, b) => b.used - a.used);
}

/** A chat without messages, which is stored once it has one. Its settings are those that were last changed. */
export function create_chat() {
  const id = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
  return { id, title: "", used: 0, settings: read(SETTINGS) ?? {}, messages: [] };
}

/** Change a setting of a chat and of those that are created next. The chat itself is not stored. */
export function change_setting(chat, name, text) {
  chat.settings[name] = text;
  write(SETTINGS, chat.settings);
}

/** Store a chat; the oldest ones make room. False: there is no room even so, and the others stay. */
export function store_chat(chat) {
  if (chat.messages.length === 0) return true;
  chat.used = Date.now();
  const others = all_chats().filter((other) => other.id !== chat.id);
  const removed = [];
  while (!write(PREFIX + chat.id, chat)) {
    const oldest = others.pop();
    if (!oldest) {
      for (const other of removed) write(PREFIX + other.id, other);
      return false;
    }
    remove_chat(oldest.id);
    removed.push(oldest);
  }
  for (const old of others.slice(MOST - 1)) remove_chat(old.id);
  return true;
}

export const remove_chat = (id) => storage?.removeItem(PREFIX + id);

/** Call fn when another tab has changed the chats. */
export const on_chats_changed = (fn) =>
  window.addEventListener("storage", (event) => (event.key === null || event.key.startsWith(PREFIX)) && fn());
