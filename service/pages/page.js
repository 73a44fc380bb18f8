// The page: sign-in, and a refresh every two seconds.

import * as api from "./api.js";
import { byId, clock, setText, show } from "./dom.js";
import * as feed from "./feed.js";
import * as quality from "./quality.js";
import * as replays from "./replays.js";
import * as rollouts from "./rollouts.js";
import * as status from "./status.js";
import { onDone } from "./steps.js";

const EVERY_MS = 2_000;
const ALERTS = 20;

let role = null;
let timer = null;
let freshAt = null; // time of the newest complete refresh
let round = 0; // answers to an older round are not shown

async function refresh() {
  clearTimeout(timer);
  const mine = ++round;
  try {
    if (role === null && !(await signedIn())) return;
    // a part that fails does not hide the others
    const results = await Promise.allSettled([
      api.status(), rollouts.load(() => mine === round), api.alerts(ALERTS), api.quality(), api.replays(),
    ]);
    if (mine !== round) return;
    const faults = results.filter((result) => result.status === "rejected").map((result) => result.reason);
    if (faults.some((fault) => fault.status === 401)) return signOut();
    const [current, rolloutData, alerts, outcomes, replayed] = results.map((result) => result.value);
    if (current) status.render(current);
    if (rolloutData) rollouts.render(rolloutData, role);
    if (alerts) feed.render(alerts);
    if (outcomes) quality.render(outcomes);
    if (replayed) replays.render(replayed);
    if (!faults.length) freshAt = Date.now();
    showFault(faults[0]);
  } catch (reason) {
    if (mine === round) showFault(reason);
  } finally {
    if (mine === round && !signInIsShown()) schedule();
  }
}

function schedule() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

const signInIsShown = () => !byId("sign-in").hidden;

async function signedIn() {
  const caller = await api.caller();
  role = caller.role;
  const isKnown = role !== null;
  show(byId("content"), isKnown);
  show(byId("sign-in"), !isKnown);
  show(byId("sign-out"), isKnown && Boolean(api.token.get()));
  setText(byId("who"), isKnown ? `${caller.name} (${role})` : "");
  if (isKnown) return true;
  showFault(api.token.get() ? new api.Problem(401, "", "This token is expired, revoked or not known.") : undefined);
  api.token.forget();
  setText(byId("verdict"), "Not signed in");
  byId("verdict").className = "";
  byId("token").focus();
  return false;
}

function signOut() {
  api.token.forget();
  role = null;
  refresh();
}

function showFault(reason) {
  const banner = byId("fault");
  document.body.classList.toggle("is-old", Boolean(reason) && role !== null);
  show(banner, Boolean(reason));
  if (!reason) return setText(banner, "");
  const since = freshAt ? ` What is shown is of ${clock(freshAt)}.` : "";
  setText(banner, (reason instanceof api.Problem ? reason.message : "The sidecar does not answer.") + since);
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.token.set(byId("token").value.trim());
  byId("token").value = "";
  refresh();
});
byId("sign-out").addEventListener("click", signOut);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
onDone(refresh);
refresh();
