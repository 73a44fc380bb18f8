// `/v1/alerts` on the page: the newest alerts with their reasons in sentences.

import { byId, clock, element, fill, number, setText, show, stateOf } from "./dom.js";

let isUpdate = false; // whether a list was shown before: then new alerts are marked

export function render(feed) {
  const missing = feed.unreadable ? `Records on the topic that are no alerts: ${feed.unreadable}` : "";
  const note = feed.waiting_for ?? (missing || (feed.alerts.length ? "" : "None yet"));
  setText(byId("alerts-note"), note);
  show(byId("alerts-note"), note !== "");
  fill(byId("alerts"), feed.alerts, (alert) => alert.alert_id, item);
  isUpdate = true;
}

function item(alert) {
  const arrived = new Date(alert.arrival_time);
  const amount = new Intl.NumberFormat("en", { minimumFractionDigits: 2 }).format(alert.amount);
  const head = element("div", { class: "head" },
    element("time", { datetime: arrived.toISOString() }, clock(arrived)),
    stateOf(alert.decision),
    element("span", {}, `${amount} ${alert.currency}, ${alert.country}`),
    element("span", {}, `card ${alert.card_id}`),
  );
  const score = alert.score === null ? "no score" : `score ${alert.score.toFixed(3)}, threshold ${number3(alert.threshold)}`;
  const { topic, partition, offset } = alert.source;
  const about = [
    score, `${alert.model.name} ${alert.model.version} (${alert.role})`, `transaction ${alert.transaction_id}`,
    `merchant ${alert.merchant_id}`, `${topic}-${partition} at ${offset}`, ...(alert.late ? ["late"] : []),
    ...(alert.profile_unknown ? ["profile unknown"] : []), ...(alert.history_cut ? ["history cut"] : []),
  ].join(" \u00b7 ");
  const reasons = alert.sentences.map((sentence) => element("li", {}, sentence));
  return element("li", isUpdate ? { class: "is-new" } : {}, head,
    element("ul", { "aria-label": "Reasons" }, ...reasons), element("div", { class: "about" }, about));
}

const number3 = (value) => (Number.isInteger(value) ? number(value) : value.toFixed(3));
