// Steps of a rollout: a dialog asks for confirmation and a reason; the request names the seq that was shown.

import * as api from "./api.js";
import { byId, element, setText, show } from "./dom.js";

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

let pending = null; // request of the open dialog
let done = () => {};

export function onDone(listener) {
  done = listener;
}

export function ask(rollout, type) {
  const step = STEPS[type];
  // one key per dialog: a confirmation repeated after a lost answer is the same request
  pending = { rollout, type, key: api.freshKey() };
  setText(byId("step-title"), `${step.title}: ${rollout.rollout_id}?`);
  setText(byId("step-means"), step.means);
  setText(byId("step-confirm"), step.title);
  byId("step-confirm").className = step.ends ? "ends" : "";
  const names = rollout.challengers.map(({ name }) => element("option", { value: name }, name));
  const first = rollout.challengers.find((challenger) => challenger.name === rollout.canary)
    ?? rollout.challengers.find((challenger) => challenger.role === "canary") ?? rollout.challengers[0];
  byId("step-challenger").replaceChildren(...names);
  byId("step-challenger").value = first?.name ?? "";
  show(byId("step-challenger-field"), Boolean(step.challenger) && names.length > 1);
  show(byId("step-share-field"), Boolean(step.share));
  byId("step-share").required = Boolean(step.share);
  byId("step-share").value = step.share ? (rollout.share_bp || first?.share_bp || 1000) / 100 : "";
  byId("step-reason").value = "";
  setText(byId("step-fault"), "");
  byId("step").showModal();
  byId("step-reason").focus();
}

async function send(event) {
  event.preventDefault();
  if (!byId("step-form").reportValidity()) return;
  const { rollout, type, key } = pending;
  const body = { type, reason: byId("step-reason").value.trim() };
  if (STEPS[type].challenger) body.challenger = byId("step-challenger").value;
  if (STEPS[type].share) body.share_bp = Math.round(100 * Number(byId("step-share").value));
  byId("step-confirm").disabled = true;
  try {
    const receipt = await api.step(rollout.rollout_id, rollout.seq, key, body);
    byId("step").close();
    setText(byId("said"), `${receipt.rollout_id} is ${receipt.phase.replaceAll("_", " ")}, event ${receipt.seq}`);
    done();
  } catch (fault) {
    setText(byId("step-fault"), fault instanceof api.Problem
      ? fault.message
      : "No answer: confirm again; it is not done twice.");
    // after a refusal the next attempt is a new request
    if (fault instanceof api.Problem && fault.status < 500) pending = { ...pending, key: api.freshKey() };
  } finally {
    byId("step-confirm").disabled = false;
  }
}

byId("step-form").addEventListener("submit", send);
byId("step-cancel").addEventListener("click", () => byId("step").close());
