// Starts the page: finds the model, then the chat and the tree.
import { api } from "./api.js";
import { start_tree } from "./tree.js";

const name = document.getElementById("model");
const status = document.getElementById("status");

/** The model, once the server has loaded it. */
async function find_model() {
  for (;;) {
    try {
      return (await api.get("/v1/models")).data[0];
    } catch (error) {
      status.textContent = error.message;
      if (error.status && error.status !== 503) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

/** On a narrow screen one of the two parts is shown. */
function start_tabs() {
  const tabs = [...document.querySelectorAll("#tabs [role=tab]")];
  for (const tab of tabs) {
    tab.addEventListener("click", () => {
      document.body.dataset.tab = tab.dataset.tab;
      for (const other of tabs) other.setAttribute("aria-selected", other === tab);
    });
  }
}

start_tabs();
const model = await find_model();
status.textContent = "";
name.textContent = model.id;
start_tree(document.getElementById("tree"), { api });
