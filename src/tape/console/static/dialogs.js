// Questions before what cannot be taken back.

const byId = (id) => document.getElementById(id);

// The reason, or an empty text where none is asked for; null if it is not to be done.
export function confirm(title, text, yes, { asksReason = false } = {}) {
  const dialog = byId("ask-dialog");
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  byId("ask-yes").textContent = yes;
  const reason = byId("ask-reason");
  reason.value = "";
  reason.required = asksReason;
  byId("ask-reason-label").hidden = !asksReason;
  dialog.returnValue = "no";
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" ? reason.value.trim() : null), { once: true });
    dialog.showModal();
  });
}

export function help() {
  byId("help-dialog").showModal();
}

export function isOpen() {
  return document.querySelector("dialog[open]") !== null;
}
