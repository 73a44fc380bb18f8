// `/v1/replays` on the page: how far replays are; the section is hidden while there is none.

import { age, byId, number, percent, rows, show } from "./dom.js";

export function render({ replays }) {
  show(byId("replays-section"), replays.length > 0);
  rows(byId("replays"), replays, (replay) => replay.name, (replay) => [
    replay.name,
    { state: replay.state },
    { text: number(replay.remaining), number: true },
    { text: number(Math.round(replay.per_s)), number: true },
    { text: age(replay.seconds_left), number: true },
    replay.error || partitions(replay),
  ]);
}

// the share of each partition's offsets that is decided
const partitions = ({ positions, ends }) => Object.entries(ends)
  .filter(([, end]) => end > 0)
  .map(([partition, end]) => `${partition}: ${percent(10_000 * Math.min(1, (positions[partition] ?? 0) / end))}`)
  .join(", ");
