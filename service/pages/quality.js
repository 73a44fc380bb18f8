// `/v1/quality` on the page: outcomes of the alerts of 130 days by their labels.

import { byId, number, percent, rows, setText, show } from "./dom.js";

export function render(quality) {
  const note = quality.waiting_for ?? (quality.alerts.length ? "" : "No alert so far");
  setText(byId("quality-note"), note);
  show(byId("quality-note"), note !== "");
  show(byId("quality-table"), quality.alerts.length > 0);
  rows(byId("quality"), quality.alerts, (row) => `${row.by} ${row.name}`, (row) => [
    `${row.by} ${row.name}`,
    { text: row.precision === null ? "\u2013" : percent(10_000 * row.precision), number: true },
    ...["fraud", "genuine", "open"].map((outcome) => ({ text: number(row[outcome]), number: true })),
  ]);
}
