// The list of entries, newest first. Only the rows that can be seen are in the document, whatever
// comes in, and new entries are drawn together. Scrolled down, the view stays where it is.

import { clock, element, entity, number, what } from "./dom.js";

const ROW = 28; // as in console.css
const SPARE = 8; // rows drawn above and below what is seen
const KEPT = 20000;
const PREVIEW = 300;
const FRAME_MS = 16;

// What a row shows. Payloads may be large, and the details ask for theirs.
function slim(entry) {
  let preview = entry.payload === null ? "" : JSON.stringify(entry.payload);
  // A part of a text keeps the whole of it alive, unless it is written anew.
  if (preview.length > PREVIEW) preview = JSON.parse(JSON.stringify(preview.slice(0, PREVIEW)));
  return { global_seq: entry.global_seq, at: entry.ts_ms, kind: entry.kind, what: what(entry), entity: entity(entry), preview };
}

export class Timeline {
  constructor({ onOpen, onOlder }) {
    this.on = { onOpen, onOlder };
    this.rows = document.getElementById("rows");
    this.canvas = document.getElementById("canvas");
    this.newer = document.getElementById("newer");
    this.nothing = document.getElementById("nothing");
    this.drawn = new Map(); // global_seq → row
    this.rows.addEventListener("scroll", () => this.draw(), { passive: true });
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest("[data-seq]");
      if (row) this.open(Number(row.dataset.seq));
    });
    this.newer.addEventListener("click", () => this.toNewest());
    new ResizeObserver(() => this.draw()).observe(this.rows);
    this.reset();
  }

  reset() {
    this.entries = []; // oldest first: what comes is pushed
    this.waiting = [];
    this.selected = null;
    this.older = null; // where older ones begin; null if there are none
    this.missed = 0;
    this.isLoaded = false;
    this.rows.scrollTop = 0;
    this.draw();
  }

  load(newestFirst, before) {
    this.isLoaded = true;
    this.entries = newestFirst.map(slim).reverse();
    this.older = before;
    this.draw();
  }

  addOlder(newestFirst, before) {
    this.entries.unshift(...newestFirst.map(slim).reverse());
    this.older = before;
    this.draw();
  }

  add(entries) {
    for (const entry of entries) this.waiting.push(slim(entry));
    // By a timer and not by frames: a page that is not seen gets none, and must not hoard.
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.flush();
    }, FRAME_MS);
  }

  flush() {
    const newest = this.entries.at(-1)?.global_seq ?? 0;
    const fresh = this.waiting.filter((entry) => entry.global_seq > newest);
    this.waiting = [];
    if (!fresh.length) return;
    const isFollowing = this.rows.scrollTop < ROW / 2;
    for (const entry of fresh) this.entries.push(entry);
    // Who reads far back keeps what is there, or it would be fetched again and again.
    if (this.entries.length > (isFollowing ? KEPT : 3 * KEPT)) {
      this.entries.splice(0, this.entries.length - KEPT);
      this.older = this.entries[0].global_seq;
    }
    if (!isFollowing) {
      this.missed += fresh.length;
      this.canvas.style.height = `${this.entries.length * ROW}px`;
      this.rows.scrollTop += fresh.length * ROW;
    }
    this.draw();
  }

  // The entry in a row; row 0 is the newest.
  at(row) {
    return this.entries[this.entries.length - 1 - row];
  }

  rowOf(globalSeq) {
    let low = 0;
    let high = this.entries.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const found = this.entries[middle].global_seq;
      if (found === globalSeq) return this.entries.length - 1 - middle;
      if (found < globalSeq) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  draw() {
    const count = this.entries.length;
    this.canvas.style.height = `${count * ROW}px`;
    const first = Math.max(0, Math.floor(this.rows.scrollTop / ROW) - SPARE);
    const last = Math.min(count, Math.ceil((this.rows.scrollTop + this.rows.clientHeight) / ROW) + SPARE);
    const wanted = new Map();
    for (let row = first; row < last; row++) {
      const entry = this.at(row);
      const seq = entry.global_seq;
      const made = this.drawn.get(seq) ?? this.make(entry);
      made.style.transform = `translateY(${row * ROW}px)`;
      const isSelected = seq === this.selected;
      if ((made.getAttribute("aria-selected") === "true") !== isSelected) made.setAttribute("aria-selected", isSelected);
      wanted.set(seq, made);
    }
    for (const [seq, made] of this.drawn) if (!wanted.has(seq)) made.remove();
    for (const [seq, made] of wanted) if (!this.drawn.has(seq)) this.canvas.append(made);
    this.drawn = wanted;
    if (this.rows.scrollTop < ROW / 2) this.missed = 0;
    this.newer.hidden = !this.missed;
    this.newer.textContent = `↑ ${number(this.missed)} new`;
    this.nothing.hidden = !this.isLoaded || count > 0;
    const active = this.selected !== null && wanted.has(this.selected) ? `entry-${this.selected}` : "";
    if (active) this.rows.setAttribute("aria-activedescendant", active);
    else this.rows.removeAttribute("aria-activedescendant");
    if (this.older !== null && last === count && this.isLoaded) this.on.onOlder(this.older);
  }

  make(entry) {
    return element(
      "div",
      { class: "row", role: "option", id: `entry-${entry.global_seq}`, "data-seq": entry.global_seq, "data-kind": entry.kind, "aria-selected": "false" },
      element("span", { class: "time" }, clock(entry.at)),
      element("span", { class: "number" }, String(entry.global_seq)),
      element("span", { class: "kind" }, entry.kind),
      element("span", { class: "what" }, entry.what),
      element("span", { class: "entity" }, entry.entity),
      element("span", { class: "payload" }, entry.preview),
    );
  }

  move(step) {
    if (!this.entries.length) return;
    const row = this.selected === null ? -1 : this.rowOf(this.selected);
    const next = row < 0 ? Math.round(this.rows.scrollTop / ROW) : Math.min(this.entries.length - 1, Math.max(0, row + step));
    this.select(this.at(next).global_seq);
  }

  select(globalSeq) {
    this.selected = globalSeq;
    const row = globalSeq === null ? -1 : this.rowOf(globalSeq);
    if (row >= 0) {
      const top = row * ROW;
      if (top < this.rows.scrollTop) this.rows.scrollTop = top;
      else if (top + ROW > this.rows.scrollTop + this.rows.clientHeight) this.rows.scrollTop = top + ROW - this.rows.clientHeight;
    }
    this.draw();
  }

  open(globalSeq) {
    this.select(globalSeq);
    this.on.onOpen(globalSeq);
  }

  toNewest() {
    this.rows.scrollTop = 0;
    this.draw();
  }
}
