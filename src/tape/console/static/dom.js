// Elements made of text: nothing that a producer said ever becomes markup.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name === "on") for (const [type, listener] of Object.entries(value)) made.addEventListener(type, listener);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hour12: false });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const NUMBER = new Intl.NumberFormat();

export const clock = (ms) => CLOCK.format(ms);
export const moment = (ms) => (ms ? WHOLE.format(ms) : "never");
export const number = (n) => NUMBER.format(n);

export const count = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;

// For people a run that succeeded is done. Subjects and the API say terminal.
export const runStatus = (word) => (word === "terminal" ? "done" : word);

export function what(entry) {
  return entry.event_type || entry.subject.replace(/^\/tape\//, "").replace(/^run\/terminal\//, "run/done/");
}

export function entity(entry) {
  if (!entry.entity_type && !entry.entity_id) return "";
  return `${entry.entity_type}/${entry.entity_id}`;
}
