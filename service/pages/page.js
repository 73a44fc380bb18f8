// The page: who looks, and every two seconds what the sidecar knows.

import * as api from "./api.js";
import { byId, clock, say, show } from "./dom.js";
import * as feed from "./feed.js";
import * as quality from "./quality.js";
import * as rollouts from "./rollouts.js";
import * as status from "./status.js";
import { onDone } from "./steps.js";

const EVERY_MS = 2_000;
const ALERTS = 20;

let role = null;
let timer = null;
let freshAt = null; // of the newest whole answer
let round = 0; // an answer to an older question is not shown

async function look() {
  clearTimeout(timer);
  const mine = ++round;
  try {
    if (role === null && !(await signedIn())) return;
    // one part that is not known yet does not hide the others
    const found = await Promise.allSettled([
      api.status(), rollouts.load(() => mine === round), api.alerts(ALERTS), api.quality(),
    ]);
    if (mine !== round) return;
    const faults = found.filter((one) => one.status === "rejected").map((one) => one.reason);
    if (faults.some((fault) => fault.status === 401)) return signOut();
    const [told, steered, alerts, labelled] = found.map((one) => one.value);
    if (told) status.render(told);
    if (steered) rollouts.render(steered, role);
    if (alerts) feed.render(alerts);
    if (labelled) quality.render(labelled);
    if (!faults.length) freshAt = Date.now();
    fault(faults[0]);
  } catch (reason) {
    if (mine === round) fault(reason);
  } finally {
    if (mine === round && !signInIsShown()) schedule();
  }
}

function schedule() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(look, EVERY_MS);
}

const signInIsShown = () => !byId("sign-in").hidden;

async function signedIn() {
  const who = await api.caller();
  role = who.role;
  const isKnown = role !== null;
  show(byId("content"), isKnown);
  show(byId("sign-in"), !isKnown);
  show(byId("sign-out"), isKnown && Boolean(api.token.get()));
  say(byId("who"), isKnown ? `${who.name} (${role})` : "");
  if (isKnown) return true;
  fault(api.token.get() ? new api.Problem(401, "", "This token is not known, expired or revoked.") : undefined);
  api.token.forget();
  say(byId("verdict"), "Not signed in");
  byId("verdict").className = "";
  byId("token").focus();
  return false;
}

function signOut() {
  api.token.forget();
  role = null;
  look();
}

function fault(reason) {
  const place = byId("fault");
  document.body.classList.toggle("is-old", Boolean(reason) && role !== null);
  show(place, Boolean(reason));
  if (!reason) return say(place, "");
  const since = freshAt ? ` What is shown is of ${clock(freshAt)}.` : "";
  say(place, (reason instanceof api.Problem ? reason.message : "The sidecar does not answer.") + since);
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.token.set(byId("token").value.trim());
  byId("token").value = "";
  look();
});
byId("sign-out").addEventListener("click", signOut);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : look()));
onDone(look);
look();
