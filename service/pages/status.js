// `/v1/status` on the page: the verdict, its reasons, rates, lag, parts, dead letters.

import { age, byId, bytes, element, fill, moment, number, rows, setText, setState, show } from "./dom.js";

const REMEMBERED = 60; // points in the throughput line
const seen = [];

export function render(status) {
  const verdict = byId("verdict");
  // a live region: it is read aloud when its text changes, so it has no numbers
  const worst = status.reasons[0]?.code.replaceAll("_", " ");
  setState(verdict, status.verdict, worst ? `${status.verdict}: ${worst}` : status.verdict);
  document.title = `${status.verdict} \u2013 ${status.job_id}`;
  setText(byId("job"), status.job_id);
  tiles(status);
  reasons(status);
  rows(byId("inputs"), status.inputs, (input) => `${input.topic}/${input.partition}`, (input) => [
    `${input.topic} ${input.partition}`,
    { state: input.verdict ?? "unknown" },
    { text: number(input.lag_records) + (input.held ? ` + ${number(input.held)} held` : ""), number: true },
    { text: number(input.lag_seconds), number: true },
    input.detail,
  ]);
  rows(byId("parts"), status.parts, (part) => part.name, (part) => [
    part.name.replaceAll("_", " "), { state: part.state }, part.detail ?? "",
  ]);
  const letters = Object.entries(status.dead_letters);
  rows(byId("letters"), letters, ([reason]) => reason, ([reason, count]) => [
    reason, { text: number(count), number: true },
  ]);
  show(byId("letters-table"), letters.length > 0);
  show(byId("no-letters"), letters.length === 0);
  const versions = Object.entries(status.versions).map(([part, version]) => `${part} ${version}`);
  const sentences = [`${versions.join(", ")}; ${number(status.restarts)} restarts of the job seen.`];
  if (status.takeover) {
    const { at, release, key_groups: groups, asked_by: who } = status.takeover;
    sentences.push(`Took over from release ${release}, ${number(groups)} key groups, ${moment(1000 * at)}, asked by ${who}.`);
  }
  setText(byId("versions"), sentences.join(" "));
}

function tiles(status) {
  const { p50, p95, p99 } = status.latency_ms;
  const { state, profiles, epoch, watermark } = status;
  const lag = status.inputs.reduce((sum, input) => sum + input.lag_records, 0);
  const values = [
    ["Throughput", number(status.throughput_per_s), "transactions a second"],
    ["Latency p50", number(p50), "ms to the commit"],
    ["Latency p95", number(p95), "ms"],
    ["Latency p99", number(p99), "ms"],
    ["Lag", number(lag), "records in all inputs"],
    ["Watermark", age(watermark.age_s), "behind"],
    ["Cards", number(state.cards), `${bytes(state.local_bytes)} in ${number(state.key_groups)} key groups`],
    ["Profiles", age(profiles.change_age_s), `since a change; heartbeat ${age(profiles.heartbeat_age_s)}`],
    ["Epoch", number(epoch.number), `checkpoint ${age(epoch.checkpoint_age_s)} old`],
  ];
  fill(byId("now"), values, ([name]) => name, tile, (node, [, value, note]) => {
    setText(node.querySelector("dd span"), value);
    setText(node.querySelector("small"), note);
  });
  if (status.throughput_per_s !== null) draw(status.throughput_per_s);
}

function tile([name]) {
  const value = element("dd", {}, element("span"), element("small"));
  return element("div", {}, element("dt", {}, name), value);
}

// Draw the recent throughput as a line; the number beside it is the accessible form.
function draw(value) {
  seen.push(value);
  if (seen.length > REMEMBERED) seen.shift();
  if (seen.length < 2) return;
  const space = "http://www.w3.org/2000/svg";
  const firstTile = byId("now").firstElementChild;
  let picture = firstTile.querySelector("svg");
  if (!picture) {
    picture = document.createElementNS(space, "svg");
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("aria-hidden", "true");
    picture.append(document.createElementNS(space, "polyline"));
    firstTile.lastElementChild.append(picture);
  }
  picture.setAttribute("viewBox", `0 0 ${seen.length - 1} 20`);
  const most = Math.max(...seen, 1);
  const points = seen.map((rate, at) => `${at},${(19 - (18 * rate) / most).toFixed(1)}`);
  picture.firstElementChild.setAttribute("points", points.join(" "));
}

function reasons(status) {
  show(byId("reasons-title"), status.reasons.length > 0);
  fill(byId("reasons"), status.reasons, (reason) => reason.code, (reason) => element("li", {},
    element("strong", {}, reason.code.replaceAll("_", " ")), " ", element("span"), " ", runbook(reason),
  ), (node, reason) => {
    const since = reason.since === null ? "" : ` (for ${age(status.now - reason.since)})`;
    setText(node.querySelector("span"), `${reason.detail}${since}`);
  });
}

// A link if the operator has configured an address; a path in the repository is plain text.
function runbook(reason) {
  if (!/^https?:\/\//.test(reason.runbook)) return element("code", {}, reason.runbook);
  return element("a", { href: reason.runbook, rel: "noreferrer" }, `what to do about ${reason.code}`);
}
