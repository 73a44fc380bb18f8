// `/v1/quality` on the page: what labels say of the newest alerts.

import { byId, number, percent, rows, say, show } from "./dom.js";

export function render(quality) {
  const note = quality.waiting_for ?? (quality.alerts.length ? "" : "No alert so far");
  say(byId("quality-note"), note);
  show(byId("quality-note"), note !== "");
  show(byId("quality-table"), quality.alerts.length > 0);
  rows(byId("quality"), quality.alerts, (one) => `${one.by} ${one.name}`, (one) => [
    `${one.by} ${one.name}`,
    { text: one.precision === null ? "\u2013" : percent(10_000 * one.precision), number: true },
    ...["fraud", "genuine", "open"].map((outcome) => ({ text: number(one[outcome]), number: true })),
  ]);
}
