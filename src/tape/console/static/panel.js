// Drainers and reactions with their lag; what is halted, dead or stuck, in red and with what can be
// done about it. Looked at every two seconds while the page is seen.

import { askJson, post } from "./api.js";
import { confirm } from "./dialogs.js";
import { count, element, moment, number } from "./dom.js";
import { toHash } from "./filters.js";

const EVERY_MS = 2000;
const SOON_MS = 200;
const LETTERS = 50;
const CARDS = 50;
const LONG_MS = 5000; // a drainer waits for every run; for longer than this it is worth a look

export class Panel {
  constructor({ onFault }) {
    this.section = document.getElementById("panel");
    this.onFault = onFault;
    this.drawn = "";
    document.addEventListener("visibilitychange", () => this.refresh());
    this.refresh();
  }

  async refresh() {
    clearTimeout(this.timer);
    const asked = performance.now();
    if (!document.hidden) {
      try {
        this.draw(await look());
      } catch {
        // The stream says that the server is away; what was seen last stays.
      }
    }
    clearTimeout(this.timer);
    // A server that takes long to answer is asked less often.
    this.timer = setTimeout(() => this.refresh(), Math.max(EVERY_MS, 10 * (performance.now() - asked)));
  }

  // Something has happened to what is shown here; many such things are one look.
  soon() {
    this.nudged ??= setTimeout(() => {
      this.nudged = null;
      this.refresh();
    }, SOON_MS);
  }

  draw(seen) {
    const text = JSON.stringify(seen);
    if (text === this.drawn) return; // so that a focused button stays where it is
    this.drawn = text;
    const focused = document.activeElement?.dataset?.act;
    this.section.replaceChildren(
      element("h2", {}, "Drainers"),
      ...cards(seen.drainers, (each) => each.halted_on_event_id, (each) => this.drainer(each)),
      element("h2", {}, "Reactions"),
      ...cards(seen.reactions, (each) => each.dead_letters, (each) => this.reaction(each, seen.letters)),
      ...(seen.stuck.length ? [element("h2", {}, "Stuck runs"), ...seen.stuck.map((run) => this.run(run))] : []),
    );
    if (focused) this.section.querySelector(`[data-act="${CSS.escape(focused)}"]`)?.focus();
  }

  drainer(state) {
    const isHalted = Boolean(state.halted_on_event_id);
    const path = `/api/drainers/${encodeURIComponent(state.drainer_id)}`;
    const card = element("article", { class: isHalted ? "card bad" : "card", "data-drainer": state.drainer_id }, line(state.drainer_id, isHalted ? "halted" : lag(state.lag)));
    card.append(quiet(`${number(state.events_processed_total)} passed · ${count(state.dispatched_total, "run")} · ${count(state.subscriptions, "subscription")}`));
    if (isHalted) {
      const at = element("a", { href: toHash({ event: state.halted_on_global_seq }), "data-open": state.halted_on_global_seq }, `no. ${state.halted_on_global_seq}`);
      card.append(
        element("p", {}, "at ", at, ` since ${moment(state.halted_at_ms)}, ${lag(state.lag)}`),
        quiet(`failed ${count(state.failed_attempts, "time")}, next try ${moment(state.next_try_at_ms)}`),
        element("p", { class: "error" }, state.last_error),
        this.actions(
          this.button(`resume ${state.drainer_id}`, "Resume", () => post(`${path}/resume`, {})),
          this.skip(state, state.halted_on_event_id, `No. ${state.halted_on_global_seq} is never dispatched.`),
        ),
      );
    } else if (state.waiting_on_run_id && Date.now() - state.waiting_since_ms > LONG_MS) {
      const run = element("a", { href: toHash({ run: state.waiting_on_run_id }) }, `run ${state.waiting_on_run_id}`);
      card.append(
        element("p", {}, "waits for ", run, ` of ${state.waiting_on_app} in pool ${state.waiting_on_pool} since ${moment(state.waiting_since_ms)}`),
        this.actions(this.skip(state, state.waiting_on_event_id, "The drainer goes on without waiting; the run stays as it is.")),
      );
    }
    return card;
  }

  skip(state, event_id, what) {
    return this.button(`skip ${state.drainer_id}`, "Skip…", async () => {
      const reason = await confirm(`Skip the event that holds up ${state.drainer_id}?`, `${what} This cannot be taken back.`, "Skip it", { asksReason: true });
      if (reason !== null) await post(`/api/drainers/${encodeURIComponent(state.drainer_id)}/skip`, { event_id, reason });
    }, true);
  }

  reaction(state, letters) {
    const id = state.reaction_id;
    const isBad = state.dead_letters > 0;
    const card = element("article", { class: isBad ? "card bad" : "card", "data-reaction": id }, line(id, isBad ? count(state.dead_letters, "dead letter") : lag(state.lag)));
    card.append(quiet(`${isBad ? `${lag(state.lag)} · ` : ""}${number(state.pending)} waiting · ${number(state.claimed)} in hand · ${state.subject_pattern}`));
    if (state.last_error) card.append(element("p", { class: "error" }, state.last_error));
    if (isBad) {
      card.append(this.letterActions(id, [], ` all of ${id}`, state.dead_letters));
      for (const letter of letters.filter((each) => each.reaction_id === id)) {
        const at = element("a", { href: toHash({ event: letter.source_global_seq }), "data-open": letter.source_global_seq }, `no. ${letter.source_global_seq}`);
        card.append(element("div", { class: "letter" }, element("p", {}, at, " ", element("span", { class: "error" }, letter.last_error)), folded("traceback", letter.last_traceback), this.letterActions(id, [letter.task_id], "", 1)));
      }
    }
    return card;
  }

  letterActions(reaction_id, task_ids, which, many) {
    const name = task_ids[0] ?? reaction_id;
    return this.actions(
      this.button(`replay ${name}`, `Replay${which && " all"}`, () => post("/api/tasks/replay", { reaction_id, task_ids })),
      this.button(`drop ${name}`, `Drop${which && " all"}…`, async () => {
        const sure = await confirm(`Drop ${count(many, "dead letter")}${which}?`, "The work is given up for good. This cannot be taken back.", "Drop");
        if (sure !== null) await post("/api/tasks/drop", { reaction_id, task_ids });
      }, true),
    );
  }

  run(run) {
    const card = element("article", { class: "card bad", "data-run": run.run_id }, line(run.app_name, "stuck"));
    card.append(element("p", {}, element("a", { href: toHash({ run: run.run_id }) }, run.run_id)), this.actions(this.button(`resume run ${run.run_id}`, "Resume", () => post(`/api/runs/${encodeURIComponent(run.run_id)}/resume`, {}))));
    return card;
  }

  actions(...buttons) {
    return element("div", { class: "actions" }, ...buttons);
  }

  button(name, text, act, isDanger = false) {
    const press = async (event) => {
      const button = event.currentTarget;
      button.disabled = true;
      try {
        await act();
      } catch (error) {
        this.onFault(error.message);
      } finally {
        button.disabled = false;
      }
      await this.refresh();
    };
    return element("button", { type: "button", class: isDanger ? "danger" : "", "data-act": name, "aria-label": name, on: { click: press } }, text);
  }
}

function folded(name, text) {
  return text ? element("details", {}, element("summary", {}, name), element("pre", {}, text)) : null;
}

async function look() {
  const [drainers, reactions, stuck] = await Promise.all([askJson("/api/drainers"), askJson("/api/reactions"), askJson("/api/runs?status=stuck&limit=10")]);
  const isAny = reactions.reactions.some((each) => each.dead_letters > 0);
  const letters = isAny ? (await askJson(`/api/tasks?status=dlq&limit=${LETTERS}`)).tasks : [];
  return {
    drainers: drainers.drainers,
    reactions: reactions.reactions.map(({ reaction_id, subject_pattern, lag, pending, claimed, dead_letters, last_error }) => ({ reaction_id, subject_pattern, lag, pending, claimed, dead_letters, last_error })),
    stuck: stuck.runs.map(({ run_id, app_name }) => ({ run_id, app_name })),
    letters: letters.map(({ task_id, reaction_id, source_global_seq, last_error, last_traceback }) => ({ task_id, reaction_id, source_global_seq, last_error, last_traceback })),
  };
}

// Those in trouble first, then those furthest behind.
function cards(states, isBad, make) {
  if (!states.length) return [quiet("none")];
  const sorted = states.slice().sort((one, other) => Boolean(isBad(other)) - Boolean(isBad(one)) || other.lag - one.lag);
  const made = sorted.slice(0, CARDS).map(make);
  if (states.length > CARDS) made.push(quiet(`and ${number(states.length - CARDS)} more`));
  return made;
}

function line(name, state) {
  return element("h3", {}, element("span", { class: "name" }, name), element("span", { class: "state" }, state));
}

const lag = (entries) => (entries ? `${number(entries)} behind` : "up to date");
const quiet = (text) => element("p", { class: "quiet" }, text);
