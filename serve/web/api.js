// Calls of the server that the page comes from. `api` adds the API key, and asks for one where the server wants it.

/** An answer that is no success. The message is the server's. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

// The key is kept in the tab's storage, which ends with the tab; where the browser blocks it, a reload forgets the key.
const STORED_KEY = "chunkllama.key";
let key = "";
try {
  key = sessionStorage.getItem(STORED_KEY) ?? "";
} catch {} // it is blocked

function keep_key(text) {
  key = text;
  try {
    sessionStorage.setItem(STORED_KEY, text);
  } catch {} // it is blocked
}

const dialog = document.getElementById("key-dialog");
const field = document.getElementById("key");
let asked = null; // the promise of an open dialog: whether there is a key now
let declined = false; // calls that nobody waits for do not ask again

/** Ask for the key, or with an empty field forget it. Several calls that are refused at once ask once. */
export function ask_for_key(reason) {
  asked ??= new Promise((resolve) => {
    document.getElementById("key-reason").textContent = reason;
    field.value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      asked = null;
      const accepted = dialog.returnValue === "ok";
      if (accepted) {
        keep_key(field.value);
        declined = key === "";
      }
      resolve(accepted && key !== "");
    }, { once: true });
    document.getElementById("key-cancel").onclick = () => dialog.close();
    dialog.showModal();
  });
  return asked;
}

/** The message of an answer that is no success. */
async function message_of(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text || `The server answered with status ${response.status}.`;
  }
}

/** The response to a call, once it is a success. background: nobody has just asked for it. */
async function call(path, options, background) {
  for (;;) {
    const sent = key;
    const headers = { ...options.headers, ...(sent && { Authorization: `Bearer ${sent}` }) };
    // Addresses are relative to the page's, so that a proxy may serve it below a path.
    const response = await fetch(new URL(path.replace(/^\//, ""), document.baseURI), { ...options, headers });
    if (response.ok) return response;
    const message = await message_of(response);
    if (response.status === 401) {
      if (sent !== key) continue; // it has changed meanwhile
      if (!(background && declined)) {
        if (await ask_for_key(sent ? "The server does not accept this key. Enter another one." : "The server wants an API key.")) continue;
        declined = true;
      }
    }
    throw new ApiError(response.status, message);
  }
}

/** The data of each event of a response, parsed, up to the stream's end. Who leaves the loop before ends the request. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const lines = text.split("\n");
      text = lines.pop();
      for (const line of lines) {
        const data = line.startsWith("data:") ? line.slice(5).trim() : "";
        if (data === "[DONE]") return;
        if (data) yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // a stream that has failed refuses
  }
}

export const api = {
  /** The JSON at a path. */
  get: async (path, signal) => (await call(path, { signal }, true)).json(),
  /** The response to a body, which is sent as JSON. */
  post: (path, body, signal) =>
    call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal }, false),
};
