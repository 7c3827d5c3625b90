// One entry in full: its fields, its payload as text, and what led to what.

import { askJson } from "./api.js";
import { element, entity, moment, runStatus, what } from "./dom.js";
import { toHash } from "./filters.js";

const SETTLE_MS = 60; // who holds a key down does not ask for every entry on the way
const FIELDS = [
  ["subject", (e) => e.subject],
  ["event id", (e) => e.event_id],
  ["recorded", (e) => moment(e.ts_ms)],
  ["occurred", (e) => (e.occurred_at_ms && e.occurred_at_ms !== e.ts_ms ? moment(e.occurred_at_ms) : "")],
  ["schema version", (e) => (e.schema_version > 1 ? String(e.schema_version) : "")],
  ["source", (e) => e.source],
  ["caused by", (e) => e.caused_by],
  ["idempotency key", (e) => e.idempotency_key],
];

export class Details {
  constructor({ onClose }) {
    this.section = document.getElementById("details");
    this.onClose = onClose;
    this.shown = null;
  }

  close() {
    this.shown = null;
    this.section.hidden = true;
    this.section.replaceChildren();
  }

  async show(globalSeq) {
    if (this.shown === globalSeq) return;
    this.shown = globalSeq;
    this.section.hidden = false;
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    if (this.shown !== globalSeq) return;
    let chain;
    try {
      chain = await askJson(`/api/events/${globalSeq}/chain`);
    } catch (error) {
      if (this.shown === globalSeq) this.section.replaceChildren(this.head(`no. ${globalSeq}`), element("p", { class: "bad" }, error.message));
      return;
    }
    if (this.shown !== globalSeq) return; // another was opened meanwhile
    this.section.replaceChildren(...this.parts(chain));
    this.section.scrollTop = 0;
  }

  head(title) {
    const close = element("button", { type: "button", class: "plain", "aria-label": "Close details", title: "Close (Esc)", on: { click: () => this.onClose() } }, "×");
    return element("div", { class: "head" }, element("h2", {}, title), close);
  }

  parts({ event, causes, effects, trace, runs, complete }) {
    const list = element("dl");
    const add = (name, value) => list.append(element("dt", {}, name), element("dd", {}, value));
    add("no.", String(event.global_seq));
    for (const [name, value] of FIELDS) if (value(event)) add(name, value(event));
    if (entity(event)) add("entity", link(entity(event), { entity: entity(event) }));
    if (event.run_id) add("run", link(`${event.run_id} · ${event.seq}`, { run: event.run_id }));
    if (event.trace_id) add("trace", link(event.trace_id, { trace: event.trace_id }));
    const parts = [this.head(what(event)), list, element("h3", {}, "Payload"), element("pre", { tabindex: "0", "aria-label": "Payload" }, JSON.stringify(event.payload, null, 2))];
    const section = (title, entries) => {
      if (!entries.length) return;
      parts.push(element("h3", {}, title), element("ol", { class: "chain" }, ...entries.map((entry) => chainItem(entry, event))));
    };
    section("Caused by", causes.slice().reverse());
    section("Led to", effects);
    if (runs.length) parts.push(element("h3", {}, "Runs"), element("ol", { class: "chain" }, ...runs.map(runItem)));
    section("In the same trace", trace.filter((entry) => entry.global_seq !== event.global_seq));
    if (!complete) parts.push(element("p", { class: "quiet" }, "There may be more: only so much of the journal was looked through."));
    return parts;
  }
}

function link(text, view) {
  return element("a", { href: toHash(view), title: "Show only these" }, text);
}

function runItem(run) {
  const isBad = run.status === "failed" || run.status === "stuck";
  return element("li", {}, link(run.app_name, { run: run.run_id }), " ", element("span", { class: isBad ? "error" : "quiet" }, runStatus(run.status)));
}

function chainItem(entry, event) {
  const view = { event: entry.global_seq };
  const open = element("a", { href: toHash(view), "data-open": entry.global_seq }, what(entry));
  return element("li", { class: entry.global_seq === event.global_seq ? "this" : "" }, element("span", { class: "number" }, String(entry.global_seq)), " ", open, " ", element("span", { class: "quiet" }, entity(entry)));
}
