// The timeline: what was, then what comes, by the filter in the address.

import { askJson } from "./api.js";
import { Details } from "./details.js";
import * as dialogs from "./dialogs.js";
import * as filters from "./filters.js";
import { Panel } from "./panel.js";
import { EventStream } from "./stream.js";
import { Timeline } from "./timeline.js";

const PAGE = 300;
const RETRY_MS = 1000;
const IN_VAIN = 5;
const TELLING = new Set(["drainer", "task"]); // kinds that the panel shows the effect of
const byId = (id) => document.getElementById(id);

const form = byId("filters");
const timeline = new Timeline({ onOpen: (seq) => go({ ...view, event: seq }), onOlder: loadOlder });
const details = new Details({ onClose: closeDetails });
const panel = new Panel({ onFault: fault });

let view = null;
let stream = null;
let turn = 0; // what an earlier filter still brings in is not shown
let isLoadingOlder = false;
let inVain = 0; // pages of older entries in a row that the filter let nothing of through

function go(next) {
  filters.write(next);
}

function show() {
  const before = view;
  view = filters.read();
  for (const input of form.elements) if (input.name) input.value = view[input.name] ?? "";
  byId("clear").hidden = !filters.isFiltered(view);
  if (!before || !filters.sameFilter(before, view)) load();
  if (view.event) {
    timeline.select(view.event);
    details.show(view.event);
  } else {
    details.close();
  }
}

async function load() {
  const mine = ++turn;
  stream?.stop();
  timeline.reset();
  inVain = 0;
  byId("older").hidden = true;
  fault("");
  const query = filters.query(view);
  try {
    const found = await askJson(`/api/events/recent?${new URLSearchParams([...query, ["limit", PAGE]])}`);
    if (mine !== turn) return;
    timeline.load(found.events, found.before);
    if (view.event) timeline.select(view.event);
    stream = new EventStream(query, found.head_global_seq, {
      onEvents: (entries) => {
        if (mine !== turn) return;
        timeline.add(entries);
        if (entries.some((entry) => TELLING.has(entry.kind))) panel.soon();
      },
      onState: (name) => mine === turn && state(name),
      onEnd: () => mine === turn && setTimeout(() => mine === turn && load(), RETRY_MS),
    });
  } catch (error) {
    if (mine !== turn) return;
    if (error.status >= 400 && error.status < 500) {
      fault(error.message);
      state("refused");
    } else {
      state("lost");
      setTimeout(() => mine === turn && load(), RETRY_MS);
    }
  }
}

// A filter that seldom matches would page through the whole journal by itself: it stops and asks.
async function loadOlder(before) {
  byId("older").hidden = inVain < IN_VAIN;
  byId("older").textContent = `Looked back to no. ${before}. Look further back`;
  if (isLoadingOlder || inVain >= IN_VAIN) return;
  isLoadingOlder = true;
  const mine = turn;
  try {
    const query = new URLSearchParams([...filters.query(view), ["limit", PAGE], ["before", before]]);
    const found = await askJson(`/api/events/recent?${query}`);
    isLoadingOlder = false;
    inVain = found.events.length ? 0 : inVain + 1;
    if (mine === turn) timeline.addOlder(found.events, found.before);
  } catch {
    // The next scroll tries again.
  } finally {
    isLoadingOlder = false;
  }
}

const STATES = { live: "live", lost: "disconnected, trying again", refused: "refused" };

function state(name) {
  byId("status").dataset.state = name;
  byId("status-text").textContent = STATES[name];
}

function fault(text) {
  byId("fault").textContent = text;
  byId("fault").hidden = !text;
}

function closeDetails() {
  go({ ...view, event: null });
  byId("rows").focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const next = { ...view, event: null, trace: "" };
  for (const input of form.elements) if (input.name) next[input.name] = input.value.trim();
  fault("");
  go(next);
  byId("rows").focus();
});
byId("clear").addEventListener("click", () => go({}));
byId("older").addEventListener("click", () => {
  inVain = 0;
  timeline.draw();
});
byId("help-button").addEventListener("click", dialogs.help);
window.addEventListener("hashchange", show);

// An entry of a chain is opened in the view that is there; a plain link to one would drop the filter.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-open]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go({ ...view, event: Number(link.dataset.open) });
});

// With the details open they go along, and the way back leads to where they were opened.
function step(by) {
  timeline.move(by);
  if (!view.event) return;
  filters.write({ ...view, event: timeline.selected }, { replace: true });
  show();
}

const KEYS = {
  j: () => step(1),
  ArrowDown: () => step(1),
  k: () => step(-1),
  ArrowUp: () => step(-1),
  g: () => timeline.toNewest(),
  Home: () => timeline.toNewest(),
  Enter: () => timeline.selected !== null && timeline.open(timeline.selected),
  Escape: () => {
    fault("");
    if (view.event) closeDetails();
    else timeline.select(null);
  },
  "/": () => form.elements.type.select(),
  "?": dialogs.help,
};

document.addEventListener("keydown", (event) => {
  if (dialogs.isOpen() || event.ctrlKey || event.metaKey || event.altKey) return;
  const isInField = event.target.closest("input");
  if (isInField && event.key !== "Escape") return;
  if (event.key === "Enter" && event.target.closest("button, a")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  if (isInField) byId("rows").focus();
  else act();
});

show();
byId("rows").focus();
