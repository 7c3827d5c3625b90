// The filter and the open entry live in the address, after the #, so that a view can be shared.

const NAMES = ["type", "entity", "run", "subject", "where", "trace"];

export function read() {
  const params = new URLSearchParams(location.hash.slice(1));
  const view = { event: Number(params.get("event")) || null };
  for (const name of NAMES) view[name] = params.get(name) ?? "";
  return view;
}

export function write(view, { replace = false } = {}) {
  const hash = toHash(view);
  if (hash === location.hash) return;
  if (replace) history.replaceState(null, "", hash || location.pathname);
  else location.hash = hash;
}

export function toHash(view) {
  const params = new URLSearchParams();
  for (const name of NAMES) if (view[name]) params.set(name, view[name]);
  if (view.event) params.set("event", view.event);
  const text = params.toString();
  return text && `#${text}`;
}

export function isFiltered(view) {
  return NAMES.some((name) => view[name]);
}

export function sameFilter(one, other) {
  return NAMES.every((name) => one[name] === other[name]);
}

// As the server names them.
export function query(view) {
  const params = new URLSearchParams();
  if (view.type) params.set("event_type", view.type);
  if (view.entity) {
    const at = view.entity.indexOf("/");
    params.set("entity_type", at < 0 ? view.entity : view.entity.slice(0, at));
    if (at >= 0) params.set("entity_id", view.entity.slice(at + 1));
    if (!params.get("entity_type")) params.delete("entity_type");
  }
  if (view.run) params.set("run_id", view.run);
  if (view.subject) params.set("subject", view.subject);
  if (view.where) params.set("where", view.where);
  if (view.trace) params.set("trace_id", view.trace);
  return params;
}
