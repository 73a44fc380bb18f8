// DOM elements and formatting. Text from elsewhere only ever becomes a text node.

export const byId = (id) => document.getElementById(id);

export function element(name, fields = {}, ...children) {
  const node = document.createElement(name);
  for (const [field, value] of Object.entries(fields)) {
    if (field === "class") node.className = value;
    else node.setAttribute(field, value);
  }
  node.append(...children); // strings become text nodes
  return node;
}

// Set a text only if it differs, so that a selection or a screen reader is not disturbed.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

// Update the children of a list from items, matched by key; children of remaining items are reused. Items with
// the same key (a reason of two partitions, an alert that is on the topic twice) are told apart by their order.
export function fill(list, items, keyOf, make, update = () => {}) {
  const old = new Map(Array.from(list.children, (child) => [child.dataset.key, child]));
  const counts = new Map();
  let next = list.firstElementChild;
  for (const item of items) {
    const name = String(keyOf(item));
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    const key = count > 1 ? `${name}\n${count}` : name;
    let child = old.get(key);
    old.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else list.insertBefore(child, next);
  }
  for (const obsolete of old.values()) obsolete.remove();
}

// Update a table's rows; the first cell is the row's header. A cell is a text, {state}, or {text, number: true}
// for a number.
export function rows(body, items, keyOf, cellsOf) {
  fill(body, items, keyOf, (item) => {
    const cells = cellsOf(item).map((_, at) => (at ? element("td") : element("th", { scope: "row" })));
    return element("tr", {}, ...cells);
  }, (row, item) => cellsOf(item).forEach((cell, at) => {
    const node = row.children[at];
    if (cell.state) setState(node.firstElementChild ?? node.appendChild(element("span")), cell.state);
    else setText(node, cell.text ?? cell);
    if (cell.number) node.className = "number";
  }));
}

const STATES = {
  good: ["OK", "IDLE", "ok", "pass", "applied", "promoted", "running", "done"],
  warn: ["WARN", "BLOCKED", "UNKNOWN", "paused", "review", "pending", "waiting", "stopped"],
  bad: ["STOP", "STALL", "REWIND", "bad", "breach", "breached", "decline", "failed", "silent"],
};

export function setState(node, word, text = word.replaceAll("_", " ")) {
  const kind = Object.keys(STATES).find((name) => STATES[name].includes(word)) ?? "none";
  setText(node, text);
  if (node.className !== `state ${kind}`) node.className = `state ${kind}`;
}

export function stateOf(word) {
  const node = element("span");
  setState(node, word);
  return node;
}

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "\u2013" : NUMBER.format(value));

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "\u2013";
  const whole = Math.max(0, seconds);
  if (whole < 120) return `${NUMBER.format(whole < 10 ? whole : Math.round(whole))} s`;
  if (whole < 7200) return `${Math.round(whole / 60)} min`;
  return whole < 172800 ? `${Math.round(whole / 3600)} h` : `${Math.round(whole / 86400)} days`;
}

export const bytes = (count) => (count < 1e6 ? `${number(count / 1e3)} kB` : `${number(count / 1e6)} MB`);

// every time is UTC, as in logs and metrics
export const clock = (ms) => new Date(ms).toISOString().slice(11, 19) + " UTC";
export const moment = (ms) => (ms ? new Date(ms).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "\u2013");
export const percent = (bp) => `${number(bp / 100)} %`;
