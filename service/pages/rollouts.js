// `/v1/rollouts` on the page: the champion, its comparison with challengers, and the next steps.

import * as api from "./api.js";
import { byId, element, fill, moment, number, percent, rows, setText, setState, stateOf } from "./dom.js";
import { STEPS, ask } from "./steps.js";

const TRIED = ["shadow", "canary", "paused"];

// Load the list of rollouts, details of the open one and of the champion's, and verdicts on challengers.
// After a sign-out no further requests are sent.
export async function load(isWanted) {
  const request = (call) => (isWanted() ? call() : Promise.reject(new Error("not wanted any more")));
  const all = await request(api.rollouts);
  const ids = new Set([all.open, all.champion?.rollout_id]);
  const wanted = all.rollouts.map((rollout) => rollout.rollout_id).filter((id) => ids.has(id));
  const shown = await Promise.all(wanted.map(async (id) => {
    const rollout = await request(() => api.rollout(id));
    const verdict = TRIED.includes(rollout.phase) ? await request(() => api.verdict(id)) : null;
    return { ...rollout, verdict };
  }));
  return { all, shown };
}

export function render({ all, shown }, role) {
  const champion = all.champion;
  setText(byId("champion"), champion
    ? `${champion.model.name} ${champion.model.version} decides, since rollout ${champion.rollout_id}; threshold ${champion.policy.threshold}.`
    : "No model decides: none has been promoted yet.");
  fill(byId("trials"), shown, (rollout) => rollout.rollout_id, frame,
    (node, rollout) => update(node, rollout, role));
  rows(byId("history"), all.rollouts, (rollout) => rollout.rollout_id, (rollout) => [
    rollout.rollout_id, { state: rollout.phase }, rollout.opened_by, moment(rollout.changed_at),
  ]);
}

function frame(rollout) {
  const title = element("h3", {}, rollout.rollout_id, " ", element("span"));
  return element("article", { class: "trial", "aria-label": `Rollout ${rollout.rollout_id}` }, title,
    element("p", { class: "note" }), element("div", { class: "compared" }),
    element("div", { class: "buttons", role: "group", "aria-label": `Steps of ${rollout.rollout_id}` }));
}

function update(node, rollout, role) {
  setState(node.querySelector("h3 span"), rollout.phase);
  const last = rollout.events.filter((event) => event.state !== "refused").at(-1);
  const share = rollout.phase === "canary" ? `${rollout.canary} decides for ${percent(rollout.share_bp)} of the cards. ` : "";
  const lastEvent = last
    ? `Event ${last.seq}, ${last.type.replaceAll("_", " ")} by ${last.actor}: ${last.reason} (${where(last)})`
    : "";
  const waiting = rollout.verdict?.waiting_for ? `. Not judged by labels: ${rollout.verdict.waiting_for}` : "";
  setText(node.querySelector(".note"), share + lastEvent + waiting);
  fill(node.querySelector(".compared"), Object.entries(rollout.verdict?.challengers ?? {}), ([name]) => name,
    ([name]) => comparison(name, rollout), (table, [, verdict]) => compare(table, verdict));
  buttons(node.querySelector(".buttons"), rollout, role);
}

function where(event) {
  if (event.state !== "applied") return `${event.state}: ${event.groups.applied} of ${event.groups.of} key groups`;
  const offsets = Object.entries(event.held_from).map(([partition, offset]) => `partition ${partition} offset ${offset}`);
  return offsets.length ? `in force from ${offsets.join(", ")}` : "applied";
}

const COUNTED = [
  ["Card-hours with alerts", (counts) => counts.card_hours],
  ["Cards with alerts", (counts) => counts.cards],
  ["Transactions with alerts", (counts) => counts],
];

function comparison(name, rollout) {
  const model = rollout.challengers.find((challenger) => challenger.name === name)?.model;
  const titles = ["On the same transactions", "Both", "Only champion", `Only ${name}`];
  const head = titles.map((title, at) => element("th", { scope: "col", class: at ? "number" : "" }, title));
  const caption = element("caption", { class: "hidden" }, `${name} compared with the champion`);
  return element("div", {},
    element("p", {}, element("strong", {}, name), model ? ` ${model.name} ${model.version} ` : " ", element("span")),
    element("div", { class: "wide", role: "group", "aria-label": `Comparison of ${name}`, tabindex: "0" },
      element("table", {}, caption, element("thead", {}, element("tr", {}, ...head)), element("tbody"))),
    element("p", { class: "note" }),
    element("ul", { class: "plain guards", "aria-label": `Guards of ${name}` }));
}

function compare(node, verdict) {
  const counts = verdict.counts;
  setState(node.querySelector("p span"), verdict.verdict);
  rows(node.querySelector("tbody"), COUNTED, ([title]) => title, ([title, of]) => [
    title, ...["both", "only_champion", "only_challenger"].map((part) => ({ text: number(of(counts)[part]), number: true })),
  ]);
  const per = (ms) => (counts.rows ? number((ms * 1000) / counts.rows) : "\u2013");
  setText(node.querySelector(".note"), `${number(counts.transactions)} transactions given to both models; the challenger decided ${number(counts.decided)} and failed to score ${number(counts.failures)}; ms for 1,000: challenger ${per(counts.time_ms)}, champion ${per(counts.champion_time_ms)}.`);
  fill(node.querySelector(".guards"), verdict.findings, (finding) => finding.guard, (finding) => element("li", {},
    element("strong", {}, finding.guard.replaceAll("_", " ")), " ", stateOf(finding.verdict), " ", element("span", { class: "detail" })),
  (item, finding) => {
    setState(item.querySelector(".state"), finding.verdict);
    setText(item.querySelector(".detail"), finding.detail);
  });
}

// A button for each step that the sidecar allows next and the caller's role may ask for.
function buttons(group, rollout, role) {
  const may = rollout.allowed.filter((type) => STEPS[type]?.roles.includes(role));
  // existing buttons are reused, so that they keep the keyboard's focus
  fill(group, may, (type) => type, (type) => {
    const button = element("button", { type: "button", class: STEPS[type].ends ? "ends" : "" }, STEPS[type].title);
    button.addEventListener("click", () => ask(button.rollout, type));
    return button;
  }, (button) => { button.rollout = rollout; });
}
