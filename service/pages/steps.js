// Steps of a rollout: each is asked about in a dialog, wants a reason, and is sent as the caller saw the rollout.

import * as api from "./api.js";
import { byId, element, say, show } from "./dom.js";

const OPERATORS = ["operator", "admin"];
const ADMINS = ["admin"];

export const STEPS = {
  shadow_started: { title: "Start shadow", roles: OPERATORS, means: "Challengers score every transaction; nothing is decided by them." },
  canary_set: { title: "Set canary", roles: OPERATORS, share: true, challenger: true, means: "The challenger decides for this share of the cards, the same ones every time." },
  paused: { title: "Pause", roles: OPERATORS, means: "The champion decides for every card; challengers are still scored." },
  resumed: { title: "Resume", roles: OPERATORS, means: "The rollout goes on where it was paused." },
  promoted: { title: "Promote", roles: ADMINS, challenger: true, means: "The challenger's model and policy decide for every card." },
  rolled_back: { title: "Roll back", roles: OPERATORS, ends: true, means: "The rollout is over; the champion decides for every card." },
  withdrawn: { title: "Withdraw", roles: ADMINS, ends: true, means: "The promotion is taken back; the champion before it decides." },
};

let asked = null; // what the open dialog would send
let done = () => {};

export function onDone(listener) {
  done = listener;
}

export function ask(rollout, type) {
  const step = STEPS[type];
  // the key is of this dialog: confirmed once more after a lost answer, it is the same request
  asked = { rollout, type, key: api.freshKey() };
  say(byId("step-title"), `${step.title}: ${rollout.rollout_id}?`);
  say(byId("step-means"), step.means);
  say(byId("step-confirm"), step.title);
  byId("step-confirm").className = step.ends ? "ends" : "";
  const names = rollout.challengers.map((one) => element("option", { value: one.name }, one.name));
  const first = rollout.challengers.find((one) => one.name === rollout.canary)
    ?? rollout.challengers.find((one) => one.role === "canary") ?? rollout.challengers[0];
  byId("step-challenger").replaceChildren(...names);
  byId("step-challenger").value = first?.name ?? "";
  show(byId("step-challenger-field"), Boolean(step.challenger) && names.length > 1);
  show(byId("step-share-field"), Boolean(step.share));
  byId("step-share").required = Boolean(step.share);
  byId("step-share").value = step.share ? (rollout.share_bp || first?.share_bp || 1000) / 100 : "";
  byId("step-reason").value = "";
  say(byId("step-fault"), "");
  byId("step").showModal();
  byId("step-reason").focus();
}

async function send(event) {
  event.preventDefault();
  if (!byId("step-form").reportValidity()) return;
  const { rollout, type, key } = asked;
  const body = { type, reason: byId("step-reason").value.trim() };
  if (STEPS[type].challenger) body.challenger = byId("step-challenger").value;
  if (STEPS[type].share) body.share_bp = Math.round(100 * Number(byId("step-share").value));
  byId("step-confirm").disabled = true;
  try {
    const receipt = await api.step(rollout.rollout_id, rollout.seq, key, body);
    byId("step").close();
    say(byId("said"), `${receipt.rollout_id} is ${receipt.phase.replaceAll("_", " ")}, event ${receipt.seq}`);
    done();
  } catch (fault) {
    say(byId("step-fault"), fault instanceof api.Problem
      ? fault.message
      : "No answer: confirm again; it is not done twice.");
    // what was refused is asked anew with a key of its own
    if (fault instanceof api.Problem && fault.status < 500) asked = { ...asked, key: api.freshKey() };
  } finally {
    byId("step-confirm").disabled = false;
  }
}

byId("step-form").addEventListener("submit", send);
byId("step-cancel").addEventListener("click", () => byId("step").close());
