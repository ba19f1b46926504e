// Starts the page: finds the model, then starts the tree and the chat.
import { api, ask_for_key } from "./api.js";
import { start_chat } from "./chat.js";
import { start_tree } from "./tree.js";

const status = document.getElementById("status");
const menu = document.getElementById("menu");

/** The model, once the server has loaded it and there is a key for it. */
async function find_model() {
  for (;;) {
    try {
      return (await api.get("/v1/models")).data[0];
    } catch (error) {
      status.textContent = error.status ? error.message : "The server cannot be reached.";
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

/** How the server wants this page to draw tokens, as fields of a request. */
async function find_sampling() {
  try {
    const { temperature, top_k, top_p, min_p } = (await api.get("/props")).default_generation_settings.params;
    return { temperature, top_k, top_p, min_p };
  } catch {
    return {}; // the server decides
  }
}

/** Show in the empty fields of the settings what requests have instead. */
function show_sampling(sampling) {
  const fields = document.getElementById("settings").elements;
  for (const name of ["temperature", "top_p", "top_k"]) fields[name].placeholder = sampling[name] ?? "";
  if (sampling.top_k <= 0) fields.top_k.placeholder = "all";
}

/** On a narrow screen one of the two parts is shown, as style.css has it. */
function start_tabs() {
  const tabs = [...document.querySelectorAll("#tabs [role=tab]")];
  const narrow = matchMedia("(max-width: 48rem)");
  const set_roles = () => {
    for (const tab of tabs) {
      const panel = document.getElementById(tab.getAttribute("aria-controls"));
      if (narrow.matches) panel.setAttribute("role", "tabpanel");
      else panel.removeAttribute("role");
    }
  };
  set_roles();
  narrow.addEventListener("change", set_roles);
  const select = (tab) => {
    document.body.dataset.tab = tab.dataset.tab;
    for (const other of tabs) {
      other.setAttribute("aria-selected", other === tab);
      other.tabIndex = other === tab ? 0 : -1;
    }
  };
  for (const tab of tabs) {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = tabs[1 - tabs.indexOf(tab)];
      select(other);
      other.focus();
    });
  }
}

/** Where there is no room for the chats and settings beside the rest, the menu shows them. */
function start_side() {
  const show = (open) => {
    document.body.classList.toggle("side-open", open);
    menu.setAttribute("aria-expanded", open);
  };
  menu.addEventListener("click", () => show(!document.body.classList.contains("side-open")));
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest("#side, #menu, dialog")) show(false);
  });
  document.getElementById("side").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !document.body.classList.contains("side-open")) return;
    event.preventDefault();
    show(false);
    menu.focus();
  });
  document.getElementById("set-key").addEventListener("click", () => ask_for_key("The key that the page sends with its requests. An empty field forgets it."));
}

start_tabs();
start_side();
const model = await find_model();
const sampling = await find_sampling();
status.textContent = "";
document.getElementById("model").textContent = model.id;
document.getElementById("model").title = model.id;
show_sampling(sampling);
start_tree(document.getElementById("tree"), { api });
start_chat({ api, model: model.id, sampling });
